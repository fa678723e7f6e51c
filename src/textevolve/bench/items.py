"""Labelled items: inputs with candidates and what people said of them; the sets' formats.

Nothing is fetched here: a set is a file of the user's, which `textevolve.rows` reads. First come
typed fields out of a row, with an error that says what is wrong where; then the items, and each
format as its authors publish it. The figures of judges on items are in `agreement.py`.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar, cast

from textevolve.errors import InputError
from textevolve.rows import Placed, Row, read_rows
from textevolve.texts.chats import read_chat, write_chat
from textevolve.texts.columns import LISTS, find_roles, fold_name, join_passages

V = TypeVar("V")

LABELS = ("winner", "label", "scores", "ranking")
FIRST, SECOND, TIE = (1.0, 0.0), (0.0, 1.0), (0.5, 0.5)

_NUMBERED = re.compile(r"candidate[_ ]?(\d+)$")


def take_text(row: Row, name: str, where: str) -> str:
    """A field that must be there and be text."""
    value = row.get(name)
    if value is None:
        raise InputError(f"{where}: '{name}' is missing")
    return _require_text(value, name, where)


def take_input(row: Row, where: str) -> str:
    """The input, under any of the names that it may have; a chat as text."""
    roles = find_roles(tuple(row))
    named = [name for name in (*roles.inputs, *roles.chats) if row.get(name) is not None]
    if not named:
        return take_text(row, "input", where)
    return _require_text(row[named[0]], named[0], where)


def take_reference(row: Row) -> str | None:
    """The reference answer, under any of its names; None where there is none."""
    values = (row.get(name) for name in find_roles(tuple(row)).references)
    return next((str(value) for value in values if value not in (None, "")), None)


def take_context(row: Row) -> str | None:
    """Return the context of a row, under any of its names; None if it has none."""
    values = (row.get(name) for name in find_roles(tuple(row)).contexts)
    return next((text for value in values if (text := join_passages(value))), None)


def take_name(row: Row, name: str, otherwise: str = "") -> str:
    """An id or the like, as text whatever its type; `otherwise` where there is none."""
    value = row.get(name)
    return otherwise if value is None else str(value)


def choose(row: Row, name: str, where: str, choices: Mapping[str, V]) -> V:
    """Look up the value of a field, as text, in `choices`."""
    value = row.get(name)
    if value is None:
        raise InputError(f"{where}: '{name}' is missing")
    found = None if isinstance(value, bool) else choices.get(str(value))
    if found is None:
        *most, last = choices
        raise InputError(
            f"{where}: '{name}' must be {', '.join(most)} or {last}, not {_cut(value)}"
        )
    return found


def take_mapping(row: Row, name: str, where: str) -> Row:
    value = row.get(name)
    if not isinstance(value, Mapping):
        raise InputError(f"{where}: '{name}' must be an object, not {type(value).__name__}")
    return cast(Row, value)


def take_conversation(row: Row, name: str, turn: int, where: str) -> tuple[str, str]:
    """Return the question and the answer of the first turns of a conversation."""
    messages: object = row.get(name)
    if not isinstance(messages, Sequence) or isinstance(messages, str):
        raise InputError(f"{where}: '{name}' must be a list of messages")
    asked: list[str] = []
    answered: list[str] = []
    for message in cast(Sequence[Any], messages):
        if not isinstance(message, Mapping):
            raise InputError(f"{where}: '{name}' must hold objects with 'role' and 'content'")
        side = choose(cast(Row, message), "role", where, {"user": asked, "assistant": answered})
        side.append(take_text(cast(Row, message), "content", where))
    if min(len(asked), len(answered)) < turn:
        raise InputError(f"{where}: '{name}' has fewer than {turn} turns")
    return _number(asked[:turn]), _number(answered[:turn])


def _number(texts: Sequence[str]) -> str:
    if len(texts) == 1:
        return texts[0]
    return "\n\n".join(f"[Turn {number}]\n{text}" for number, text in enumerate(texts, 1))


def take_candidates(row: Row, where: str) -> tuple[str, ...]:
    """Two texts or more, from `candidates`, or `candidate_1` and so on, or `a` and `b`, or the
    other names that outputs may have."""
    listed: object = row.get("candidates")
    if listed is None:
        texts = _numbered(row, where) or [row[n] for n in ("a", "b") if row.get(n) is not None]
        named = find_roles(tuple(row)).outputs if not texts else ()
        texts = texts or [row[n] for n in named if row.get(n) is not None]
    elif isinstance(listed, Sequence) and not isinstance(listed, str):
        texts = list(cast(Sequence[Any], listed))
    else:
        raise InputError(f"{where}: 'candidates' must be a list of texts")
    if len(texts) < 2:
        raise InputError(f"{where}: needs two candidates or more, not {len(texts)}")
    return tuple(_require_text(text, "candidates", where) for text in texts)


def _numbered(row: Row, where: str) -> list[Any]:
    found = {int(m[1]): row[k] for k in row if (m := _NUMBERED.match(k)) and row[k] is not None}
    for number in range(1, len(found) + 1):
        if number not in found:
            raise InputError(f"{where}: 'candidate_{number}' is missing")
    return [found[number] for number in sorted(found)]


def names_candidates(fields: Collection[str]) -> bool:
    """Return whether the fields hold candidates, in any of the forms that are read."""
    if len(find_roles(tuple(fields)).outputs) > 1:
        return True
    return not {"candidates", "a", "b"}.isdisjoint(fields) or any(map(_NUMBERED.match, fields))


def take_human(row: Row, candidates: int, where: str) -> tuple[float, ...]:
    """A number for each candidate from `winner` (or `label`), `scores` or `ranking`.

    `winner`: a number from 1, a letter from a, or "tie". `ranking`: places, 1 is the best, equal
    ones are ties.
    """
    said = [n for n in LABELS if row.get(n) is not None]
    if len(said) != 1:
        found = " and ".join(f"'{n}'" for n in said) or "none"
        raise InputError(f"{where}: needs one of 'winner', 'scores' and 'ranking'; found {found}")
    if said[0] == "scores":
        return _take_numbers(row, "scores", candidates, where)
    if said[0] == "ranking":
        ranks = _take_numbers(row, "ranking", candidates, where)
        if not all(1 <= rank <= candidates for rank in ranks):
            raise InputError(f"{where}: 'ranking' must hold places from 1 to {candidates}")
        return tuple(-rank for rank in ranks)
    choices = {"tie": (0.5,) * candidates}
    for index in range(candidates):
        won = tuple(float(index == j) for j in range(candidates))
        choices |= dict.fromkeys(_spellings(index), won)
    value = row[said[0]]
    if isinstance(value, bool) or str(value).strip().lower() not in choices:
        raise InputError(
            f"{where}: '{said[0]}' must be a candidate's number from 1 to {candidates}, its letter"
            f" or 'tie', not {_cut(value)}"
        )
    return choices[str(value).strip().lower()]


def _spellings(index: int) -> list[str]:
    letter = [chr(ord("a") + index)] if index < 26 else []
    return [str(index + 1), f"{index + 1}.0", *letter]


def _take_numbers(row: Row, name: str, count: int, where: str) -> tuple[float, ...]:
    value: object = row[name]
    numbers = list(cast(Sequence[Any], value)) if isinstance(value, list | tuple) else []
    if len(numbers) != count:
        raise InputError(f"{where}: '{name}' must be a list of {count} numbers, one a candidate")
    for number in numbers:
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise InputError(f"{where}: '{name}' must hold numbers, not {_cut(number)}")
        if not abs(number) <= sys.float_info.max:  # also of an integer that no float can hold
            raise InputError(f"{where}: '{name}' must hold finite numbers, not {_cut(number)}")
    return tuple(float(number) for number in numbers)


def hash_text(text: str) -> str:
    """Sixteen hexadecimal digits that tell texts apart; white space is all one."""
    plain = " ".join(text.split())
    return hashlib.sha256(plain.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def draw_side(key: str) -> bool:
    """A coin for a key: the same wherever and whenever it is thrown."""
    return bool(hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()[0] & 1)


def _require_text(value: Any, name: str, where: str) -> str:
    """The value, which must be text, or a chat."""
    if (chat := read_chat(value)) is not None:
        return write_chat(chat)
    if not isinstance(value, str):
        raise InputError(f"{where}: '{name}' must be text, not {type(value).__name__}")
    return value


def _cut(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 40 else f"{shown[:37]}..."


@dataclass(frozen=True, slots=True)
class Item:
    """One input, its candidates, and what people said of them.

    `human`: a number for each candidate, higher is better: (1, 0) for a pair whose first text won,
    (0.5, 0.5) for a tie, ratings or negated ranks for more. `group`: items with the same group (the
    question) are not independent; intervals are clustered by it. `subset`: the part of a data set
    it comes from. `reference`: a reference answer where the set has one; `context`: likewise what
    answers must keep to. An item that people did not judge has NaN throughout as `human`.
    """

    id: str
    input: str
    candidates: tuple[str, ...]
    human: tuple[float, ...]
    group: str = ""
    subset: str = ""
    reference: str | None = None
    context: str | None = None

    @property
    def labelled(self) -> bool:
        return not any(map(math.isnan, self.human))


@dataclass(frozen=True, slots=True)
class ItemFormat:
    """A kind of rows: `fields` are those by which it is known, `read` makes an item of a row, its
    place and its number, or several. `votes`: a row is one person's vote, and an item may have
    several."""

    fields: tuple[str, ...]
    read: Callable[[Row, str, str], Item | Iterator[Item]]
    votes: bool = False


def load_items(
    path: str | Path,
    format: str = "auto",
    *,
    unlabelled: bool = False,
    renamed: Mapping[str, str] | None = None,
) -> list[Item]:
    """The labelled items of a file (as `read_rows` has it), in order.

    `format` is a name in `FORMATS`; `auto` knows it by the first row's fields. Votes of several
    people on the same texts are one item with their mean. `unlabelled`: plain rows that nobody
    judged are taken, too. `renamed`: new names of columns with their old ones.

    Raises:
        InputError: the file cannot be read, a row is not of the format, or two have the same id.
    """
    if format != "auto" and format not in FORMATS:
        raise InputError(f"format '{format}': there are auto, {', '.join(FORMATS)}")
    rows = read_rows(str(path), "labelled item", _is_text, renamed)
    return _take_items(rows, format, str(path), _name_of(Path(path)), unlabelled=unlabelled)


def items_of(rows: Iterable[Row], format: str = "auto") -> list[Item]:
    """The labelled items of rows at hand, as `load_items` has those of a file.

    Raises:
        InputError: there is none, a row is not of the format, or two have the same id.
    """
    placed = ((f"row {number}", row) for number, row in enumerate(rows, 1))
    return _take_items(placed, format, "rows", "rows")


def _take_items(
    rows: Iterator[Placed], format: str, source: str, name: str, *, unlabelled: bool = False
) -> list[Item]:
    first = next(rows, None)
    if first is None:
        raise InputError(f"{source}: no labelled items: the input is empty")
    kind = _recognise(*first) if format == "auto" else format
    chosen = _CASES if unlabelled and kind == "plain" else FORMATS[kind]
    placed = _read(chain([first], rows), chosen, name)
    items = list(_merge_votes(placed) if chosen.votes else _refuse_doubles(placed))
    if not items:
        raise InputError(f"{source}: no labelled items: no question has a known answer")
    return items


def read_items(
    paths: Sequence[str],
    format: str = "auto",
    *,
    half: str | None = None,
    limit: int | None = None,
    unlabelled: bool = False,
    renamed: Mapping[str, str] | None = None,
) -> list[Item]:
    """The items of all files: of the half that is asked for (tune or report), the first `limit`.

    Raises:
        InputError: a file cannot be read, two items have one id, or none is left.
    """
    items: list[Item] = []
    source: dict[str, str] = {}
    for path in paths:
        for item in load_items(path, format, unlabelled=unlabelled, renamed=renamed):
            if item.id in source:
                raise InputError(
                    f"{path}: the id '{item.id}' is in {source[item.id]}, too; give each item an"
                    " 'id' of its own (where there is none it is the row's number)"
                )
            source[item.id] = path
            items.append(item)
    if half is not None:
        items = split_items(items)[half == "report"]
    if not items:
        raise InputError(f"no items are left in the half '{half}'")
    return items[:limit]


def split_items(items: Iterable[Item], seed: int = 0) -> tuple[list[Item], list[Item]]:
    """Two halves, one to tune on and one to report on, that share no group.

    A group's side is drawn by a hash of its name, so an item stays on its side however the set is
    cut or ordered, and the halves are only about the same size.
    """
    tune: list[Item] = []
    report: list[Item] = []
    for item in items:
        side = tune if draw_side(f"half {seed}: {question_of(item)}") else report
        side.append(item)
    return tune, report


def question_of(item: Item) -> str:
    """The item's group; for one that has none, a name made from its input."""
    return item.group or hash_text(item.input)


def _recognise(where: str, row: Row) -> str:
    there = {name for name, value in row.items() if value is not None}
    roles = find_roles(tuple(there))
    plain = bool(roles.inputs or roles.chats) and names_candidates(there)
    for name, format in FORMATS.items():
        if plain if name == "plain" else there.issuperset(format.fields):
            return name
    known = "; ".join(f"{name}: {', '.join(form.fields)}" for name, form in FORMATS.items())
    raise InputError(
        f"{where}: of no known format, with the fields {', '.join(sorted(there)) or '(none)'};"
        f" there are {known}, candidates (or candidate_1, ...; or a, b), winner (or label; or"
        " scores; or ranking)"
    )


def _read(rows: Iterable[Placed], format: ItemFormat, name: str) -> Iterator[tuple[str, Item]]:
    for number, (where, row) in enumerate(rows, 1):
        found = format.read(row, where, str(number))
        for item in [found] if isinstance(found, Item) else found:
            if format.read is _llmbar:  # whose rows have neither id nor subset
                item = replace(item, id=f"{name}-{number}", subset=name)
            yield where, item if item.group else replace(item, group=hash_text(item.input))


def _refuse_doubles(found: Iterable[tuple[str, Item]]) -> Iterator[Item]:
    places: dict[str, str] = {}
    for where, item in found:
        if item.id in places:
            raise InputError(f"{where}: the id '{item.id}' is that of {places[item.id]}, too")
        places[item.id] = where
        yield item


def _merge_votes(found: Iterable[tuple[str, Item]]) -> Iterator[Item]:
    """One item for each id, in order of the first vote, with the mean of its votes."""
    votes: dict[str, list[Item]] = {}
    for where, item in found:
        given = votes.setdefault(item.id, [])
        if given and given[0].candidates != item.candidates:
            raise InputError(f"{where}: an earlier vote on {item.id} was about other texts")
        given.append(item)
    for given in votes.values():
        columns = zip(*(item.human for item in given), strict=True)
        yield replace(given[0], human=tuple(sum(column) / len(given) for column in columns))


def _is_text(column: str) -> bool:
    """Cells of a table that are texts; the others are numbers and JSON."""
    typed = ("candidates", "scores", "ranking", "winner", "label", "turn", "response")
    typed += ("question", "expected", "labels")
    listed = fold_name(column) in LISTS
    return column not in typed and not listed and not column.startswith("conversation_")


def _name_of(path: Path) -> str:
    """What a set that says no name is called: by its file, or where that is a `dataset.json`, as
    in LLMBar's own folders, by the folder."""
    return (path.parent.name if path.stem == "dataset" else "") or path.stem


# The formats, each as its authors publish it.


def _llmbar(row: Row, where: str, number: str) -> Item:
    texts = (take_text(row, "output_1", where), take_text(row, "output_2", where))
    human = choose(row, "label", where, {"1": FIRST, "2": SECOND})
    return Item(number, take_text(row, "input", where), texts, human)


def _judgebench(row: Row, where: str, number: str) -> Item:
    source = take_name(row, "source")
    original = take_name(row, "original_id")
    return Item(
        take_name(row, "pair_id", number),
        take_text(row, "question", where),
        (take_text(row, "response_A", where), take_text(row, "response_B", where)),
        choose(row, "label", where, {"A>B": FIRST, "B>A": SECOND, "A=B": TIE}),
        group=f"{source}/{original}" if original else "",
        subset="mmlu-pro" if source.startswith("mmlu-pro") else source,
    )


def _rewardbench(row: Row, where: str, number: str) -> Item:
    subset = take_name(row, "subset")
    id = "/".join(filter(None, (subset, take_name(row, "id", number))))
    chosen, rejected = take_text(row, "chosen", where), take_text(row, "rejected", where)
    texts, human = _place(id, (chosen, rejected), FIRST)
    return Item(id, take_text(row, "prompt", where), texts, human, subset=subset)


def _mt_bench(row: Row, where: str, number: str) -> Item:
    """A vote on two conversations up to a turn. Models are ordered by name, then placed by lot, so
    that votes on the same pair meet whichever model stood first."""
    judge = row.get("judge")
    if str(judge).strip("[\"'").lower().startswith("gpt"):
        raise InputError(f"{where}: the vote of {judge} is a model's; take the people's votes")
    turn = choose(row, "turn", where, {"1": 1, "2": 2})
    vote = choose(row, "winner", where, {"model_a": FIRST, "model_b": SECOND, "tie": TIE})
    names = [take_text(row, "model_a", where), take_text(row, "model_b", where)]
    talks = [take_conversation(row, f"conversation_{side}", turn, where) for side in ("a", "b")]
    if names[0] > names[1]:
        names, talks, vote = names[::-1], talks[::-1], (vote[1], vote[0])
    question = take_name(row, "question_id")
    id = f"{question}/{turn}/{names[0]}/{names[1]}"
    questions, answers = zip(*talks, strict=True)
    texts, human = _place(id, answers, vote)
    return Item(id, questions[0], texts, human, group=question, subset=f"turn {turn}")


NOUL = {"true": "Yes", "false": "No"}
"""The two options of a yes / no question by their names in JevBench's files, and as candidates."""
SPELLINGS = {"true": "Yes", "yes": "Yes", "false": "No", "no": "No"}


def _jevbench(row: Row, where: str, number: str) -> Iterator[Item]:
    """A typed question about a state: the input is the state with the question's instructions after
    it, the candidates are its options, each as "name: description". A question whose answer the set
    does not tell is left out."""
    if row.get("expected") is None:
        return
    question = take_mapping(row, "question", where)
    options = _take_options(question, row.get("labels"), where)
    instructions = _write(question.get("instructions"))
    if not instructions.strip():
        raise InputError(f"{where}: the question's 'instructions' are missing")
    name = str(row["expected"])
    if set(options) == set(NOUL.values()):
        name = SPELLINGS.get(name.lower(), name)
    if name not in options:
        known = f"{', '.join(options):.200}"
        raise InputError(
            f"{where}: the expected answer {row['expected']!r:.40} is none of: {known}"
        )
    yield Item(
        take_name(row, "id", number),
        "\n\n".join(filter(str.strip, (_write(row.get("state")), instructions))),
        tuple(key if text in ("", key) else f"{key}: {text}" for key, text in options.items()),
        tuple(float(option == name) for option in options),
        group=take_name(row, "group") or take_name(row, "id", number),
        subset=take_name(row, "family"),
    )


def _take_options(question: Row, labels: object, where: str) -> dict[str, str]:
    """The options' descriptions by name, in the order of `labels` where a choice has them.

    Raises:
        InputError: there are fewer than two, or the type of the question is unknown.
    """
    kind, criteria = question.get("type"), question.get("criteria")
    by_name = {str(k): v for k, v in _as_mapping(criteria).items()}
    if kind == "noul":
        return {shown: _write(by_name.get(name)) for name, shown in NOUL.items()}
    if kind == "score":
        options = {str(n): text for n, text in enumerate(_as_list(criteria))} or by_name
    elif kind == "choice":
        names = [str(name) for name in _as_list(labels) or by_name or _as_list(criteria)]
        options = {name: by_name.get(name) for name in names}
    else:
        raise InputError(f"{where}: a question's type is noul, choice or score, not {kind!r:.40}")
    if len(options) < 2:
        raise InputError(f"{where}: a question needs two options or more, not {len(options)}")
    return {name: _write(text) for name, text in options.items()}


def _as_mapping(value: object) -> Mapping[Any, Any]:
    return cast(Mapping[Any, Any], value) if isinstance(value, Mapping) else {}


def _as_list(value: object) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _write(value: Any) -> str:
    """A text as it is, nothing as nothing, and a structure as JSON."""
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False, indent=2)


def _case(row: Row, where: str, number: str) -> Item:
    """A plain row, labelled or not."""
    if any(row.get(name) is not None for name in LABELS):
        return _plain(row, where, number)
    places = len(take_candidates(row, where))
    unjudged = _plain({**row, "scores": [0] * places}, where, number)
    return replace(unjudged, human=(math.nan,) * places)


def _plain(row: Row, where: str, number: str) -> Item:
    texts = take_candidates(row, where)
    return Item(
        take_name(row, "id", number),
        take_input(row, where),
        texts,
        take_human(row, len(texts), where),
        group=take_name(row, "group"),
        subset=take_name(row, "subset"),
        reference=take_reference(row),
        context=take_context(row),
    )


FORMATS: Mapping[str, ItemFormat] = {
    "llmbar": ItemFormat(("input", "output_1", "output_2", "label"), _llmbar),
    "mt-bench": ItemFormat(
        ("question_id", "model_a", "model_b", "winner", "conversation_a", "conversation_b", "turn"),
        _mt_bench,
        votes=True,
    ),
    "judgebench": ItemFormat(("question", "response_A", "response_B", "label"), _judgebench),
    "rewardbench": ItemFormat(("prompt", "chosen", "rejected"), _rewardbench),
    "jevbench": ItemFormat(("state", "question", "labels"), _jevbench),
    "plain": ItemFormat(("input",), _plain),
}
_CASES = ItemFormat(("input",), _case)


def _place(
    id: str, texts: tuple[str, str], human: tuple[float, float]
) -> tuple[tuple[str, str], tuple[float, float]]:
    """The two in an order drawn by the id: no place must be the right answer by itself."""
    if draw_side(f"place: {id}"):
        return (texts[1], texts[0]), (human[1], human[0])
    return texts, human
