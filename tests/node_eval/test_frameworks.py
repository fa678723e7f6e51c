"""What each node says in traces of agent frameworks, recorded by `fixtures/record.py`."""

from pathlib import Path

import pytest

from textevolve.evaluation import EvaluationResult, Failure, PlainEvaluation
from textevolve.node_eval import JudgeEvaluator
from textevolve.node_eval.judging import evaluate_episodes
from textevolve.node_eval.traces import read_episodes

FIXTURES = Path(__file__).with_name("fixtures")
CALL = 'tide_table({"port": "Brest"})'
DONE = "High water is at noon."
STRANDS = [
    ("pilot/execute_event_loop_cycle/chat", CALL),
    ("pilot/execute_event_loop_cycle/tide_table", "12:00"),
    ("pilot/execute_event_loop_cycle", CALL),
    ("pilot/execute_event_loop_cycle/chat", DONE),
    ("pilot/execute_event_loop_cycle", DONE),
    ("pilot", DONE),
]
HAND = "transfer_to_pilot(…)"
FLOW = "Agent workflow/Agent workflow"
NODES = {
    "strands": STRANDS,
    "strands-latest": STRANDS,
    "openai-agents": [
        (f"{FLOW}/desk/turn/response", HAND),
        (f"{FLOW}/desk/turn/handoff to pilot", "pilot"),
        (f"{FLOW}/desk/turn", HAND),
        (f"{FLOW}/desk", HAND),
        (f"{FLOW}/pilot/turn/response", CALL),
        (f"{FLOW}/pilot/turn/tide_table", "12:00"),
        (f"{FLOW}/pilot/turn", CALL),
        (f"{FLOW}/pilot/turn/response", DONE),
        (f"{FLOW}/pilot/turn", DONE),
        (f"{FLOW}/pilot", DONE),
        (FLOW, DONE),
        ("Agent workflow", DONE),
    ],
    "adk": [
        ("pilot/pilot/generate_content openai/scripted", CALL),
        ("pilot/pilot/tide_table", '{"result": "12:00"}'),
        ("pilot/pilot/generate_content openai/scripted", DONE),
        ("pilot/pilot", DONE),
        ("pilot", DONE),
    ],
    "agent-framework": [
        ("pilot/chat scripted", CALL),
        ("pilot/tide_table", "12:00"),
        ("pilot/chat scripted", DONE),
        ("pilot", DONE),
    ],
    "crewai": [
        ("harbour.kickoff/pilot/ChatCompletion", CALL),
        ("harbour.kickoff/pilot/tide_table", "12:00"),
        ("harbour.kickoff/pilot/ChatCompletion", DONE),
        ("harbour.kickoff/pilot", DONE),
        ("harbour.kickoff", DONE),
    ],
    "smolagents": [
        ("pilot.run/Step 1/OpenAIModel.generate", CALL),
        ("pilot.run/Step 1/tide_table", "12:00"),
        ("pilot.run/Step 1", "12:00"),
        ("pilot.run/Step 2/OpenAIModel.generate", CALL),
        ("pilot.run/Step 2/tide_table", "12:00"),
        ("pilot.run/Step 2", "12:00"),
        ("pilot.run/OpenAIModel.generate", "The moon pulls on the sea."),
        ("pilot.run", "The moon pulls on the sea."),
    ],
    "pydantic-ai": [
        ("pilot/chat scripted", CALL),
        ("pilot/tide_table", "12:00"),
        ("pilot/chat scripted", DONE),
        ("pilot", DONE),
    ],
}
HANDED_OVER = {"openai-agents": "handoff to pilot"}


async def judge_all(name):
    """The nodes of a trace, and what a judge was shown of each."""
    cases = []

    async def judge(case):
        cases.append(case)
        return PlainEvaluation((EvaluationResult(1.0, True),))

    episodes = read_episodes(FIXTURES / f"{name}.jsonl")
    nodes = evaluate_episodes(episodes, [JudgeEvaluator("judge", judge)], 1)
    return [node async for node in nodes], cases


@pytest.mark.parametrize("name", NODES)
async def test_every_node_says_what_it_did(name):
    nodes, cases = await judge_all(name)
    assert not any(isinstance(n.item.evaluation_results["judge"], Failure) for n in nodes)
    outputs = [
        (node.name, case.candidates[0].strip()) for node, case in zip(nodes, cases, strict=True)
    ]
    calls = {n for n, case in enumerate(cases) if "Tools on offer" in case.input}
    expected = NODES[name]
    assert [path for path, _ in outputs] == [path for path, _ in expected]
    for n, (output, (path, text)) in enumerate(zip(outputs, expected, strict=True)):
        if n not in calls:
            assert output[1] == text, path
    tools = [
        n
        for n, (path, _) in enumerate(expected)
        if path.endswith(("tide_table", "handoff to pilot"))
    ]
    assert calls == set(tools)
    candidates = {cases[n].candidates[0] for n in calls}
    assert candidates <= {CALL, "handoff to pilot(desk)", SMOL}
    assert all(n.item.tokens for n in nodes if "GENERATE" in str(n.item.instruction))


SMOL = 'tide_table({"args": [], "sanitize_inputs_outputs": true, "kwargs": {"port": "Brest"}})'


async def test_a_hand_over_is_judged_by_where_it_went():
    _, cases = await judge_all("openai-agents")
    (case,) = [case for case in cases if "handed over to the right agent" in case.input]
    assert "transfer_to_pilot" in case.input
    assert case.candidates == ("handoff to pilot(desk)",)


@pytest.mark.parametrize(
    ("name", "ids"),
    [
        ("strands", {"session_id": "voyage-1", "user_id": "sailor-7"}),
        ("adk", {"thread_id": "voyage-1"}),
    ],
)
def test_ids_stay_with_each_node(name, ids):
    (episode,) = read_episodes(FIXTURES / f"{name}.jsonl")
    for _, item in episode.nodes:
        known_fields = {**item.ids, "thread_id": item.thread_id}
        assert {key: known_fields[key] for key in ids} == ids
        assert item.ids["span_id"]
