"""Labels of single responses: their columns, what each label means, and a line on how the labels of
a file were read.

A label is a word or a grade. What `yes` means depends on the question that people answered: a
response with a hallucination is a bad one. So a word that may mean either is only believed in a
column whose name says what it means.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from textevolve.errors import InputError
from textevolve.evaluation import empty_default
from textevolve.ledger import log
from textevolve.report import wording
from textevolve.rows import Row
from textevolve.rows.columns import fold_name, list_names
from textevolve.texts.numbers import read_number
from textevolve.texts.prose import fold_case

LABEL = "label"
HUMAN = "human"
ANNOTATOR = "label_"
"""The columns that may hold the label of a single response. The last is the beginning of the
columns of several annotators, such as `label_anna`."""
# The labels that mean a good single response.
GOOD = ("pass", "passed", "good", "true", "yes", "correct")
# The labels that mean a bad single response.
BAD = ("fail", "failed", "bad", "false", "no", "incorrect")
EITHER = ("true", "false", "yes", "no")
"""The labels that answer a question, and so mean a good response or a bad one."""
_PRAISE = re.compile(
    r"label|human|annotat|pass|good|correct|accept|approv|success|okay|valid|right|quality|help|"
    r"faith|ground|support|relevan|accura|safe|truth|true|answered|score|rating|grade|gold|overall|reward|"
    r"(?:is|was|has|\d+)$"
)
"""The words in names of columns of which yes is praise, or that mean nothing by themselves."""
_ABOUT = re.compile(
    r"(?:.*[\W_])?(?:confidences?|conf|certainty|prob|probability|weight|agreement|time|timestamp|date|at|on|"
    r"duration|seconds|ms|source|origin|method|type|status|version|id|uuid|url|comments?|notes?|"
    r"reasons?|rationale|explanation|counts?|num)"
)
"""The names of what labelling tools write beside a label: how sure it is, when and how it came."""
_MISSING = ("", "None", "null", "NULL", "nan", "NaN", "NA", "N/A", "n/a", "<NA>", "#N/A")
"""Texts of cells that are read as no label, since programs write them for a missing value. The word
"none" in small letters is a label."""
SHOWN = 6
"""The number of different labels that are listed, if there are no more."""


def label_columns(row: Iterable[str]) -> tuple[str, ...]:
    """Return the columns with the labels of a single response: `label`, or the columns of several
    annotators, or `human`. A fact about a label, such as `label_confidence`, is none."""
    for pattern in (LABEL, f"{ANNOTATOR}.+", HUMAN):
        matches = [name for name in row if re.fullmatch(pattern, fold_name(name))]
        columns = tuple(
            name
            for name in matches
            if not _ABOUT.fullmatch(fold_name(name).removeprefix(ANNOTATOR))
        )
        if columns:
            return columns

    return ()


def person_of(column: str) -> str:
    """Return the name of the person whose labels a column has: `anna` of `label_Anna`."""
    return fold_name(column).removeprefix(ANNOTATOR)


def describe_people(columns: Collection[str], renamed: Mapping[str, str] = {}) -> str:
    """Name the columns with labels, and say whether each is taken for a person."""
    names = list_names(renamed.get(name, name) for name in columns)
    are_people = any(fold_name(name).startswith(ANNOTATOR) for name in columns)
    return f"{names} (each a person)" if are_people else names


def require_single_people(columns: Iterable[str], where: str) -> None:
    """Raise InputError if two columns with labels have the name of one person."""
    known: dict[str, str] = {}
    for column in columns:
        other = known.setdefault(person_of(column), column)
        if other != column:
            raise InputError(
                f"{where}: '{other}' and '{column}' have labels of one person; keep one of them,"
                " or give them names that differ in more than case"
            )


def label_text(value: object) -> str:
    """Return a label as it is compared; empty for an empty cell, or one that says so."""
    text = str(value).strip()
    return "" if text in _MISSING else fold_case(text)


def take_label(row: Row, name: str, where: str, words: Collection[str] = ()) -> float | None:
    """Return a label as a grade: a pass is above all numbers, a failure below; None for an empty
    cell. `words`: the labels that mean a pass, if not the usual ones.

    Raises:
        InputError: the label is neither one of these words nor a number.
    """
    text = label_text(row.get(name))
    if not text:
        return None
    if text in (words or GOOD):
        return math.inf
    if words or text in BAD:
        return -math.inf
    try:
        return read_number(text)
    except ValueError:
        raise InputError(
            f"{where}: '{name}' must be pass or fail (or good, bad, true, false, yes, no), or a"
            f" number, not {row.get(name)!r:.40}; name other labels of good responses with --good"
        ) from None


def read_good(good: str | None) -> tuple[float | None, frozenset[str]]:
    """Parse the option `good`: return the grade from which a response is good, or the labels that
    mean good."""
    text = fold_case(good or "")
    try:
        return read_number(text), frozenset()
    except ValueError:
        return None, frozenset(map(str.strip, text.split(","))) - {""}


@dataclass
class LabelReading:
    """How the labels of a file of single responses are read, and what was found.

    Attributes:
        path: The file, for messages.
        renamed: The column's name in the file for each name that it gets.
        least: The grade from which a response is good; None: the upper half of the scale.
        words: The labels that mean a pass, if not the usual ones.
        grades: The grade of each label, by its text.
        counts: How often each label occurs.
        columns: The columns with labels.
        missing: The number of rows without a label.
    """

    path: str
    renamed: Mapping[str, str]
    least: float | None = None
    words: frozenset[str] = frozenset()
    grades: dict[str, float] = empty_default(dict)
    counts: Counter[str] = empty_default(Counter)
    columns: dict[str, None] = empty_default(dict)
    missing: int = 0

    def take(self, row: Row, where: str) -> dict[str, float]:
        """Return the labels of a row, not yet graded, by their columns; empty if it has none."""
        labels: dict[str, float] = {}
        for name in label_columns(row):
            grade = take_label(row, name, where, self.words)
            if grade is None:
                continue
            text = label_text(row[name])
            labels[name] = self.grades[text] = grade
            self.counts[text] += 1
            self.columns[name] = None

        require_single_people(labels, where)
        self.missing += not labels

        return labels

    def passes(self, grade: float) -> bool:
        """Tell whether a label is one of a good response, once all were read.

        The default limit is the middle of the scale, which is 0 to 1 if all grades are within it,
        otherwise from the lowest to the highest grade. A limit that all grades reach would tell
        nothing apart, so it names the good grade itself: `--good 0` of the labels 0 and 1.
        """
        grades = [grade for grade in self.grades.values() if math.isfinite(grade)]
        low = min(grades, default=0.0)
        high = max(grades, default=1.0)
        if self.least is not None:
            return grade == low if self.least == low < high else grade >= self.least

        is_share = low >= 0 and high <= 1
        return grade >= (0.5 if is_share else (low + high) / 2)

    def require_meaning(self) -> None:
        """Raise InputError if the labels may mean the opposite of what they would be read as: they
        answer a question, or are 0 and 1, in a column whose name says nothing about it; or if the
        user named a label as good that no row has."""
        # Labels may be bad without exception, but then they are known words.
        are_known = self.words <= {*GOOD} and self.grades.keys() <= {*GOOD, *BAD}
        if self.words.isdisjoint(self.grades) and self.words and self.grades and not are_known:
            raise InputError(
                f"{self.path}: --good: no row has the label {' or '.join(sorted(self.words))};"
                f" there are: {list_names(sorted(self.grades))}"
            )
        if self.words or self.least is not None:
            return
        for name in self.columns:
            original = self.renamed.get(name, name)
            texts = [text for text in self.grades if text in EITHER]
            numbers = [text for text, grade in self.grades.items() if 0 <= grade <= 1]
            doubtful = texts or (numbers if len(numbers) == len(self.grades) else [])
            if original == name or not doubtful or _is_praise(original):
                continue

            listing = list_names(sorted(doubtful))
            choices = " or ".join(f"--good {text}" for text in sorted(doubtful)[:2])
            raise InputError(
                f"{self.path}: the labels in '{original}' are {listing}, and its name does not say"
                f" which of them good responses have; choose with {choices}"
            )

    def report(self) -> None:
        """Log how the labels were read, and how many rows have none."""
        names = describe_people(self.columns, self.renamed)
        passing = [text for text, grade in self.grades.items() if self.passes(grade)]
        failing = [text for text in self.grades if text not in passing]
        passes = sum(self.counts[text] for text in passing)

        if len(self.grades) <= SHOWN:
            verb = "count" if len(passing) > 1 else "counts"
            meaning = f"{' and '.join(sorted(passing)) or 'nothing'} {verb} as pass"
            if failing:
                meaning += f", {' and '.join(sorted(failing))} as fail"
        else:
            least = min((self.grades[text] for text in passing), default=math.nan)
            meaning = f"from {least:g} on counts as pass"
        line = f"labels in {names}: {meaning}: {passes} of {self.counts.total()}"
        if self.missing:
            line += f"; {wording.count(self.missing, 'row')} without a label left out"

        log.info(line, extra={"shown": line})


def _is_praise(name: str) -> bool:
    """Tell whether all words of a column's name are such that yes means a good response."""
    words = re.findall(r"[a-z]+|\d+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower())
    return bool(words) and all(map(_PRAISE.match, words))
