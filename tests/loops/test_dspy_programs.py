"""DSPy's modules as programs whose instructions are improved."""

import json
import re
import warnings

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    dspy = pytest.importorskip("dspy")

from flat_verbs import as_dspy_lm, calibrate
from textevolve.llm.testing import ScriptedServer
from textevolve.settings import Settings

HELPS = "Answer in capitals."


def script(body, _number):
    said = "\n".join(message["content"] for message in body["messages"])
    last = body["messages"][-1]["content"]
    if shown := re.search(r"\[\[\w+ template[^\]]*\]\]\n(.*?)\n\[\[/", last, re.DOTALL):
        template = shown[1]
        made = f"{template}\n{HELPS}"
        whole = {"template": made, "changes": [HELPS], "instructions": [HELPS]}
        wanted = body["response_format"]["json_schema"]["schema"]["properties"]
        return json.dumps({name: one for name, one in whole.items() if name in wanted})
    question = re.findall(r"## question ## \]\]\n(.*)", said)[-1].strip()
    answer = question.upper() if HELPS in said else question
    return f"[[ ## answer ## ]]\n{answer}\n\n[[ ## completed ## ]]"


def right(example, pred, trace=None):
    return pred.answer == example.loud


@pytest.fixture
def server():
    with ScriptedServer(script) as started:
        yield started


def test_the_instructions_of_a_module_are_improved(home, model):
    module = dspy.Predict("question -> answer")
    module.set_lm(as_dspy_lm(temperature=0.0, max_tokens=200))
    rows = [{"question": f"word {n}", "loud": f"WORD {n}"} for n in range(36)]
    settings = Settings(store=home / "store.db", model=model)
    found = calibrate(
        *(module, rows), label="loud", metric=right, settings=settings, beam=2, depth=2
    )
    assert found.accepted
    assert HELPS in found.templates["self"]
    assert HELPS not in module.signature.instructions
