"""The tasks of `improve.py`: short texts under constraints that code can check, all our own.

A task says what to write and states its constraints; each constraint is a `Check`, which finds in a
text what breaks it. No judge sees a check, only the arm that is judged by rules.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from textevolve.evaluation import Case, EvaluationResult, PlainEvaluation
from textevolve.texts.prose import split_words

_SENTENCE_END = re.compile(r"(?<![.!?…])[.!?…]++(?=\s|$)|\n\s*\n")


@dataclass(frozen=True, slots=True)
class Check:
    """A constraint as the task states it. `fault`: what breaks it in a text; empty: nothing."""

    said: str
    fault: Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Task:
    id: str
    text: str
    checks: tuple[Check, ...]

    def faults(self, text: str) -> tuple[str, ...]:
        """What is to be changed in a text, one line for each check that it breaks."""
        pairs = [(check.said, check.fault(text.strip())) for check in self.checks]
        return tuple(f"{rule} Now: {fault}." for rule, fault in pairs if fault)

    def passes(self, text: str | None) -> bool:
        return text is not None and bool(text.strip()) and not self.faults(text)

    async def judge(self, case: Case, /) -> PlainEvaluation:
        """An evaluator that knows the checks: score = the share that holds."""
        results: list[EvaluationResult] = []
        for text in case.candidates:
            faults = self.faults(text)
            score = 1 - len(faults) / len(self.checks)
            results.append(EvaluationResult(score, not faults, "\n".join(faults)))
        return PlainEvaluation(tuple(results))


def words(least: int, most: int) -> Check:
    rule = f"Use {least} to {most} words."
    if least == most:
        rule = f"Use exactly {least} words."

    def fault(text: str) -> str:
        number = len(split_words(text))
        return "" if least <= number <= most else f"{number} words"

    return Check(rule, fault)


def count_sentences(text: str) -> int:
    """Count the pieces between the marks that end a sentence."""
    return sum(bool(re.search(r"\w", piece)) for piece in _SENTENCE_END.split(text))


def sentences(count: int) -> Check:
    rule = "Write one sentence." if count == 1 else f"Write exactly {count} sentences."
    return _counted(rule, "sentences", count_sentences, count)


def lines(count: int) -> Check:
    return _counted(f"Write exactly {count} lines.", "lines", lambda t: len(_lines(t)), count)


def bullets(count: int) -> Check:
    rule = f'Answer with exactly {count} bullet points, each on a line that starts with "- ".'
    return _listed(rule, r"- \S", count)


def numbered(count: int) -> Check:
    rule = f'Answer with a numbered list of exactly {count} lines: "1. ", "2. " and so on.'
    return _listed(rule, r"\d+\. \S", count)


def items(count: int) -> Check:
    """Names on one line, parted by commas, and nothing else."""

    def fault(text: str) -> str:
        parts = [part.strip() for part in text.rstrip(".").split(",")]
        if len(_lines(text)) > 1:
            return "more than one line"
        if any(not 1 <= len(split_words(part)) <= 3 for part in parts):
            return "not only names with commas between them"
        return "" if len(parts) == count else f"{len(parts)} names"

    return Check(f"Give exactly {count} names on one line, separated by commas.", fault)


def uses(*texts: str) -> Check:
    listed = " and ".join(f'"{word}"' for word in texts)

    def fault(text: str) -> str:
        missing = [word for word in texts if not _has(text, word)]
        return f"{', '.join(missing)} missing" if missing else ""

    return Check(f"Use the word{'s' * (len(texts) > 1)} {listed}.", fault)


def avoids(*texts: str) -> Check:
    listed = " or ".join(f'"{word}"' for word in texts)

    def fault(text: str) -> str:
        return ", ".join(word for word in texts if _has(text, word))

    return Check(f"Do not use the word{'s' * (len(texts) > 1)} {listed}.", fault)


def starts(text: str) -> Check:
    return _tested(f'Begin with "{text}".', "it begins otherwise", lambda t: t.startswith(text))


def ends(text: str) -> Check:
    return _tested(f'End with "{text}".', "it ends otherwise", lambda t: t.endswith(text))


def question() -> Check:
    return _tested("Write it as a question.", "no question mark at the end", _ends_asking)


def lower() -> Check:
    return _tested("Use no capital letters.", "it has capitals", lambda t: t == t.lower())


def upper() -> Check:
    return _tested("Use capital letters only.", "it has small letters", lambda t: t == t.upper())


def lacks(character: str, name: str) -> Check:
    return _counted(f"Use no {name}.", f"of these: {name}", lambda t: t.lower().count(character), 0)


def has_digits() -> Check:
    return _tested("Include a number in digits.", "no digit", lambda t: bool(re.search(r"\d", t)))


def no_digits() -> Check:
    return _tested("Use no digits.", "it has digits", lambda t: not re.search(r"\d", t))


def german() -> Check:
    ours = {"der", "die", "das", "den", "und", "ist", "ich", "wir", "sie", "es", "ein", "eine"}
    ours |= {"nicht", "zu", "im", "am", "mit", "auf", "in", "bei", "uns", "heute", "kaufe"}
    theirs = {"the", "and", "is", "of", "are"}

    def fault(text: str) -> str:
        used = {word.lower() for word in split_words(text)}
        return "" if len(used & ours) > 1 and not used & theirs else "another language"

    return Check("Write in German.", fault)


def json_object(fields: Mapping[str, type]) -> Check:
    """One object with just these fields, without a fence of code around it."""
    kinds = {str: "a text", int: "a whole number", bool: "true or false", list: "a list of texts"}
    listed = ", ".join(f'"{name}" ({kinds[kind]})' for name, kind in fields.items())

    def fault(text: str) -> str:
        try:
            value: object = json.loads(text)
        except (ValueError, RecursionError):
            return "not valid JSON, or something around it"
        if not isinstance(value, dict) or list(value) != list(fields):  # pyright: ignore[reportUnknownArgumentType]
            return "other fields than these"
        wrong = [name for name, kind in fields.items() if type(value[name]) is not kind]  # pyright: ignore[reportUnknownArgumentType]
        return f"{', '.join(wrong)} of another kind" if wrong else ""

    return Check(f"Answer with one JSON object and nothing else, with the fields {listed}.", fault)


def _counted(rule: str, noun: str, count: Callable[[str], int], expected: int) -> Check:
    def fault(text: str) -> str:
        number = count(text)
        return "" if number == expected else f"{number} {noun}"

    return Check(rule, fault)


def _tested(rule: str, wrong: str, holds: Callable[[str], bool]) -> Check:
    return Check(rule, lambda text: "" if holds(text) else wrong)


def _listed(rule: str, mark: str, count: int) -> Check:
    def fault(text: str) -> str:
        lines = _lines(text)
        other = sum(not re.match(mark, line) for line in lines)
        if other:
            return f"{other} lines of another form"
        return "" if len(lines) == count else f"{len(lines)} lines"

    return Check(rule, fault)


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _has(text: str, word: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text, re.IGNORECASE) is not None


def _ends_asking(text: str) -> bool:
    return text.endswith("?")


_TASKS: tuple[tuple[str, str, tuple[Check, ...]], ...] = (
    ("rain", "Describe rain.", (sentences(2), uses("roof"), avoids("water"))),
    ("cat", "Write a notice about a lost cat.", (words(15, 25), uses("collar", "reward"))),
    ("tea", "Say how to make tea.", (numbered(3), avoids("boil"), words(10, 40))),
    ("fruit", "Name fruits.", (items(5), lower())),
    ("planets", "Name planets of our solar system.", (items(4), avoids("Earth", "Mars"))),
    ("moon", "Describe the moon.", (words(10, 10), lacks("x", "letter x"))),
    ("sea", "Write about the sea.", (sentences(1), words(8, 14), lacks(",", "commas"))),
    ("bread", "Give reasons to bake bread at home.", (bullets(3), uses("smell"), no_digits())),
    ("train", "Tell a friend that your train is late.", (sentences(2), ends("See you soon."))),
    ("shop", "Write a slogan for a bookshop.", (words(4, 7), upper())),
    ("shoes", "Write a slogan for running shoes.", (words(3, 6), lower(), ends("."))),
    ("person", "Invent a person.", (json_object({"name": str, "age": int}),)),
    ("book", "Describe a novel.", (json_object({"title": str, "author": str, "pages": int}),)),
    ("city", "Describe a city.", (json_object({"city": str, "capital": bool, "rivers": list}),)),
    ("recipe", "Invent a soup.", (json_object({"soup": str, "minutes": int, "parts": list}),)),
    ("weather", "Describe the weather.", (json_object({"sky": str, "degrees": int}), lower())),
    ("snow", "Describe snow.", (sentences(3), words(15, 30), avoids("white", "cold"))),
    ("sun", "Write a sentence about the sun.", (sentences(1), starts("Every"), words(6, 12))),
    ("tree", "Write about a tree.", (lines(3), lacks(".", "full stops"), words(9, 24))),
    ("poem", "Write a poem about the wind.", (lines(4), uses("door"), avoids("blow", "blows"))),
    ("ask", "Ask a neighbour for a ladder.", (sentences(1), question(), uses("please"))),
    ("meeting", "Ask a colleague to move a meeting.", (question(), uses("Friday"), words(8, 16))),
    ("sorry", "Apologise for a broken cup.", (sentences(2), avoids("sorry"), uses("cup"))),
    ("thanks", "Thank a nurse.", (words(12, 18), avoids("thank", "thanks"), ends("!"))),
    ("dog", "Describe a dog.", (sentences(2), lacks("!", "exclamation marks"), starts("My dog"))),
    ("bike", "Sell an old bike.", (bullets(4), has_digits(), words(10, 40))),
    ("sleep", "Give advice for better sleep.", (numbered(4), avoids("phone", "screen"))),
    ("garden", "Name tools for a garden.", (bullets(5), lower(), words(5, 15))),
    ("school", "Say why children go to school.", (sentences(1), uses("friends"), words(10, 18))),
    ("hallo", "Greet a guest.", (german(), words(6, 15), ends("!"))),
    ("markt", "Say what you buy at the market.", (german(), uses("Brot"), sentences(2))),
    ("coffee", "Describe coffee.", (words(8, 16), avoids("coffee", "drink"), sentences(1))),
    ("river", "Write about a river.", (sentences(2), starts("The river"), ends("home."))),
    ("clock", "Describe an old clock.", (words(12, 20), lacks("z", "letter z"), uses("wall"))),
    ("robot", "Let a robot introduce itself.", (upper(), sentences(2), words(6, 16))),
    ("bees", "Say why bees matter.", (bullets(2), avoids("honey"), words(10, 30))),
    ("colours", "Name colours.", (items(6), avoids("red", "blue", "green"))),
    ("number", "State a fact about spiders.", (sentences(1), no_digits(), uses("eight"))),
    ("memo", "Remind a team of a deadline.", (sentences(2), uses("Monday"), avoids("deadline"))),
    ("bridge", "Describe a bridge.", (words(20, 20),)),
)

TASKS = tuple(
    Task(id, " ".join((text, *(check.said for check in checks))), checks)
    for id, text, checks in _TASKS
)
