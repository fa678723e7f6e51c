"""Labelled items: inputs with candidates and people's labels, read from the files of several data
sets.

Nothing is downloaded; a data set is a file of the user's. A plain row is a case (`rows.cases`) with
a label; the other formats are those in which the sets are published. An item with a single
candidate is a single response, which people passed or failed. `agreement.py` has the figures of
judges on items.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from textevolve.bench.labels import ANNOTATOR, LABEL, SHOWN, LabelReading, person_of, read_good
from textevolve.errors import InputError
from textevolve.evaluation import GROUP, Case
from textevolve.json_texts import is_array, is_object, parse_printed, parse_text
from textevolve.ledger import log
from textevolve.loading import np
from textevolve.mappings import map_values
from textevolve.report import wording
from textevolve.rows import Placed, Row, place_rows, read_rows
from textevolve.rows.cases import RowReading, cases_of_row
from textevolve.rows.chats import Chat, read_chat, read_texts, read_transcript, text_of, write_chat
from textevolve.rows.columns import LISTS, Columns, find_roles, fold_name, list_names
from textevolve.statistics.intervals import TIE, Array, Numbers, paired, vector
from textevolve.texts.prose import join_lines

WINNER = "winner"
PREFERENCE = "preference"
LABELS = (WINNER, LABEL, PREFERENCE, "scores")  # the columns that may hold the label of a pair
_OUTCOME = re.compile(rf"{WINNER}_(.+)")
_NUMBERED = re.compile(r"candidate[_ ]?(\d+)$")
_NUMBERS = TypeAdapter(list[Annotated[float, Field(strict=True, allow_inf_nan=False)]])


@dataclass(frozen=True, slots=True)
class Item:
    """An input with its candidates and people's labels.

    Attributes:
        human: A number for each candidate; the higher, the better: (1, 0) for a pair whose first
            text won, (0.5, 0.5) for a tie. For a single response it is the share of people who
            passed it. All are NaN if no one judged the item.
        group: The question; by default a hash of the input. Items of the same group are not
            independent, so intervals are clustered by it.
        subset: The part of a data set that the item belongs to.
        reference: The reference answer, if there is one.
        context: The text that answers must be faithful to, if there is one.
        labels: For a single response with several annotators, their labels by name: 1 for a pass, 0
            for a failure.
        stratum: The name of the stratum that the item was drawn from, and the number of its items,
            most of them without a label; None if all items were equally likely.
    """

    id: str
    input: str
    candidates: tuple[str, ...]
    human: tuple[float, ...]
    group: str = ""
    subset: str = ""
    reference: str | None = None
    context: str | None = None
    labels: tuple[tuple[str, float], ...] = ()
    stratum: tuple[str, int] | None = None

    def __post_init__(self) -> None:
        """Make items with the same input, apart from white space, a group if they name none."""
        if not self.group:
            words = join_lines(self.input).encode("utf-8", "surrogatepass")
            object.__setattr__(self, "group", hashlib.sha256(words).hexdigest()[:16])

    @property
    def is_single(self) -> bool:
        return len(self.candidates) == 1

    @property
    def labelled(self) -> bool:
        return not any(map(math.isnan, self.human))


def load_items(
    path: str | Path,
    renamed: Mapping[str, str] | None = None,
    good: str | None = None,
    places: dict[str, str] | None = None,
) -> list[Item]:
    """Read the labelled items of a file in their order. The fields of the first row decide on the
    format of all. Single responses without a label are left out.

    `renamed`: the column's name in the file for each name that it gets. `good`: for single
    responses the labels that mean good, separated by commas, or the grade from which a response is
    good. `places`: the ids in files that were read before, each with its position; new ids are
    added.

    Raises:
        InputError: the file cannot be read, a row is not in the format, or two have the same id.
    """
    return _load_all([str(path)], renamed, good, {} if places is None else places)


def _load_all(
    paths: Sequence[str],
    renamed: Mapping[str, str] | None,
    good: str | None,
    places: dict[str, str],
) -> list[Item]:
    """Read the labelled items of files whose grades are of one scale."""
    reading = open_reading(", ".join(paths), renamed or {}, good)
    items: list[Item] = []
    for path in paths:
        rows = read_rows(path, "labelled item", _is_text, renamed)
        items += _read_items(rows, path, reading, places)

    return _grade(items, reading)


def items_of(rows: Iterable[Row], good: str | None = None) -> list[Item]:
    """Convert rows in memory to labelled items, as `load_items` does for the rows of a file.

    Raises:
        InputError: there are no items, a row is not in the format, or two have the same id.
    """
    reading = open_reading("rows", {}, good)
    return _grade(_read_items(place_rows(rows), reading.path, reading, {}), reading)


def open_reading(path: str, renamed: Mapping[str, str], good: str | None) -> LabelReading:
    least, words = read_good(good)
    return LabelReading(path, renamed, least, words)


def _read_items(
    rows: Iterator[Placed], path: str, labels: LabelReading, places: dict[str, str]
) -> list[Item]:
    """Read the items of one file; the labels of single responses are not yet graded."""
    first_row = next(rows, None)
    if first_row is None:
        raise InputError(f"{path}: no labelled items: the input is empty")
    reader = _recognise(*first_row)
    columns = Columns()
    items: dict[str, Item] = {}

    for number, (where, row) in enumerate(chain([first_row], rows), 1):
        item = reader(_ItemRow(row, where, str(number), columns, labels))
        if item is None:
            continue
        if item.id in places:
            raise InputError(
                f"{where}: the id '{item.id}' is also used in {places[item.id]}; give each item"
                " its own 'id' (default: the number of the row)"
            )

        places[item.id] = where
        items[item.id] = item

    if not items:
        raise InputError(f"{path}: no labelled items: no row has a label or an expected answer")

    for name in columns.taken:
        columns.unread.pop(name, None)
    # Whether a judge reads the references is not known here.
    columns.tell(reference=True)

    return list(items.values())


def _grade(items: Collection[Item], reading: LabelReading) -> list[Item]:
    """Convert the labels of single responses to 1 (good) and 0, and compute the share of people who
    pass them. Log how the labels of all items were read."""
    # A scale is known only when all files are read: one of them may lack the lowest grades.
    reading.require_meaning()
    if reading.grades:
        reading.report()
    if several := [item for item in items if not item.labels]:
        report_winners(several)

    graded: list[Item] = []
    for item in items:
        if not item.labels:
            graded.append(item)
            continue
        labels = tuple((name, float(reading.passes(grade))) for name, grade in item.labels)
        share = sum(passed for _, passed in labels) / len(labels)
        graded.append(replace(item, human=(share,), labels=labels if len(labels) > 1 else ()))

    return graded


def report_winners(items: Collection[Item]) -> None:
    """Log how often people prefer which candidate, and how many items have no label."""
    winners = Counter(winner_of(item.human) for item in items if item.labelled)
    shares = [f"candidate {place + 1} wins {winners[place]}" for place in sorted(winners)[:SHOWN]]
    line = f"labels: {', '.join(shares)} of {wording.count(winners.total(), 'item')}"
    line = line.replace(f"candidate {TIED + 1} wins", "ties in")
    if missing := len(items) - winners.total():
        line += f"; {missing} without a label"

    log.info(line, extra={"shown": line})


def read_items(
    paths: Sequence[str],
    *,
    half: str | None = None,
    limit: int | None = None,
    renamed: Mapping[str, str] | None = None,
    good: str | None = None,
) -> list[Item]:
    """Read the labelled items of all files; keep only one half of them (tune or report), and the
    first `limit` items, if these options are set.

    Raises:
        InputError: a file cannot be read, two items have the same id, or none is left.
    """
    items = _load_all(paths, renamed, good, {})
    if len({item.is_single for item in items}) > 1:
        raise InputError(
            "some files have one response in a row, others several; give them to separate commands"
        )

    if half is not None:
        tune, report = split_items(items)
        items = report if half == "report" else tune
    if not items:
        raise InputError(f"no items are in the half '{half}'; give more items, or leave out --half")

    return items[:limit]


def split_items(items: Iterable[Item], seed: int = 0) -> tuple[list[Item], list[Item]]:
    """Split items into two halves that share no group: one to tune on, and one to report on.

    A hash of the group's name decides on its half, so that an item stays in its half however the
    data set is cut or ordered; the halves are only about equal in size.
    """
    tune: list[Item] = []
    report: list[Item] = []
    for item in items:
        side = tune if draw_side(f"half {seed}: {item.group}") else report
        side.append(item)

    return tune, report


def draw_side(key: str) -> bool:
    """Return a pseudo-random True or False that depends only on the key."""
    return bool(hash_text(key)[0] & 1)


def hash_text(text: str) -> bytes:
    """Return the SHA-256 hash of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


@dataclass(frozen=True, slots=True)
class _ItemRow:
    """A row that is read as an item: its position, its number, how the columns of the file were
    read so far, and how its labels are read."""

    row: Row
    where: str
    number: str
    columns: Columns
    labels: LabelReading

    def take_name(self, name: str, default: str = "") -> str:
        """Return a field such as an id as text, of any type; `default` if it is missing."""
        value = self.row.get(name)
        if value is None:
            return default
        self.columns.taken[name] = name
        return str(value)


def _recognise(where: str, row: Row) -> Callable[[_ItemRow], Item | None]:
    """Return the reader for the format of a row."""
    filled = {name for name, value in row.items() if value is not None}
    roles = find_roles(tuple(filled), letters=True)
    for fields, reader in FORMATS.items():
        if filled.issuperset(fields):
            return reader
    if (roles.inputs or roles.chats) and (roles.lists or roles.outputs[1:]):
        return _read_plain
    if roles.outputs or roles.chats:
        return _read_single
    raise InputError(
        f"{where}: the row is not labelled data of a known format. Its fields are:"
        f" {', '.join(sorted(filled)) or '(none)'}. Known formats have:"
        f" {'; '.join(map(', '.join, FORMATS))}; input, candidates (or"
        f" candidate_1, ...; or a, b), winner (or label; or scores); input, output, {LABEL} (or"
        f" {ANNOTATOR}NAME of each annotator)"
    )


def _is_text(column: str) -> bool:
    """Tell whether a table column holds texts; all other columns are read as numbers or JSON."""
    return column not in ("candidates", "scores", "labels") and fold_name(column) not in LISTS


# Fields of a row, with an error that says what is wrong where.


def take_text(row: Row, name: str, where: str) -> str:
    """Return a required field of a row as text; a chat is written out as text."""
    value = row.get(name)
    if value is None:
        raise InputError(f"{where}: '{name}' is missing")
    return text_of(value, name, where)


def take_human(row: Row, candidates: int, where: str) -> tuple[float, ...]:
    """Return a number for each candidate, read from `winner` (or `label`), `preference`, `scores`,
    or a column for each outcome.

    `winner`: a number from 1, a letter from a (also as in "A>B" and "model_a"), or "tie".
    """
    row = {**read_one_hot(row, candidates), **row}
    labels = [name for name in LABELS if row.get(name) is not None]
    if len(labels) != 1:
        present = " and ".join(f"'{name}'" for name in labels) or "none"
        raise InputError(f"{where}: needs one of {', '.join(LABELS)}; it has {present}")
    (name,) = labels
    value = row[name]

    if name == PREFERENCE:
        return _read_preference_number(value, candidates, where)
    if name in (WINNER, LABEL):
        return _read_winner(value, name, candidates, where)

    try:
        numbers = _NUMBERS.validate_python(parse_printed(value))
    except (ValidationError, OverflowError):
        numbers = []

    if len(numbers) != candidates:
        raise InputError(
            f"{where}: '{name}' must be a list of {candidates} finite numbers, one for each"
            f" candidate, not {value!r:.40}"
        )

    return tuple(numbers)


_TIES = re.compile(r"tie\b.*|both|neither|same|equal|draw", re.IGNORECASE)
_FRACTION = re.compile(r"[12]\.\d+")
_SIDE = re.compile(r"(?:model|response|output|candidate|assistant|answer|text)?[_ -]?([a-z]|\d+)")


def _read_winner(value: object, name: str, candidates: int, where: str) -> tuple[float, ...]:
    """Read the winner in one of its spellings: 2, `b`, `model_b`, `B>A`, `tie`, `tie (bothbad)`."""
    # A whole number may have been made a float.
    text = "" if isinstance(value, bool) else str(value).removesuffix(".0").strip().lower()
    if _TIES.fullmatch(text) or text == "a=b":
        return (0.5,) * candidates

    if _FRACTION.fullmatch(text):
        return _read_preference_number(value, candidates, where)

    side = _SIDE.fullmatch(text.replace(">>", ">").partition(">")[0].strip())
    place = -1
    if side is not None:
        place = int(side[1]) - 1 if side[1].isdecimal() else ord(side[1]) - ord("a")
    if not 0 <= place < candidates:
        raise InputError(
            f"{where}: '{name}' must be a candidate's number from 1 to {candidates}, its letter"
            f" or 'tie', not {value!r:.40}"
        )

    return tuple(float(place == other) for other in range(candidates))


def _read_preference_number(value: object, candidates: int, where: str) -> tuple[float, ...]:
    """Read a preference as AlpacaEval writes it: from 1 (the first of two texts is better) over 1.5
    (a tie) to 2 (the second is)."""
    try:
        number = math.nan if isinstance(value, bool) else float(str(value))
    except ValueError:
        number = math.nan
    if candidates != 2 or not 1 <= number <= 2:
        raise InputError(
            f"{where}: '{PREFERENCE}' must be a number from 1 (the first of two texts is better) to"
            f" 2 (the second is), not {value!r:.40}"
        )

    return (2 - number, number - 1)


def read_one_hot(row: Row, candidates: int) -> dict[str, str]:
    """Return the winner of a row that has a column for each outcome, such as `winner_model_a`,
    `winner_model_b` and `winner_tie`, with 1 in the one that is true; nothing for other rows, and
    for one in which no outcome or several are true."""
    outcomes = {
        match[1]: str(row[name]).strip().lower() in ("1", "1.0", "true")
        for name in row
        if (match := _OUTCOME.fullmatch(fold_name(name))) and row[name] is not None
    }
    winners = [outcome for outcome, is_true in outcomes.items() if is_true]
    if len(outcomes) < candidates or len(winners) != 1:
        return {}

    return {WINNER: winners[0]}


# The formats, each as its authors publish it.

_READING = RowReading(images=False, letters=True)


def _read_plain(source: _ItemRow) -> Item:
    row = source.row
    where = source.where
    (case,) = cases_of_row(row, where, source.columns, _READING, source.number)
    filled = (_NUMBERED.match(name) for name, value in row.items() if value is not None)
    numbers = {int(match[1]) for match in filled if match}
    if missing := set(range(1, len(numbers) + 1)) - numbers:
        raise InputError(f"{where}: 'candidate_{min(missing)}' is missing")
    if len(case.candidates) < 2:
        raise InputError(f"{where}: needs two candidates or more, not {len(case.candidates)}")
    human = take_human(row, len(case.candidates), where)
    source.columns.taken |= {name: "label" for name in LABELS if row.get(name) is not None}

    return _make_item(source, case, human)


def _make_item(source: _ItemRow, case: Case, human: tuple[float, ...]) -> Item:
    # Repeats of one item are items of one group.
    is_repeat = source.columns.has_repeats(case.id)
    group = case.parameters.get(GROUP, case.id if is_repeat else "")
    return Item(
        f"{case.id}/{source.number}" if is_repeat else case.id,
        case.input,
        case.candidates,
        human,
        group,
        source.take_name("subset"),
        case.reference,
        case.context,
        stratum=_read_stratum(source),
    )


def _read_stratum(source: _ItemRow) -> tuple[str, int] | None:
    """Return the stratum that an item was drawn from, as `labels export` writes it."""
    name = source.take_name("stratum")
    text = source.take_name("stratum_size")
    if not name or not text:
        return None
    size = text.removesuffix(".0")
    if not size.isdecimal() or not int(size):
        raise InputError(f"{source.where}: 'stratum_size' must be a whole number, not {text!r:.40}")

    return name, int(size)


def _read_single(source: _ItemRow) -> Item | None:
    """Read a single response with its labels, not yet graded; None if it has none."""
    row = source.row
    where = source.where
    labels = source.labels.take(row, where)
    if not labels:
        return None
    place = row.get("candidate") if "output" in row else None
    if isinstance(place, int):  # of an exported labelling task: the number of the text in its case
        row = {n: f"{value}.{place}" if n == "id" else value for n, value in row.items()}
        del row["candidate"]
    (case,) = cases_of_row(row, where, source.columns, _READING, source.number)
    if len(case.candidates) != 1:
        raise InputError(
            f"{where}: a row with a label needs exactly one output, not {len(case.candidates)}"
        )

    source.columns.taken |= dict.fromkeys(labels, LABEL)
    item = _make_item(source, case, (math.nan,))
    grades = [(person_of(name), grade) for name, grade in labels.items()]

    return replace(item, labels=tuple(grades))


CHOSEN = "chosen"
REJECTED = "rejected"


def _read_preference(source: _ItemRow) -> Item:
    """Read a row of preference data: one text or several that people chose, and those that they
    rejected, as RewardBench, UltraFeedback or HH have them. They come in an order drawn by the
    row's id, since the right answer must not always be in the same place.

    Raises:
        InputError: a text is missing, or nothing says to what both answer.
    """
    where = source.where
    subset = source.take_name("subset")
    id = "/".join(filter(None, (subset, source.take_name("id", source.number))))
    chosen = _list_texts(source, CHOSEN)
    rejected = _list_texts(source, REJECTED)
    prompt = _take_prompt(source)
    input, texts = split_beginning([*chosen, *rejected], prompt)
    if not input:
        raise InputError(
            f"{where}: '{CHOSEN}' and '{REJECTED}' have no common beginning, and no column has the"
            f" input; name it with --map prompt=COLUMN; saw {list_names(source.row)}"
        )

    human = (1.0,) * len(chosen) + (0.0,) * len(rejected)
    order = list(range(len(texts)))
    if len(order) > 2:
        order.sort(key=lambda place: hash_text(f"place {place}: {id}"))
    elif draw_side(f"place: {id}"):
        order.reverse()

    return Item(
        id,
        input,
        tuple(texts[place] for place in order),
        tuple(human[place] for place in order),
        subset=subset,
    )


def _list_texts(source: _ItemRow, name: str) -> list[str | Chat]:
    """Return the texts of a column, each as a chat if it is one: one text, or a list of texts."""
    source.columns.taken[name] = f"{name} text"
    texts = read_texts(source.row.get(name))
    if texts:
        return [read_transcript(text) or text for text in texts]

    value = source.row.get(name)
    chat = read_chat(value) or (read_transcript(value) if isinstance(value, str) else None)
    return [chat or take_text(source.row, name, source.where)]


def _take_prompt(source: _ItemRow) -> str:
    """Return the input that a row of preference data names beside its texts; empty without one."""
    for name in find_roles(tuple(source.row)).inputs:
        value = source.row.get(name)
        if value is None:
            continue
        source.columns.taken[name] = "input"
        transcript = read_transcript(value) if isinstance(value, str) else None
        if transcript is None:
            return take_text(source.row, name, source.where)
        # A prompt ends with the name of the speaker whose turn it is.
        return write_chat(transcript if transcript[-1].text else transcript[:-1])

    return ""


def split_beginning(texts: Sequence[str | Chat], prompt: str) -> tuple[str, list[str]]:
    """Split the texts of a row into their common input and the rest of each. Chats may begin with
    the turns that they answer, and texts with the prompt. The input is empty if there is none."""
    chats = [text for text in texts if not isinstance(text, str)]
    if len(chats) < len(texts):
        written = [text if isinstance(text, str) else write_chat(text) for text in texts]
        if prompt and all(text.startswith(prompt) and text != prompt for text in written):
            written = [text.removeprefix(prompt).lstrip() for text in written]
        return prompt, written

    # Each text keeps at least its last turn, also if all texts are equal.
    shortest = min(map(len, chats)) - 1
    common = 0
    while common < shortest and len({chat[common] for chat in chats}) == 1:
        common += 1

    input = write_chat(chats[0][:common])
    # The turns may repeat the prompt, with other white space.
    if join_lines(prompt) not in join_lines(input):
        input = "\n\n".join(filter(None, (prompt, input)))

    return input, [write_chat(chat[common:]) for chat in chats]


NOUL = {"true": "Yes", "false": "No"}
"""The two options of a yes/no question: by their names in JevBench's files, and as candidates."""


def _read_jevbench(source: _ItemRow) -> Item | None:
    """Read a typed question of JevBench about a state. The input is the state followed by the
    question's instructions; the candidates are the options, each as "name: description". Return
    None if the data set does not contain the answer."""
    row = source.row
    where = source.where
    if row.get("expected") is None:
        return None
    source.columns.taken |= dict.fromkeys(("state", "question", "labels"), "input and candidates")
    source.columns.taken["expected"] = LABEL
    question: Any = parse_text(row["question"])  # a cell of a table has it as JSON
    if not is_object(question):
        raise InputError(f"{where}: 'question' must be an object, not {type(question).__name__}")
    options = _describe_options(question.get("type"), question.get("criteria"), row["labels"])
    name = str(row["expected"])
    if question.get("type") == "noul":
        name = NOUL.get(name.lower(), name.capitalize())
    if name not in options or len(options) < 2:
        listing = f"{', '.join(options):.200}"
        raise InputError(
            f"{where}: the expected answer {row['expected']!r:.40} is none of: {listing}"
        )

    id = source.take_name("id", source.number)
    texts = (_write(row["state"]), _write(question.get("instructions")))

    return Item(
        id,
        "\n\n".join(filter(str.strip, texts)),
        tuple(key if text in ("", key) else f"{key}: {text}" for key, text in options.items()),
        tuple(float(option == name) for option in options),
        source.take_name("group") or id,
        source.take_name("family"),
    )


def _describe_options(kind: object, criteria: Any, labels: Any) -> dict[str, str]:
    """Return the descriptions of a question's options by name; those of a multiple choice are in
    the order of `labels`."""
    options: dict[str, Any] = {}
    if is_array(criteria):
        levels = enumerate(criteria)
        options = {str(text if kind == "choice" else level): text for level, text in levels}
    elif is_object(criteria):
        options = {str(name): text for name, text in criteria.items()}

    if kind == "noul":
        options = {name: options.get(key) for key, name in NOUL.items()}
    elif kind == "choice" and is_array(labels):
        options = {str(label): options.get(str(label)) for label in labels} or options

    return map_values(_write, options)


def _write(value: Any) -> str:
    """Return a text unchanged, an empty text for None, and any other value as JSON."""
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False, indent=2)


FORMATS = {
    (CHOSEN, REJECTED): _read_preference,
    ("state", "question", "labels"): _read_jevbench,
}
"""The readers of data sets with a format of their own, by the fields by which it is recognised."""


# The winner among an item's candidates, and the credit of a judge: its agreement with people's
# winner, from 0 to 1.
#
# The functions are about single items; `agreement.py` has the figures over many.

TIED = -1  # the index that stands for a tie, instead of that of a winner
ALWAYS_PASS = "always pass"
ALWAYS_FAIL = "always fail"
# The rules for pairs that do not read the texts.
BLIND = ("always the first", "always the shorter text", "always the longer text")


def winner_of(scores: Sequence[float]) -> int:
    """Return the index of the highest score, or `TIED` if several candidates share it."""
    highest = max(scores)
    best = [index for index, score in enumerate(scores) if score >= highest - TIE]
    return best[0] if len(best) == 1 else TIED


def top_credit(scores: Numbers, human: Numbers) -> float:
    """Return the credit in [0, 1] of a judge's scores for one item: the number of winners that the
    judge and people share, divided by the larger number of winners.

    With W the judge's candidates of the highest score, and H people's, it is |W & H| / max(|W|,
    |H|). For a pair it is 1 if both have the same winner or both tie, 0.5 if one of them ties, and
    otherwise 0. It is NaN if a score is missing.
    """
    ours, theirs = paired(scores, human)
    if not ours.size or np.isnan(ours).any() or np.isnan(theirs).any():
        return float("nan")
    best = ours >= ours.max() - TIE
    preferred = theirs >= theirs.max() - TIE

    return float((best & preferred).sum() / max(best.sum(), preferred.sum()))


def label_credit(passed: bool | None, human: float) -> float:
    """Return the credit of a verdict on a single response: 1 if it agrees with most people, else 0.
    NaN without a verdict, without labels, or if people's labels tie."""
    if passed is None or math.isnan(human) or abs(human - 0.5) <= TIE:
        return math.nan
    return float(passed == (human > 0.5))


def share_winners(scores: Sequence[float], human: Sequence[float], places: int) -> Array:
    """Return an item's table (places, places) of the judge's winner (rows) by people's winner
    (columns), which sums to 1.

    A tie is shared among the tied positions, so that the sum of all items' tables needs no further
    row or column for ties. Of the possible ways to share, it is the one with the most agreement:
    the diagonal sums to the item's credit (`top_credit`), so the agreement of all items is the
    accuracy.
    """
    ours = np.zeros(places)
    theirs = np.zeros(places)
    for side, values in ((ours, scores), (theirs, human)):
        best = vector(values) >= max(values) - TIE
        side[: best.size] = best / best.sum()
    same = np.minimum(ours, theirs)
    remainder = 1 - same.sum()
    table = np.diag(same)

    return table + np.outer(ours - same, theirs - same) / remainder if remainder > TIE else table


def blind_credits(items: Sequence[Item]) -> dict[str, list[float]]:
    """Return, by rule, the credit on each item (agreement with people, from 0 to 1) of the rules
    that do not read the texts: for single responses to pass all or to fail all; otherwise to choose
    the first, the shortest or the longest text (in characters)."""
    if any(item.is_single for item in items):
        shares = [item.human[0] for item in items]
        return {
            ALWAYS_PASS: [label_credit(True, share) for share in shares],
            ALWAYS_FAIL: [label_credit(False, share) for share in shares],
        }

    credits: dict[str, list[float]] = {name: [] for name in BLIND}
    for item in items:
        lengths = vector(list(map(len, item.candidates)))
        places = np.arange(len(lengths))
        # The scores of each rule: the higher, the better.
        for name, scores in zip(BLIND, (-places, -lengths, lengths), strict=True):
            credits[name].append(top_credit(scores, item.human))

    return credits
