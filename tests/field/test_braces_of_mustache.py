"""Prompts of other projects show their values in Mustache's three braces, which stand for a value
without escapes, and judge prompts come in YAML files with the scores of their choices.

The right texts follow from Mustache's manual and, beside LaTeX's commands, are read by hand.
"""

import pytest

from textevolve import Client, InputError
from textevolve.llm.chains.chat_template import Slot, read_text_template
from textevolve.texts.placeholders import check_spelling, fill, find_placeholders, restore_spelling

VALUES = {"output": "Oslo {input}", "input": "?"}


@pytest.mark.parametrize(
    ("template", "right"),
    [
        ("[A]: {{{output}}}", "[A]: Oslo {input}"),
        ("答案{{{output}}}，Q{{{input}}}", "答案Oslo {input}，Q?"),
        ('{"answer": {{{input}}}}', '{"answer": ?}'),
        (r"\boxed{{{input}}}", r"\boxed{?}"),
        (r"\frac{1}{{{input}}} of x_{{{input}}}", r"\frac{1}{?} of x_{?}"),
        ("{{{ input }}}", "{?}"),
        (r"\displaystyle\boxed{{input}}", r"\displaystyle\boxed{?}"),
    ],
)
def test_values_in_three_braces(template, right):
    assert fill(template, VALUES) == right
    shown = [name for name in VALUES if VALUES[name] in right]
    assert set(find_placeholders(template, VALUES)) == set(shown)
    check_spelling(template, VALUES, "prompt")


def test_other_names_in_three_braces_stay():
    assert fill("{{{city}}} {{{output}}}", {"output": "Oslo"}) == "{{{city}}} Oslo"


def test_templates_of_chains_and_rewrites():
    assert read_text_template("so {{{input}}}!") == ("so ", Slot("input"), "!")
    assert restore_spelling("Ask {input}.", "Say {{{input}}}.", ["input"]) == "Ask {{{input}}}."


CHOICES = "prompt: |-\n  [Answer]: {{{output}}}\nchoice_scores:\n  A: 0.4\n  B: 1\n"


def test_judge_prompts_of_autoevals(server, home):
    (home / "choices.yaml").write_text(CHOICES)
    (home / "choices.txt").write_text("[Answer]: {{{output}}}")
    server.script = lambda _body, _number: "A"
    with Client(f"{server.url}#scripted") as client:
        with pytest.raises(InputError, match="its prompt to a text file"):
            client.evaluate("?", ["Oslo"], judge="prompt:choices.yaml+labels=A=0.4,B=1")
        assert server.calls == 0

        judgement = client.evaluate("?", ["Oslo"], judge="prompt:choices.txt+labels=A=0.4,B=1")

    assert judgement.scores == (0.4,)
    (body,) = server.requests
    assert body["messages"][-1]["content"].startswith("[Answer]: Oslo\n")
