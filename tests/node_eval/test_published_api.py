"""Written from the specification alone: code for the published API must run on these classes."""

import pytest

from textevolve.node_eval import (
    GENERATE,
    TOOL_CALL,
    Adaptive,
    Affective,
    Cognitive,
    EvaluationResult,
    Execution,
    History,
    HistoryItem,
    Memory,
    Metacognitive,
    Monitor,
    NodeEvaluator,
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
        assert [one.name for one in family] == names.split()
        for name in names.split():
            assert getattr(family, name) is getattr(package, name)


def past(output, instruction=GENERATE):
    return History([[HistoryItem(1.0, instruction, {"question": "why"}, output, {})]])


class ResponseLength(NodeEvaluator):
    def __init__(self):
        super().__init__("response_length", [GENERATE])

    def evaluate(self, history):
        current = history.entries[-1][-1]
        score = min(len(current.output_state.get("response", "")) / 10, 1.0)
        return EvaluationResult(
            score=score, passed=score > 0.5, feedback="by length", metadata={"of": 10}
        )


def test_an_evaluator_of_the_users_own_runs_alone_and_in_a_monitor():
    evaluator = ResponseLength()
    assert (evaluator.name, evaluator.target_instructions) == ("response_length", [GENERATE])
    assert evaluator.evaluate(past({"response": "12345678"})).score == 0.8
    with Monitor([evaluator]) as monitor:
        monitor.end(monitor.begin("answer", GENERATE, {}), {"response": "1234"})
        monitor.end(monitor.begin("search", TOOL_CALL, {}), {"response": "1234"})
        monitor.drain_sync()
        (first,), (second,) = monitor.history.entries
    assert first.evaluation_results == {
        "response_length": EvaluationResult(0.4, False, "by length", {"of": 10})
    }
    assert second.evaluation_results == {}
    assert monitor.history.entries[-1][-1].output_state == {"response": "1234"}


@pytest.mark.parametrize(
    ("output", "score", "passed"),
    [
        ({"confidence": 0.9}, 0.9, True),
        ({"confidence": 0.7}, 0.7, True),
        ({"confidence": 0.69}, 0.69, False),
        ({"confidence": 1}, 1.0, True),
        ({"other": 0.9}, 0.0, False),
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
        for told in ("confidence", "0.7", f"{score:g}", "passed" if passed else "failed"):
            assert told in result.feedback


@pytest.mark.parametrize("value", ["high", None, [0.9], float("nan"), True, {}])
def test_what_is_not_a_number_is_a_result_that_did_not_pass(value):
    result = ThresholdEvaluator("sure", "confidence", 0.7).evaluate(past({"confidence": value}))
    assert (result.score, result.passed) == (0.0, False)
    assert "confidence is not a number" in result.feedback
    assert result.metadata["value"] is value
