"""What the columns of people's data are called, and which is the input, which the output.

Names are compared without regard to case, and spaces, hyphens and underscores are alike. What the
values must be is the business of whoever reads rows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

INPUTS = ("input", "prompt", "question", "instruction", "query", "user_input")
CHATS = ("messages", "conversation", "conversations", "chat")
LISTS = ("candidates", "outputs", "responses", "completions")
OUTPUTS = ("candidate", "output", "actual_output", "response", "completion")
"""Of several families the first counts. A family is the name itself and its numbered ones, or else
all that begin with it, such as output_gpt and output_llama."""
ANSWER = "answer"
"""The output where nothing else is one, and the reference beside another output."""
REFERENCES = (
    "reference",
    "expected",
    "ideal",
    "target",
    "gold",
    "ground_truth",
    "reference_answer",
    "expected_output",
    ANSWER,
)
"""Of several the first that holds something counts."""
IMAGES, CANDIDATE_IMAGES = "images", "candidate_images"
"""Columns with images, where no other is named: those of the input, and of the candidates."""
CONTEXTS = ("context", "contexts", "retrieved_contexts", "retrieval_context")

_MEASURES = (
    "tokens",
    "cost",
    "time",
    "seconds",
    "latency",
    "length",
    "count",
    "date",
    "logprobs",
    "id",
    "name",
    "label",
    "model",
    "type",
    "format",
    "schema",
    "score",
    "scores",
    "images",
)
"""Endings of columns that are about an output and hold none, as in output_tokens."""
_BLANK = re.compile(r"\n\s*\n")
_BREAKS = re.compile(r"[\s_-]+")
_CHAIN_INPUT, _CHAIN_OUTPUT = "input.", "output."
"""How columns begin that `run chains run` exports; behind it stands the name of the value."""
_COMPARED, _GUIDED = {"variant", "input", "text"}, {"answer", "text", "failure", "feedback"}
"""Columns of our exports of comparisons and of guided answers, in which `text` is the output."""


@dataclass(frozen=True, slots=True)
class Roles:
    """Columns by what they hold, as their names stand in the data; best first, outputs in order.
    `lists`: each may hold several outputs. `instruction`: stands before the input, as in Alpaca's
    rows."""

    inputs: tuple[str, ...]
    chats: tuple[str, ...]
    lists: tuple[str, ...]
    outputs: tuple[str, ...]
    references: tuple[str, ...]
    contexts: tuple[str, ...]
    ids: tuple[str, ...]
    instruction: str = ""

    @property
    def has_outputs(self) -> bool:
        return bool(self.lists or self.outputs)


def fold_name(name: object) -> str:
    """A column's name as names are compared."""
    return _BREAKS.sub("_", str(name).strip().lower()).strip("_")


@lru_cache(maxsize=256)
def find_roles(columns: tuple[object, ...]) -> Roles:
    """What each column holds, by the names of all of them."""
    folded: dict[str, str] = {}
    named = [column for column in columns if isinstance(column, str)]
    for column in named:
        folded.setdefault(fold_name(column.removeprefix(_CHAIN_INPUT)), column)
    if folded.keys() >= _COMPARED or folded.keys() >= _GUIDED:
        folded["output"] = folded["text"]
        folded.pop(ANSWER, None)
    lists = _named(LISTS, folded)
    outputs = tuple(name for name in named if name.startswith(_CHAIN_OUTPUT))
    outputs = outputs or next(filter(None, (_family(stem, folded) for stem in OUTPUTS)), ())
    answer = folded.get(ANSWER)
    references = _named(REFERENCES, folded)
    if answer is not None and not (lists or outputs):
        outputs = (answer,)
        references = tuple(name for name in references if name != answer)
    both = {"instruction", "input"} <= folded.keys()
    return Roles(
        inputs=_named(INPUTS, folded)
        or tuple(name for name in named if name.startswith(_CHAIN_INPUT)),
        chats=_named(CHATS, folded),
        lists=lists,
        outputs=outputs,
        references=references,
        contexts=_named(CONTEXTS, folded),
        ids=_named(("id",), folded),
        instruction=folded["instruction"] if both else "",
    )


def _named(names: Iterable[str], folded: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(folded[name] for name in names if name in folded)


def _family(stem: str, folded: Mapping[str, str]) -> tuple[str, ...]:
    """The columns of a family: the bare one and those with numbers, by number; else all others."""
    numbered: list[tuple[int, str]] = [(-1, folded[stem])] if stem in folded else []
    others: list[str] = []
    for name, column in folded.items():
        if found := re.fullmatch(rf"{stem}_?(\d+)", name):
            numbered.append((int(found[1]), column))
        elif name.startswith(f"{stem}_") and name.rpartition("_")[2] not in _MEASURES:
            others.append(column)
    return tuple(column for _, column in sorted(numbered)) or tuple(others)


def is_text_column(column: str) -> bool:
    """Whether a cell of a table is to be read as it stands, and not as JSON."""
    name = fold_name(column)
    if name in (*INPUTS, *CHATS, *REFERENCES, *CONTEXTS, "id", "text"):
        return True
    if column.startswith((_CHAIN_INPUT, _CHAIN_OUTPUT)):
        return True
    return name not in LISTS and any(re.fullmatch(rf"{stem}(_.*|\d+)?", name) for stem in OUTPUTS)


def join_passages(value: object) -> str:
    """A context as one text: a text as it is, of a list of texts, or of its JSON, the passages with
    a blank line between them, so that one that has such lines loses them; else empty."""
    if isinstance(value, str):
        try:
            found: object = json.loads(value) if value.lstrip().startswith("[") else None
        except (ValueError, RecursionError):
            found = None
        return join_passages(found) or (value if value.strip() else "")
    listed = cast("Sequence[object]", value) if isinstance(value, list | tuple) else ()
    texts = [_BLANK.sub("\n", one.strip()) for one in listed if isinstance(one, str)]
    return "\n\n".join(filter(None, texts)) if len(texts) == len(listed) else ""
