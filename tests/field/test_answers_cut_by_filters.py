"""An endpoint's filter ends an answer in its middle; `textevolve chat` printed the half as if it
were the whole answer, while an answer cut at the token limit was told.

The right value is the finish reason that the endpoint gives.
"""

import pytest

from textevolve.llm.testing import Answer

TEXT = "The ferry leaves at"
CUT = "the endpoint's filter cut the answer"


@pytest.mark.parametrize(
    ("text", "reason", "told"),
    [
        (TEXT, "content_filter", CUT),
        (TEXT, "SAFETY", CUT),
        ("", "content_filter", "the model gave no text: content_filter"),
        (TEXT, "stop", ""),
    ],
)
def test_a_filtered_answer_is_told(cli, server, model, text, reason, told):
    server.script = lambda _body, _number: Answer(text=text, finish_reason=reason)
    assert cli("agents", "create", "guide", "--persona", "You are a guide.").code == 0
    outcome = cli("chat", "guide", "-m", model, "--once", "When?")
    assert outcome.out.strip() == text
    assert told in outcome.err
    assert (CUT in outcome.err) == (told == CUT)
