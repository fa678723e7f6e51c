"""The rubrics that come with the package. Each is a file in `rubrics/`, which users can copy and
change.

A rubric has one criterion per line. Judges do not see comments between `<!--` and `-->` that begin
with a line. The one at the beginning of a shipped rubric describes it, its requirements and its
origin.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from textevolve.errors import InputError
from textevolve.json_texts import parse_printed
from textevolve.llm.decisions import Question, predicate, score
from textevolve.spec import suggest
from textevolve.texts.shipped import list_shipped, read_shipped

_COMMENT = re.compile(r"^[^\S\n]*<!--(.*?)-->[^\S\n]*\n?", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Rubric:
    """A shipped rubric. `about`: the lines of its comment. `text`: the criteria that a judge sees.
    `source`: the whole file."""

    name: str
    about: tuple[str, ...]
    text: str
    source: str


@cache
def shipped_rubrics() -> tuple[str, ...]:
    """Return the names of the shipped rubrics in alphabetical order."""
    return list_shipped("textevolve.judges", "rubrics", ".md")


@cache
def load_rubric(name: str) -> Rubric:
    """Read the shipped rubric of this name.

    Raises:
        InputError: there is no such rubric; lists the names.
    """
    if name not in shipped_rubrics():
        raise InputError(
            f"no shipped rubric '{name}' (write your own rubric as a sentence or"
            f" @FILE){suggest(name, shipped_rubrics())}"
        )

    source = read_shipped("textevolve.judges", f"rubrics/{name}.md")
    comment = _COMMENT.match(source)
    about = comment[1].strip().splitlines() if comment else ()

    return Rubric(name, tuple(about), without_comment(source), source)


def is_rubric_name(text: str) -> bool:
    """Tell whether a text is a single word, as the names of shipped rubrics are."""
    return re.fullmatch(r"[\w-]+", text.strip()) is not None


def expand_rubric(rubric: str) -> str:
    """Return the criteria of the shipped rubric that a text names, otherwise the text itself;
    comments are left out.

    Raises:
        InputError: the text is empty or JSON, or a single word that names no shipped rubric.
    """
    text = rubric.strip()
    content = load_rubric(text).text if is_rubric_name(text) else without_comment(text)
    if not content:
        raise InputError("the rubric is empty")
    if parse_printed(content) is not content:
        raise InputError(
            "the rubric is an object or a list of JSON, and a rubric is a text with one criterion a"
            " line. Descriptions of scores, such as Ragas' score1_description, are levels, the"
            " lowest first, for the judge decide: 'How right is it? [wrong | half right | right]';"
            " or they stand in a prompt of your own, prompt:FILE+numbers=1-5"
        )

    return content


def without_comment(text: str) -> str:
    return _COMMENT.sub("", text).strip()


# Parse the lines of a rubric into criteria, and make a typed question of each.
#
#     The response is polite.                                           is it so?
#     How clear is the response? [confused | clear in parts | clear]    on which level is it?
#
# A line without brackets is a yes / no question. Levels are in brackets at the end of a line, the
# lowest first. `shipped_rubrics` has the rubrics of the package.

_LEVELS = re.compile(r"(.*\S)\s*\[([^\[\]]*\|[^\[\]]*)\]")
_SCORE = re.compile(r"(?:score|level|grade|rating)[\s_]*\d+(?:_\w+)?\s*[:=]", re.IGNORECASE)
"""The beginning of a line that describes one score of a criterion, as in `Score 1: rude` or
`score1_description: rude`."""
_MARKUP = re.compile(r"#{1,6}\s|\||`{3}|\W*$")
"""A line that is a heading, a row of a table, a fence or a rule of Markdown."""


@dataclass(frozen=True, slots=True)
class Criterion:
    """One line of a rubric: a statement or a question about a response. `levels`: the possible
    answers, the lowest first; empty if the answer is yes or no."""

    text: str
    levels: tuple[str, ...] = ()


def read_criteria(rubric: str) -> tuple[str, ...]:
    """Read the criteria of a rubric, one per line, without list markers, empty lines and repeated
    lines."""
    sign = r"^\s*(?:[-*\u2022]|\d+[.)])\s+"
    lines = (re.sub(sign, "", line).strip() for line in rubric.splitlines())
    return tuple(dict.fromkeys(line for line in lines if line))


def read_levels(line: str) -> Criterion:
    """Parse one line of a rubric: the criterion, and the levels in brackets if there are any.

    Raises:
        InputError: a level is empty or repeated.
    """
    match = _LEVELS.fullmatch(line)
    if match is None:
        return Criterion(line)
    levels = tuple(level.strip() for level in match[2].split("|"))

    if not all(levels) or len(set(levels)) < len(levels):
        raise InputError(
            f"the rubric's line '{line:.80}': write the levels as different, non-empty texts,"
            " the lowest first, as in [confused | clear in parts | clear]"
        )

    return Criterion(match[1], levels)


def has_levels(line: str) -> bool:
    """Tell whether a line of a rubric ends with levels in brackets."""
    return _LEVELS.fullmatch(line) is not None


def ask_criteria(lines: Sequence[str]) -> Mapping[str, Question]:
    """Make a typed question of each criterion, and return the questions by the text of the
    criterion.

    Raises:
        InputError: levels cannot be used, a criterion is repeated, or lines describe scores or are
            markup.
    """
    markup = list(filter(_MARKUP.match, lines))
    if markup:
        raise InputError(
            f"the rubric's line '{markup[0]:.40}' is a heading, table or rule, and this judge asks"
            " whether each line is true: leave such lines out, or make a comment of them,"
            " <!-- ... -->; or take the judge single, probe or a debate, which read the rubric as"
            " it is"
        )

    # "Score 1: rude" is not true of a good response, so that it would lose by it.
    descriptions = list(filter(_SCORE.match, lines))
    if len(descriptions) > 1:
        raise InputError(
            f"the rubric describes scores ('{descriptions[0]:.40}'), and this judge asks whether"
            " each line is true: write the levels behind their criterion, the lowest first, as in"
            " [rude | polite | kind], for the judge decide; or take the judge single, probe or"
            " a debate, which read such a rubric as it is"
        )

    criteria = list(map(read_levels, lines))
    questions = {
        criterion.text: _ask(f"q{n}", criterion) for n, criterion in enumerate(criteria, 1)
    }
    if len(questions) < len(criteria):
        raise InputError(
            "the rubric has a criterion twice with different levels; keep one of the two"
        )

    return questions


def _ask(name: str, criterion: Criterion) -> Question:
    text = criterion.text
    is_question = criterion.text.endswith("?")
    if not criterion.levels:
        return predicate(name, text if is_question else f"Is this true of the response: {text}")
    wording = text if is_question else f"How far is this true of the response: {text}"
    return score(name, wording, criterion.levels)
