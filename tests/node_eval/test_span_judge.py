"""Spans of any framework are judged as they end."""

import json

import pytest
from opentelemetry.sdk.trace import TracerProvider

from textevolve.evaluation import EvaluationResult, PlainEvaluation
from textevolve.node_eval import JudgeEvaluator, Monitor, ThresholdEvaluator
from textevolve.node_eval.span_judge import SpanJudge


def chat(tracer, text, **values):
    answer = json.dumps([{"role": "assistant", "content": text}])
    attributes = {"gen_ai.operation.name": "chat", "gen_ai.output.messages": answer}
    prompt = json.dumps([{"role": "user", "content": "Why are there tides?"}])
    with tracer.start_as_current_span(
        "chat", attributes={**attributes, "gen_ai.input.messages": prompt, **values}
    ):
        pass


@pytest.fixture
def provider():
    return TracerProvider(shutdown_on_exit=False)


def test_an_agent_is_judged_while_it_runs_with_its_nesting(provider):
    tracer = provider.get_tracer("agent")

    async def judge(case):
        chat(tracer, "A span of the judge's own")
        return PlainEvaluation((EvaluationResult(1.0, True, case.candidates[0]),))

    with Monitor([JudgeEvaluator("judge", judge)]) as monitor:
        provider.add_span_processor(SpanJudge(monitor))
        agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "pilot"}
        ids = {"session.id": "voyage-1", "gen_ai.conversation.id": "talk-1"}
        with (
            tracer.start_as_current_span("run", attributes=ids),
            tracer.start_as_current_span("invoke_agent", attributes=agent),
            tracer.start_as_current_span("GET /"),
        ):
            chat(tracer, "The moon pulls on the sea.")
        assert monitor.drain_sync(10)
        model, pilot = monitor.history.items
        assert [(one.node, one.path) for one in (model, pilot)] == [
            ("chat", ("pilot",)),
            ("pilot", ()),
        ]
        assert model.ids["parent_id"] == pilot.ids["span_id"]
        assert (model.ids["session_id"], model.thread_id) == ("voyage-1", "talk-1")
        assert model.run_id == pilot.run_id
        feedback = {one.evaluation_results["judge"].feedback for one in (model, pilot)}
        assert feedback == {"The moon pulls on the sea."}


def test_a_span_that_fails_is_skipped_and_the_agent_gets_its_error(provider):
    tracer = provider.get_tracer("agent")
    with Monitor([ThresholdEvaluator("sure", "confidence", 0.5)]) as monitor:
        provider.add_span_processor(SpanJudge(monitor, {"plan": "DECOMPOSE"}))
        with pytest.raises(ValueError, match="no map"), tracer.start_as_current_span("plan"):
            raise ValueError("no map")
        chat(tracer, "Sure.", confidence=0.75)
        assert monitor.drain_sync(10)
        plan, model = monitor.history.items
        assert "no map" in plan.error
        assert plan.evaluation_results["sure"].kind == "skipped"
        assert model.evaluation_results["sure"].score == 0.75
