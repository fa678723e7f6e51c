"""The names that people give to columns: which is the input, which the output, and what became of
each over all rows.

Names are compared without regard to case, and spaces, hyphens and underscores are alike.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

from textevolve.errors import InputError
from textevolve.evaluation import empty_default
from textevolve.json_texts import parse_text

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
_LETTERS = ("a", "b")
"""What the two texts of a pair may be called in labelled data."""


@dataclass(frozen=True, slots=True)
class Roles:
    """The columns of a row by role, under their names in the data. Each role lists its best column
    first, except `outputs`, which keep their order. `lists`: columns that may hold several outputs.
    `instruction`: a column whose text precedes the input, as in Alpaca's rows."""

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
    """Return a column's name in the form that is compared: lower case, with underscores for spaces
    and hyphens."""
    return _BREAKS.sub("_", str(name).strip().lower()).strip("_")


@lru_cache(maxsize=256)
def find_roles(columns: tuple[object, ...], *, letters: bool = False) -> Roles:
    """Find what each column holds, by the names of all of them. `letters`: `a` and `b` are outputs
    if no other column is."""
    folded: dict[str, str] = {}
    names = [column for column in columns if isinstance(column, str)]
    for column in names:
        folded.setdefault(fold_name(column), column)
    lists = _named(LISTS, folded)
    outputs = next(filter(None, (_family(stem, folded) for stem in OUTPUTS)), ())
    if letters and not (lists or outputs):
        outputs = _named(_LETTERS, folded)
    answer = folded.get(ANSWER)
    references = _named(REFERENCES, folded)
    if answer is not None and not (lists or outputs):
        outputs = (answer,)
        references = tuple(name for name in references if name != answer)
    both = {"instruction", "input"} <= folded.keys()
    return Roles(
        inputs=_named(INPUTS, folded),
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
    """Return the columns whose names begin with a stem: the stem alone and the numbered ones, by
    number; if there are none, all others."""
    numbered: list[tuple[int, str]] = [(-1, folded[stem])] if stem in folded else []
    members: list[str] = []
    for name, column in folded.items():
        if match := re.fullmatch(rf"{stem}_?(\d+)", name):
            numbered.append((int(match[1]), column))
        elif name.startswith(f"{stem}_") and name.rpartition("_")[2] not in _MEASURES:
            members.append(column)
    return tuple(column for _, column in sorted(numbered)) or tuple(members)


def is_text_column(column: str, *, letters: bool = False) -> bool:
    """Return whether the cells of a column are plain text and must not be parsed as JSON."""
    name = fold_name(column)
    allowed = _LETTERS if letters else ()
    if name in (*INPUTS, *CHATS, *REFERENCES, *CONTEXTS, "id", "text", *allowed):
        return True
    return name not in LISTS and any(re.fullmatch(rf"{stem}(_.*|\d+)?", name) for stem in OUTPUTS)


def join_passages(value: object) -> str:
    """Return a context as one text: a text unchanged; a list of texts, or its JSON, joined with a
    blank line between passages. Blank lines within a listed passage are removed. Empty for other
    values."""
    if isinstance(value, str):
        parsed = parse_text(value)
        joined = "" if isinstance(parsed, str) else join_passages(parsed)
        return joined or (value if value.strip() else "")
    listed = cast("Sequence[object]", value) if isinstance(value, list | tuple) else ()
    texts = [_BLANK.sub("\n", passage.strip()) for passage in listed if isinstance(passage, str)]
    return "\n\n".join(filter(None, texts)) if len(texts) == len(listed) else ""


NAMED = 12
"""Columns whose names are listed in one message."""


@dataclass
class Columns:
    """The roles in which the columns of cases were read, over all rows.

    `header`: the columns of a table, which may be empty in a row. `taken`: the role of each column
    that was read; `unread`: the others that hold something; `references`: those with a reference
    answer.
    """

    header: tuple[str, ...] = ()
    taken: dict[str, str] = empty_default(dict)
    unread: dict[str, None] = empty_default(dict)
    references: dict[str, None] = empty_default(dict)
    has_outputs: bool = False
    _ids: set[int] = empty_default(set)
    _doubles: dict[str, None] = empty_default(dict)
    _answer: str = ""

    def take_header(self, names: Sequence[str]) -> None:
        self.header = tuple(names)

    def find_roles(
        self, row: Mapping[str, Any], where: str, aside: Collection[str], *, letters: bool
    ) -> Roles:
        """Find what the columns of a row hold. `aside`: columns that hold no text.

        Raises:
            InputError: `answer` would be the output of some rows and the reference of others.
        """
        names = dict.fromkeys((*row, *self.header))
        roles = find_roles(tuple(name for name in names if name not in aside), letters=letters)
        answer = next((name for name in row if fold_name(name) == ANSWER), None)
        if answer is not None:
            role = "output" if answer in roles.outputs else "reference"
            if self._answer not in ("", role):
                raise InputError(
                    f"{where}: '{answer}' is the {role} here, and was the {self._answer} in earlier"
                    f" rows; choose with --map output={answer} or --map reference={answer}"
                )
            self._answer = role
        self.has_outputs = self.has_outputs or roles.has_outputs
        return roles

    def note_unread(self, row: Mapping[str, Any], read_names: Iterable[str]) -> None:
        """Note the columns of a row that hold something and were not read."""
        names = set(read_names)
        unread = (str(k) for k, v in row.items() if v not in (None, "") and k not in names)
        self.unread |= dict.fromkeys(unread)

    def note_id(self, id: str) -> None:
        if (digest := hash(id)) in self._ids:
            self._doubles[id] = None
        self._ids.add(digest)

    def line(self) -> str:
        """Describe in one line what each column was read as."""
        roles = [
            list_names([name]) if fold_name(name) == role else f"{list_names([name])} -> {role}"
            for name, role in self.taken.items()
        ]
        unread = f"; unread: {list_names(self.unread)}" if self.unread else ""
        return f"columns: {', '.join(roles)}{unread}"

    def tell(self, *, reference: bool) -> None:
        """Log the role of each column, unless all columns have the names of their roles, and warn
        of unread or doubtful columns. `reference`: whether the judge reads a reference."""
        log = logging.getLogger("textevolve")
        if self.unread:
            message = f"nothing reads these fields of the cases: {list_names(self.unread)}"
            log.warning(message, extra={"shown": self.line()})
        elif any(name != role for name, role in self.taken.items()):
            log.info(self.line(), extra={"shown": self.line()})
        for message in self.warnings(reference=reference):
            log.warning(message)

    def warnings(self, *, reference: bool) -> list[str]:
        warnings: list[str] = []
        if self.references and not reference:
            names = ", ".join(self.references)
            warnings.append(
                f"only judges with a reference, such as --judge reference, read: {names}"
            )
        if self._doubles:
            warnings.append(f"ids that more than one case has: {list_names(self._doubles)}")
        return warnings


def list_names(names: Iterable[object]) -> str:
    """Join the first names of a list into one text, each shortened and on one line."""
    shortened = [" ".join(str(name).split())[:40] for name in names]
    more = f" and {len(shortened) - NAMED} more" if len(shortened) > NAMED else ""
    return ", ".join(shortened[:NAMED]) + more or "no columns"
