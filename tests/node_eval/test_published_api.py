"""Written from the specification alone: code for the published API must run on these classes."""

import pytest

from textevolve.node_eval import (
    GENERATE,
    Adaptive,
    Affective,
    Cognitive,
    Execution,
    History,
    HistoryItem,
    Memory,
    Metacognitive,
    Normative,
    Social,
    ThresholdEvaluator,
)

FAMILIES = {
    Cognitive: "GENERATE DECOMPOSE REFLECT",
    Memory: "LOAD STORE COMPRESS FILTER STRUCTURE RENDER",
    Execution: "TOOL_CALL TOOL_BUILD DELEGATE RESPOND",
    Normative: "VERIFY CONSTRAIN FALLBACK INTERRUPT",
    Metacognitive: "PREDICT_SUCCESS EVALUATE_PROGRESS MONITOR_RESOURCES",
    Adaptive: "UPDATE_KNOWLEDGE REFINE_SKILL LEARN_PREFERENCE FORMULATE_EXPERIMENT",
    Social: "COMMUNICATE NEGOTIATE PROPOSE_VOTE FORM_COALITION",
    Affective: "INFER_INTENT MODEL_USER_STATE ADAPT_RESPONSE MANAGE_TRUST",
}


def test_every_instruction_stands_in_its_family_and_under_its_own_name():
    import textevolve.node_eval as package

    for family, names in FAMILIES.items():
        assert [instruction.name for instruction in family] == names.split()
        for name in names.split():
            assert getattr(family, name) is getattr(package, name)


def past(output, instruction=GENERATE):
    return History([[HistoryItem(1.0, instruction, {"question": "why"}, output, {})]])


@pytest.mark.parametrize(
    ("output", "score", "passed"),
    [
        ({"confidence": 0.9}, 0.9, True),
        ({"confidence": 0.7}, 0.7, True),
        ({}, 0.0, False),
        (None, 0.0, False),
    ],
)
def test_a_threshold_compares_a_field_of_the_output(output, score, passed):
    for evaluator in (
        ThresholdEvaluator("sure", "confidence", 0.7, [GENERATE]),
        ThresholdEvaluator(name="sure", key="confidence", threshold=0.7, target_instructions=None),
    ):
        result = evaluator.evaluate(past(output))
        assert (result.score, result.passed) == (score, passed)
        assert result.metadata == {"key": "confidence", "threshold": 0.7, "value": score}
        for message in ("confidence", "0.7", f"{score:g}", "passed" if passed else "failed"):
            assert message in result.feedback


@pytest.mark.parametrize("value", ["high", None, [0.9], float("nan"), True, {}])
def test_what_is_not_a_number_is_a_result_that_did_not_pass(value):
    result = ThresholdEvaluator("sure", "confidence", 0.7).evaluate(past({"confidence": value}))
    assert (result.score, result.passed) == (0.0, False)
    assert "confidence is not a number" in result.feedback
    assert result.metadata["value"] is value
