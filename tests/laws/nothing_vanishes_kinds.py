"""Studies of each kind, with a word in each field of a study file and in each file of theirs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import yaml

from laws.nothing_vanishes_world import Place, Situation, run_study, word
from laws.studies import (
    ADA,
    CHAIN,
    CHECKS,
    FIT_PAIRS,
    HANDBOOK,
    MANY_SUMS,
    PAIRS,
    RECIPES,
    SEA,
    SUMS,
    TEXTS,
    TRACE,
    Recipe,
)

SMALL = "MODEL-small"
"""A second model of the scripted server."""
RUBRIC = f"Is it {word('rubric')}?"
RUBRICS = {"rubric.txt": RUBRIC, "then.txt": f"Is it {word('then')}?"}
PROBE = "probe+rubric=rubric.txt"
"""A judge with a rubric of its own."""
SAMPLED: Mapping[str, Place] = {
    "temperature": Place('"temperature": 0.37'),
    "seed": Place('"seed": 4711'),
    "max_output_tokens": Place('"max_tokens": 777'),
    "max_answer_tokens": Place('"max_tokens": 777'),
}
"""Where numbers stand in requests."""
NUMBERS = {"temperature": 0.37, "seed": 4711}


@dataclass(frozen=True)
class Study:
    """A study with words in its fields and files, and its places, those of fields by their names.

    `after`: a command whose output is looked at, too.
    """

    recipe: Recipe
    places: Mapping[str, Place]
    after: Sequence[str] = ()


def place(name: str) -> Place:
    """Return the place that holds the word of its name."""
    return Place(word(name))


def asks_small() -> Place:
    """Return the place of a field that names the second model."""
    return Place('"model": "scripted-small"')


PROFILE = {
    "name": "mine",
    "agents": [
        {"name": "Reader", "persona": f"You are {word('persona 1')}."},
        {"name": "Writer", "persona": f"You are {word('persona 2')}.", "model": SMALL},
    ],
    "components": [
        {
            "name": "tone",
            "meaning": word("meaning"),
            "rubric": {0: word("lowest"), 10: word("highest")},
            "question": word("question of a component"),
        }
    ],
    "sampling_temperature": 0.37,
    "max_answer_tokens": 777,
    "seed": 4711,
}
PROFILE_PLACES: Mapping[str, Place] = {
    **{name: place(name) for name in ("persona 1", "persona 2", "meaning", "lowest", "highest")},
    "model of an agent": asks_small(),
    "sampling_temperature": SAMPLED["temperature"],
    "max_answer_tokens": SAMPLED["max_answer_tokens"],
    "seed": SAMPLED["seed"],
}


def label_rows(rows: list[dict[str, Any]], **columns: str) -> list[dict[str, Any]]:
    """Return rows of which the first has further columns."""
    return [{**rows[0], **columns}, *rows[1:]]


def changed(kind: str, **fields: Any) -> Recipe:
    """Return the recipe of a kind with other values of its specification."""
    return RECIPES[kind].changed(**fields)


COMPARED = {
    "prompts": [
        {"name": "first", "text": f"{word('prompt 1')} {{n}} {{cell}}"},
        {"name": "second", "messages": [{"role": "user", "content": f"{word('prompt 2')} {{n}}"}]},
    ],
    "system": word("system"),
    "label": "sum",
    "metric": "exact",
    "max_output_tokens": 777,
    **NUMBERS,
}
COMPARED_ROWS = label_rows(SUMS, cell=word("cell"))
COMPARED_PLACES: Mapping[str, Place] = {
    "prompts": place("prompt 1"),
    "a second prompt": place("prompt 2"),
    "system": place("system"),
    "data": place("cell"),
    **{name: SAMPLED[name] for name in ("temperature", "seed", "max_output_tokens")},
}
ITEM = {
    "input": word("items"),
    "candidates": [word("candidate 1"), word("candidate 2")],
    "winner": 1,
    "group": "q9",
    "id": "i90",
}
NEW_PAIR = {
    "id": "i99",
    "input": word("items"),
    "output_1": word("candidate 1"),
    "output_2": word("candidate 2"),
}
ITEMS = [ITEM, *PAIRS[:3]]
ITEM_PLACES: Mapping[str, Place] = {
    "items": place("items"),
    "candidate 1": place("candidate 1"),
    "candidate 2": place("candidate 2"),
}
FACTS = [
    {
        "id": "d1",
        "user": "ann",
        "messages": [
            {"role": "user", "content": f"FACT: Ann has a {word('fact 1')}."},
            {"role": "assistant", "content": f"Noted, {word('remark')}."},
            {"role": "user", "content": f"FACT: Ben has a {word('fact 2')}."},
        ],
    },
    {"id": "d2", "messages": [{"role": "user", "content": f"FACT: Cy has a {word('fact 3')}."}]},
]
FACT_NAMES = ("fact 1", "fact 2", "fact 3")
REMEMBERED: Mapping[str, Place] = {name: place(name) for name in FACT_NAMES}
EXPORT_CHATS = ("memories", "export", "chats", "-")


def kept(text: str) -> Place:
    """Return the place of what the exported memories must hold."""
    return Place(text, exported=True)


PERSONA = f"You are Ada, a nurse. You speak calmly. You know {word('persona')}."


def replace_persona(command: Sequence[str]) -> tuple[str, ...]:
    """Return a command with the persona that holds a word."""
    return tuple(PERSONA if text == ADA else text for text in command)


def with_persona(kind: str) -> Recipe:
    """Return the recipe of a kind that works on an agent, whose persona holds a word."""
    before = RECIPES[kind].before
    commands = [replace_persona(command) for command in before]
    return Recipe(RECIPES[kind].spec, {"dialogues.jsonl": FACTS}, commands)


USER_PARTS = ("first session", "second session", "memory", "question")


def remembered_session(number: int, part: str) -> dict[str, Any]:
    """Return a session of a user, with the words of the user's number."""
    text = f"I have a {word(f'{part} {number}')}."
    time = "Jan 06, 2025, 09:00:00"
    memory = f"The user has a {word(f'memory {number}')}."
    return {
        "start_time": time,
        "end_time": "Jan 06, 2025, 09:09:20",
        "dialogue": [{"role": "user", "content": text, "timestamp": time}],
        "memory_points": [
            {
                "index": 1,
                "memory_content": memory,
                "memory_type": "Persona Memory",
                "memory_source": "primary",
                "is_update": "False",
                "original_memories": [],
                "importance": 0.5,
                "timestamp": time,
            }
        ],
        "questions": [
            {
                "question": f"What is {word(f'question {number}')}?",
                "answer": "A boat.",
                "evidence": [{"memory_content": memory}],
                "difficulty": "easy",
                "question_type": "Basic Fact Recall",
            }
        ],
    }


USERS = [
    {
        "uuid": f"user-{number}",
        "persona_info": f"Name: {name}",
        "sessions": [remembered_session(number, part) for part in USER_PARTS[:2]],
    }
    for number, name in ((1, "Ann Lee"), (2, "Bo Lee"))
]
STEP = {
    "ask": "story",
    "system": word("system"),
    "prompt": f"{word('prompt')} {{n}}",
    "temperature": 0.37,
    "max_tokens": 777,
    "seed": 4711,
    "model": SMALL,
}
"""A step of a chain with every field that its request holds."""

STUDIES: Mapping[str, Study] = {
    "evaluate": Study(
        changed("evaluate", rubric=RUBRIC, seed=4711).with_file(
            "cases.jsonl",
            [{"id": "c1", "input": word("cases"), "candidates": [word("first"), word("last")]}],
        ),
        {
            "cases": place("cases"),
            "first candidate": place("first"),
            "last candidate": place("last"),
            "rubric": place("rubric"),
            "seed": SAMPLED["seed"],
        },
    ),
    "evaluate by a profile": Study(
        Recipe(
            {"cases": "cases.jsonl", "profile": "mine.yaml"},
            {"cases.jsonl": TEXTS[:1], "mine.yaml": yaml.safe_dump(PROFILE)},
        ),
        PROFILE_PLACES,
    ),
    "compare": Study(
        Recipe(
            {"data": "rows.jsonl", "models": ["MODEL", SMALL], "judge": PROBE, **COMPARED},
            {"rows.jsonl": COMPARED_ROWS},
        ),
        {**COMPARED_PLACES, "models": asks_small(), "judge": place("rubric")},
    ),
    "compare columns": Study(
        Recipe(
            {
                "data": "rows.jsonl",
                "outputs": ["before", "after"],
                "label": "sum",
                "input": "asked",
                "context": "source",
                "judge": ["reference", "faithfulness"],
            },
            {
                "rows.jsonl": [
                    {
                        "id": "r1",
                        "asked": word("input"),
                        "source": word("context"),
                        "before": word("before"),
                        "after": word("after"),
                        "sum": word("label"),
                    }
                ]
            },
        ),
        {
            "input": place("input"),
            "context": place("context"),
            "outputs": place("before"),
            "second of the outputs": place("after"),
            "label": place("label"),
        },
    ),
    "compare conversations": Study(
        Recipe(
            {
                "prompts": {"plain": word("prompt 1")},
                "data": "rows.jsonl",
                "user_model": SMALL,
                "judge": "probe",
                "each_turn": "probe",
                "max_turns": 2,
            },
            {
                "rows.jsonl": [
                    {"id": "r1", "turns": [word("turn 1"), word("turn 2"), word("turn 3")]},
                    {
                        "id": "r2",
                        "goal": word("goal"),
                        "persona": word("persona"),
                        "stop": word("stop"),
                    },
                ]
            },
        ),
        {
            "prompts": place("prompt 1"),
            "user_model": asks_small(),
            **{name: place(name) for name in ("turn 1", "turn 2", "turn 3")},
            **{name: place(name) for name in ("goal", "persona", "stop")},
        },
    ),
    "compare-quants": Study(
        Recipe(
            {"original": "MODEL", "quants": [SMALL], "data": "rows.jsonl", **COMPARED},
            {"rows.jsonl": COMPARED_ROWS},
        ),
        {**COMPARED_PLACES, "quants": asks_small()},
    ),
    "calibrate": Study(
        changed("calibrate", max_output_tokens=777, editor=SMALL, **NUMBERS)
        .with_file("template.txt", f"What is {{n}} and {{n}} more? {word('template')} {{cell}}\n")
        .with_file("values.jsonl", [{**row, "cell": word("data")} for row in MANY_SUMS]),
        {
            "template": place("template"),
            "data": place("data"),
            "editor": asks_small(),
            **{name: SAMPLED[name] for name in ("temperature", "seed", "max_output_tokens")},
        },
    ),
    "calibrate by judges": Study(
        RECIPES["calibrate"]
        .with_file("values.jsonl", [{"id": f"r{n}", "n": n} for n in range(20)])
        .changed(metric=None, label=None, judge=PROBE, judge_model=SMALL, second_judge="single"),
        {"judge": place("rubric"), "judge_model": asks_small()},
    ),
    "chain": Study(
        RECIPES["chain"]
        .with_file("twice.yaml", CHAIN.replace("Tell", word("chain")))
        .with_file("rows.jsonl", [{"id": "r1", "n": 4711}]),
        {"chain": place("chain"), "data": Place("4711")},
    ),
    "chain with a full step": Study(
        Recipe(
            {"chain": "full.yaml", "input": {"n": word("input")}},
            {"full.yaml": yaml.safe_dump({"name": "full", "inputs": ["n"], "steps": [STEP]})},
        ),
        {
            **{name: place(name) for name in ("system", "prompt", "input")},
            **{name: SAMPLED[name] for name in ("temperature", "seed")},
            "max_tokens": SAMPLED["max_output_tokens"],
            "model of a step": asks_small(),
        },
    ),
    "agreement": Study(
        changed("agreement", judge=[PROBE, "single"]).with_file("items.jsonl", ITEMS),
        {**ITEM_PLACES, "judge": place("rubric")},
    ),
    "ablation": Study(
        changed("ablation", limit=None, profile="mine.yaml")
        .with_file("items.jsonl", ITEMS[:2])
        .with_file("mine.yaml", yaml.safe_dump(PROFILE)),
        {**ITEM_PLACES, **PROFILE_PLACES},
    ),
    "escalation": Study(
        changed("escalation", first=PROBE, then="probe+rubric=then.txt").with_file(
            "items.jsonl", ITEMS
        ),
        {**ITEM_PLACES, "first": place("rubric"), "then": place("then")},
    ),
    "robustness": Study(
        changed("robustness", judge=PROBE).with_file(
            "checks.yaml",
            CHECKS.replace("Is 0 even?", word("input"), 1)
            .replace("good answer, order 0", word("good"))
            .replace("bad, order 0", word("bad")),
        ),
        {
            "cases": place("input"),
            "judge": place("rubric"),
            "good": place("good"),
            "bad": place("bad"),
        },
    ),
    "fit": Study(
        changed("fit", signals=f"{PROBE},length").with_file(
            "items.jsonl", [*FIT_PAIRS[:-1], {**FIT_PAIRS[0], **NEW_PAIR}]
        ),
        {**ITEM_PLACES, "signals": place("rubric")},
    ),
    "nodes": Study(
        changed("nodes", judge=[PROBE, "single"], input_key="asked", output_key="reply").with_file(
            "trace.jsonl",
            [
                *TRACE,
                {
                    "node": "end",
                    "input": {"asked": word("input")},
                    "output": {"reply": word("output")},
                },
            ],
        ),
        {
            "judge": place("rubric"),
            "input_key": place("input"),
            "output_key": place("output"),
        },
    ),
    "memory-eval": Study(
        changed("memory-eval", answer_model=SMALL, judge="jury+rubric=rubric.txt"),
        {"answer_model": asks_small(), "judge": place("rubric")},
    ),
    "memory-eval of two users": Study(
        RECIPES["memory-eval"].with_file("data.jsonl", USERS),
        {f"{part} of user {n}": place(f"{part} {n}") for n in (1, 2) for part in USER_PARTS},
    ),
    "rates": Study(
        RECIPES["rates"],
        {"judged": kept('"texts": 14'), "labelled": kept('"labelled": 16')},
    ),
    "optimize": Study(
        changed(
            "optimize",
            task=word("task"),
            judge=PROBE,
            second_judge="single",
            **{"judge_model": SMALL, "max_answer_tokens": 777, **NUMBERS},
        ),
        {
            "task": place("task"),
            "judge": place("rubric"),
            "judge_model": asks_small(),
            **{name: SAMPLED[name] for name in ("temperature", "seed", "max_answer_tokens")},
        },
    ),
    "innovate": Study(
        changed(
            "innovate",
            input=word("input"),
            judge=PROBE,
            judge_model=SMALL,
            **{"max_answer_tokens": 777, **NUMBERS},
        ),
        {
            "input": place("input"),
            "judge": place("rubric"),
            "judge_model": asks_small(),
            **{name: SAMPLED[name] for name in ("temperature", "max_answer_tokens")},
        },
    ),
    "guide": Study(
        changed(
            "guide",
            question=word("question"),
            profile="mine.yaml",
            candidates=[word("candidate 1"), word("candidate 2"), word("candidate 3")],
            max_answer_tokens=776,
            temperature=0.36,
            seed=4712,
        ).with_file("mine.yaml", yaml.safe_dump(PROFILE)),
        {
            **PROFILE_PLACES,
            "question": place("question"),
            "candidates": place("candidate 1"),
            "second of the candidates": place("candidate 2"),
            "third of the candidates": place("candidate 3"),
            "temperature": Place('"temperature": 0.36'),
            "max_answer_tokens": Place('"max_tokens": 776'),
            "seed": Place('"seed": 4712'),
        },
    ),
    "guide with proposals": Study(
        Recipe({"question": word("question"), "proposals": 2, "proposal_temperature": 0.37}),
        {"question": place("question"), "proposal_temperature": SAMPLED["temperature"]},
    ),
    "profile": Study(
        changed("profile", subject=word("subject"), agents=7, seed=4711),
        {"subject": place("subject"), "agents": Place("7 "), "seed": SAMPLED["seed"]},
    ),
    "summarize": Study(
        changed("summarize", files=["a.txt", "b.txt", "c.txt"], focus=word("focus"), seed=4711)
        .with_file("a.txt", f"{SEA}\n\n{word('first text')}\n\n{SEA}")
        .with_file("b.txt", f"{word('second text')}\n{SEA}")
        .with_file("c.txt", f"{SEA}\n{word('third text')}"),
        {
            **{name: place(name) for name in ("first text", "second text", "third text")},
            "focus": place("focus"),
            "seed": SAMPLED["seed"],
        },
    ),
    "create-memories": Study(
        changed(
            "create-memories",
            about=word("about"),
            focus=word("focus"),
            seed=4711,
            trust_user=0.21,
        ).with_file("dialogues.jsonl", FACTS),
        {
            **{name: place(name) for name in ("about", "focus", "remark")},
            **{f"{name} as a memory": kept(f"a {word(name)}.") for name in FACT_NAMES},
            "seed": SAMPLED["seed"],
            "trust_user": kept('"trust": 0.21'),
        },
        EXPORT_CHATS,
    ),
    "integrate-memories": Study(
        with_persona("integrate-memories").changed(seed=4711),
        {**REMEMBERED, "seed": SAMPLED["seed"]},
    ),
    "read-corpus": Study(
        RECIPES["read-corpus"]
        .changed(files=["a.md", "b.txt"], trust=0.22, importance=0.93)
        .with_file("a.md", f"{HANDBOOK}\n{word('first file')}\n\n# {word('heading')}\n\nSo.\n")
        .with_file("b.txt", f"{word('second file')}\n"),
        {
            **{name: kept(word(name)) for name in ("first file", "second file", "heading")},
            "trust": kept('"trust": 0.22'),
            "importance": kept('"importance": 0.93'),
        },
        ("memories", "export", "docs", "-"),
    ),
    "evolve-persona": Study(
        with_persona("evolve-persona").changed(seed=4711),
        {**REMEMBERED, "agent": place("persona"), "seed": SAMPLED["seed"]},
    ),
}
"""Small runs of each kind of study, whose places are found in requests or in what is printed."""


def list_studies() -> dict[str, Situation]:
    """Return each study with its places."""
    situations = {}
    for name, study in STUDIES.items():
        files = {**RUBRICS, **study.recipe.files}
        recipe = replace(study.recipe, files=files)
        run = run_study(name.split()[0], recipe, "--json", after=study.after)
        situations[name] = Situation(run, study.places)
    return situations
