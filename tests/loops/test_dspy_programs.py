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
    spoken_answer = "\n".join(message["content"] for message in body["messages"])
    last = body["messages"][-1]["content"]
    if match := re.search(r"\[\[\w+ template[^\]]*\]\]\n(.*?)\n\[\[/", last, re.DOTALL):
        template = match[1]
        text = f"{template}\n{HELPS}"
        full_fields = {"template": text, "changes": [HELPS], "instructions": [HELPS]}
        expected_properties = body["response_format"]["json_schema"]["schema"]["properties"]
        return json.dumps(
            {name: one for name, one in full_fields.items() if name in expected_properties}
        )
    question = re.findall(r"## question ## \]\]\n(.*)", spoken_answer)[-1].strip()
    answer = question.upper() if HELPS in spoken_answer else question
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
    calibration = calibrate(
        *(module, rows), label="loud", metric=right, settings=settings, beam=2, depth=2
    )
    assert calibration.accepted
    assert HELPS in calibration.templates["self"]
    assert HELPS not in module.signature.instructions
