"""Agents, memories, judges' rows and recorded spans, with a word in each place."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from laws.judges import JUDGES
from laws.nothing_vanishes_chats import judge_attributes
from laws.nothing_vanishes_world import (
    Evidence,
    Place,
    Situation,
    World,
    collect,
    run_command,
    word,
)
from laws.studies import EMBEDDER, TEXTS, write_rows

AGENT = (
    ("memories", "collections", "create", "chats", *EMBEDDER),
    ("agents", "users", "create", "ann", "--description", f"She is a {word('description')}."),
    (
        *("agents", "create", "ada", "--persona", f"You are Ada. You know {word('persona')}."),
        *("--memories", "chats", "--collection", "chats"),
    ),
    ("memories", "add", "chats", f"Ann has a {word('memory')}."),
)
"""What makes an agent that remembers."""


def run_after(
    before: Sequence[Sequence[str]], *commands: Sequence[str]
) -> Callable[[World], Evidence]:
    """Return what runs commands after others; what they print counts together."""

    def run(world: World) -> Evidence:
        world.server.script = None
        (world.home / "cases.jsonl").write_text(write_rows(TEXTS[:1]), encoding="utf-8")
        for command in before:
            outcome = world.cli(*(text.replace("MODEL", world.model) for text in command))
            assert outcome.code == 0, outcome.err
        world.server.requests.clear()
        printed = []
        for command in commands:
            outcome = world.cli(*(text.replace("MODEL", world.model) for text in command))
            printed.append(outcome.out)
        evidence = collect(world, outcome)
        return Evidence(outcome.code, "\n".join(printed), outcome.err, evidence.requests)

    return run


def name_places(*names: str, exported: bool = False) -> dict[str, Place]:
    """Return the places that hold the words of their own names."""
    return {name: Place(word(name), exported=exported) for name in names}


MEMORY_FIELDS: Mapping[str, str] = {
    "source": word("source"),
    "author": word("author"),
    "valid-from": "2024-03-01",
    "valid-to": "2024-04-02",
    "created": "2024-02-03",
    "importance": "0.83",
    "trust": "0.57",
}
"""Options of `memories add` that take one value."""


def add_memory() -> Situation:
    """Return a memory that is added with every field, and exported."""
    options = [text for name, value in MEMORY_FIELDS.items() for text in (f"--{name}", value)]
    entities = ("--entity", word("first entity"), "--entity", word("second entity"))
    add = ("memories", "add", "chats", f"Ann has a {word('text')}.", *options, *entities)
    export = ("memories", "export", "chats", "-")
    places = {name: Place(value, exported=True) for name, value in MEMORY_FIELDS.items()}
    places |= name_places("text", "first entity", "second entity", exported=True)
    return Situation(run_after(AGENT[:1], add, export), places)


def list_agents() -> dict[str, Situation]:
    """Return the commands that speak as an agent, and the one that adds a memory."""
    chat = ("chat", "ada", "--user", "ann", "--once", f"Do I have a {word('message')}?")
    debate = ("evaluate", "cases.jsonl", "--agents", "default/ada", "--rounds", "1")
    answer = ("guide", f"Is it {word('question')}?", "Yes.", "No.", "--agents", "default/ada")
    return {
        "chat": Situation(
            run_after(AGENT, (*chat, "-m", "MODEL")),
            name_places("persona", "description", "memory", "message"),
        ),
        "evaluate by a stored agent": Situation(
            run_after(AGENT, (*debate, "-m", "MODEL")), name_places("persona", "memory")
        ),
        "guide by a stored agent": Situation(
            run_after(AGENT, (*answer, "-m", "MODEL")), name_places("persona", "question", "memory")
        ),
        "memories add": add_memory(),
    }


ROW: Mapping[str, Any] = {
    "id": "r1",
    "input": f"Is it {word('input')}?",
    "candidates": [f"Oslo is {word('first')}.", f"Oslo is {word('second')}."],
    "reference": f"It is {word('reference')}.",
    "context": [f"So says {word('passage 1')}.", f"So says {word('passage 2')}."],
}
"""A row of which each role holds a word."""
ROLES = ("input", "first", "second", "reference", "passage 1", "passage 2")
UNTRIED = {
    "trajectory": "its rows are chats, which have cells of their own",
    "embedding@MODEL": "requests for embeddings are not kept by the scripted server",
    "instruction-likelihood": "it forces the words token by token, and no request holds them whole",
    "FILE.judge": "it is made of others",
}
"""Judges whose rows have no cells here, each with the reason."""


def list_judges() -> dict[str, Situation]:
    """Return each judge that asks a model, on a row of all roles. A role that it does not read is
    named."""
    names = {"reference": ("reference",), "passage 1": ("context",), "passage 2": ("context",)}
    places = {}
    for role in ROLES:
        # Judges of passages need no candidates; these stand in the printed results.
        places[role] = Place(word(role), names.get(role, ()), exported=role not in names)
    situations = {}
    for name, recipe in JUDGES.items():
        if recipe.asks and name not in UNTRIED:
            checks = {n: value for n, value in recipe.row.items() if n == "checks"}
            files = {**recipe.files, "rows.jsonl": [{**ROW, **checks}]}
            command = ("evaluate", "rows.jsonl", "--judge", recipe.text, "-m", "MODEL", "--json")
            situations[name] = Situation(run_command(files, *command), places)
    return situations


def message(role: str, text: str) -> dict[str, Any]:
    """Return a message in the form of OpenTelemetry's conventions."""
    return {"role": role, "parts": [{"type": "text", "content": text}]}


PARTS = [
    {"type": "tool_call", "id": "1", "name": word("tool"), "arguments": {"q": word("arguments")}}
]
RESULT = [{"type": "tool_call_response", "id": "1", "result": word("result")}]
INFERENCE = {"gen_ai.operation.name": "chat"}
SPANS: Mapping[str, tuple[Mapping[str, str], Sequence[str]]] = {
    "OpenTelemetry": (
        {
            **INFERENCE,
            "gen_ai.system_instructions": json.dumps(
                [{"type": "text", "content": word("instructions")}]
            ),
            "gen_ai.input.messages": json.dumps(
                [
                    message("user", word("question")),
                    {"role": "assistant", "parts": PARTS},
                    {"role": "tool", "parts": RESULT},
                ]
            ),
            "gen_ai.output.messages": json.dumps([message("assistant", word("reply"))]),
        },
        ("instructions", "question", "tool", "arguments", "result", "reply"),
    ),
    "OpenInference": (
        {
            "openinference.span.kind": "LLM",
            "llm.input_messages.0.message.role": "system",
            "llm.input_messages.0.message.content": word("system"),
            "llm.input_messages.1.message.role": "user",
            "llm.input_messages.1.message.content": word("question"),
            "llm.output_messages.0.message.role": "assistant",
            "llm.output_messages.0.message.content": word("reply"),
        },
        ("system", "question", "reply"),
    ),
    "values": (
        {
            "openinference.span.kind": "CHAIN",
            "input.value": word("input"),
            "output.value": word("output"),
        },
        ("input", "output"),
    ),
    "a tool": (
        {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "look_up",
            "gen_ai.tool.call.arguments": json.dumps({"q": word("arguments")}),
            "gen_ai.tool.call.result": json.dumps({"r": word("result")}),
        },
        ("arguments", "result"),
    ),
    "numbered prompts": (
        {
            **INFERENCE,
            "gen_ai.prompt.0.role": "user",
            "gen_ai.prompt.0.content": word("question"),
            "gen_ai.completion.0.role": "assistant",
            "gen_ai.completion.0.content": word("reply"),
        },
        ("question", "reply"),
    ),
}
"""Spans in the forms of instrumentations, with the places of their texts."""


def list_spans() -> dict[str, Situation]:
    """Return each span, judged by a judge."""
    return {
        name: Situation(judge_attributes(attributes), name_places(*places))
        for name, (attributes, places) in SPANS.items()
    }
