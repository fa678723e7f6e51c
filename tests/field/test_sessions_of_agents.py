"""A user judges the session of a coding agent from its own log: Claude Code, Codex, SWE-agent.

Each session asks for a test run, calls one tool, gets its result and ends with a reply.
"""

import json

import pytest

QUESTION = "Do the tests pass?"
REPLY = "All three pass."
COMMAND = {"command": "pytest -q"}
RESULT = "3 passed"


def claude(type, message=None, **fields):
    line = {"type": type, "sessionId": "s1", "uuid": "u", "parentUuid": None, **fields}
    return line if message is None else {**line, "message": message}


TOOL_USE = {"type": "tool_use", "id": "t1", "name": "Bash", "input": COMMAND}
TOOL_RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": RESULT}
CLAUDE = [
    {"type": "summary", "summary": "Tests", "leafUuid": "u"},
    claude("user", {"role": "user", "content": "Caveat."}, isMeta=True),
    claude("user", {"role": "user", "content": QUESTION}),
    claude("system", content="Running a hook", subtype="info"),
    claude(
        "assistant", {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm."}]}
    ),
    claude("assistant", {"role": "assistant", "content": [TOOL_USE]}),
    claude("user", {"role": "user", "content": [TOOL_RESULT]}, toolUseResult={"stdout": RESULT}),
    claude("assistant", {"role": "assistant", "content": "I am another."}, isSidechain=True),
    claude("assistant", {"role": "assistant", "content": [{"type": "text", "text": REPLY}]}),
]
STREAM = [
    {"type": "system", "subtype": "init", "session_id": "s1", "tools": ["Bash"]},
    {"type": "user", "message": {"role": "user", "content": QUESTION}, "session_id": "s1"},
    *[
        {"type": message["role"], "message": message, "session_id": "s1"}
        for message in (
            {"role": "assistant", "content": [TOOL_USE]},
            {"role": "user", "content": [TOOL_RESULT]},
            {"role": "assistant", "content": [{"type": "text", "text": REPLY}]},
        )
    ],
    {"type": "result", "subtype": "success", "result": REPLY, "session_id": "s1"},
]


def codex(kind, **payload):
    return {"timestamp": "2026-01-15T08:00:00Z", "type": kind, "payload": payload}


ITEMS = [
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": QUESTION}]},
    {"type": "reasoning", "summary": [], "encrypted_content": "abc"},
    {
        "type": "function_call",
        "name": "Bash",
        "arguments": json.dumps(COMMAND),
        "call_id": "c1",
    },
    {"type": "function_call_output", "call_id": "c1", "output": RESULT},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": REPLY}]},
]
CODEX = [
    codex("session_meta", id="s1", cwd="/src", originator="codex_cli"),
    codex("event_msg", type="user_message", message=QUESTION),
    codex("turn_context", model="m", cwd="/src"),
    *[{**codex("response_item"), "payload": item} for item in ITEMS],
    codex("event_msg", type="agent_message", message=REPLY),
]
OLD_CODEX = [
    {"id": "s1", "timestamp": "2025-06-01T08:00:00Z", "instructions": None},
    {"record_type": "state"},
    *ITEMS,
]
LOGS = {
    "Claude Code": CLAUDE,
    "Claude Code as a stream": STREAM,
    "Codex": CODEX,
    "older Codex": OLD_CODEX,
}
HISTORY = [
    {"role": "system", "content": "You fix code.", "agent": "main"},
    {"role": "user", "content": "A demonstration.", "is_demo": True},
    {"role": "user", "content": QUESTION},
]
FUNCTION = {"name": "Bash", "arguments": json.dumps(COMMAND)}
NEW_TRAJECTORY = {
    "trajectory": [{"action": "pytest -q", "observation": RESULT, "thought": ""}],
    "history": [
        *HISTORY,
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "c1", "type": "function", "function": FUNCTION}],
        },
        {"role": "tool", "content": [{"type": "text", "text": RESULT}], "tool_call_ids": ["c1"]},
        {"role": "assistant", "content": REPLY},
    ],
    "info": {"exit_status": "submitted"},
}
OLD_TRAJECTORY = {
    "trajectory": [
        {"action": "pytest -q\n", "observation": RESULT, "thought": "I run them."},
        {"action": "", "observation": "", "thought": REPLY},
    ],
    "history": [*HISTORY, {"role": "assistant", "content": "I run them.\n```\npytest -q\n```"}],
    "info": {"exit_status": "submitted"},
}
TRAJECTORIES = {"SWE-agent": NEW_TRAJECTORY, "older SWE-agent": OLD_TRAJECTORY}


def write_lines(home, lines):
    (home / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def judge(cli, path, judge):
    outcome = cli("evaluate", path, "--judge", judge, "--json")
    assert outcome.code == 0, outcome.err
    return outcome


@pytest.mark.parametrize("program", LOGS)
def test_log_is_one_session(cli, home, program):
    write_lines(home, LOGS[program])
    judgement = judge(cli, "log.jsonl", "metric:tool-called:Bash=1")
    (row,) = judgement.rows
    (candidate,) = row["candidates"]
    assert (row["id"], candidate["text"], candidate["score"]) == ("s1", REPLY, 1.0)
    assert row["input"].startswith(f"User: {QUESTION}\n")
    assert f"Tool: {RESULT}" in row["input"]


@pytest.mark.parametrize("program", TRAJECTORIES)
def test_trajectory_is_one_session(cli, home, program):
    (home / "a.traj").write_text(json.dumps(TRAJECTORIES[program], indent=1))
    name = "pytest" if program.startswith("older") else "Bash"
    (row,) = judge(cli, "a.traj", f"metric:tool-called:{name}=1").rows
    (candidate,) = row["candidates"]
    assert (candidate["text"], candidate["score"]) == (REPLY, 1.0)
    assert "demonstration" not in row["input"]


@pytest.mark.parametrize("name", ["chat.json", "chat.jsonl"])
def test_bare_chat_is_one_row(cli, home, name):
    """mini-swe-agent writes the messages alone."""
    messages = [{"role": "user", "content": QUESTION}, {"role": "assistant", "content": REPLY}]
    lines = "".join(json.dumps(message) + "\n" for message in messages)
    (home / name).write_text(json.dumps(messages) if name.endswith("json") else lines)
    (row,) = judge(cli, name, "look:length").rows
    assert row["candidates"][0]["text"] == REPLY


def test_demonstration_alone_is_a_row(cli, home):
    history = [*HISTORY, {"role": "assistant", "content": REPLY, "agent": "main"}]
    (home / "a.traj").write_text(json.dumps({"history": history}))
    (row,) = judge(cli, "a.traj", "look:length").rows
    assert row["candidates"][0]["text"] == REPLY


def test_question_alone_is_no_run(cli, home, model):
    """A data set of questions has no answers to judge."""
    row = {"input": [{"role": "user", "content": QUESTION}], "target": "Yes."}
    write_lines(home, [row])
    outcome = cli("evaluate", "log.jsonl", "--judge", "trajectory", "-m", model)
    assert "no final answer" not in outcome.out
    assert outcome.code != 0


def test_model_sees_the_steps(cli, home, server, model):
    write_lines(home, CLAUDE)
    outcome = cli("evaluate", "log.jsonl", "--judge", "trajectory", "-m", model)
    assert outcome.code == 0, outcome.err
    prompts = json.dumps(list(server.requests))
    for text in (QUESTION, "pytest -q", RESULT, REPLY):
        assert text in prompts
    for text in ("Caveat.", "I am another.", "Hm."):
        assert text not in prompts
    assert "1 message of sub-agents in the session left out" in outcome.err


def test_several_sessions_are_rows(cli, home):
    other_records = [{**line, "sessionId": "s2"} for line in CLAUDE[1:]]
    write_lines(home, [*CLAUDE, *other_records])
    rows = judge(cli, "log.jsonl", "metric:tool-called:Bash").rows
    assert [row["id"] for row in rows] == ["s1", "s2"]


def test_empty_session_is_refused(cli, home):
    write_lines(home, CODEX[:2])
    outcome = cli("evaluate", "log.jsonl", "--judge", "look:length")
    assert outcome.code == 2
    assert "a session of Codex without messages" in outcome.err


@pytest.mark.parametrize("program", LOGS)
def test_nodes_name_the_command(cli, home, program):
    write_lines(home, LOGS[program])
    outcome = cli("nodes", "evaluate", "log.jsonl", "--judge", "metric:tool-called:Bash")
    assert outcome.code == 2
    assert "textevolve evaluate log.jsonl --judge trajectory" in outcome.err
    assert "resembles" not in outcome.err


def test_rows_with_a_session_stay_rows(cli, home):
    """A row may name the session that it comes from."""
    rows = [
        {"sessionId": "s1", "input": f"{n}?", "output": "So.", "type": "user"} for n in range(2)
    ]
    write_lines(home, rows)
    assert len(judge(cli, "log.jsonl", "look:length").rows) == 2
