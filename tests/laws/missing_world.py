"""What the cells of the law on missing answers need: the ways in which an answer is bad, and runs
in which some answers are.

A good answer is that of the script of the recordings. A way spoils it: it keeps the text and gives
it another end, or takes the text away, or puts something else in its place. Which answers of a run
are spoiled is decided by a mark in the texts of a row, which is taken out before the good answer is
drawn: a marked row gets the same good answers as one that is not.
"""

import csv
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any
from xml.etree import ElementTree

from laws.judges import JudgeRecipe
from laws.studies import RECIPES, SCORES, Recipe, World, answer, write_rows
from textevolve.llm.testing import Answer, Fault

Body = Mapping[str, Any]
Script = Callable[[Body, int], Any]
Spoil = Callable[[Answer, Body], Answer | Fault]

SETTINGS = "[retries]\nattempts = 1\n"
"""A failed call is not tried again, so that a cell is quick and each bad answer is the last one."""
HASTY = SETTINGS + "[timeouts]\nread = 0.05\ntotal = 0.05\ndeadline = 0.05\n"
"""For an endpoint that never answers: then a busy machine changes nothing."""

HALF = "The moon pulls"


@dataclass(frozen=True)
class Way:
    """A way in which an answer is bad.

    Attributes:
        spoil: Makes the bad answer from the good one and the request.
        reason: What the reason must say, as a pattern; it may be worded in any other way.
        readable: Whether a careful reader can find the right value in it. Then that value may be
            taken, and no other.
        texts_only: Whether it means nothing for an answer of one token.
    """

    spoil: Spoil
    reason: str = "."
    readable: bool = False
    texts_only: bool = False


def end(reason: str) -> Spoil:
    """Return what gives an answer another finish reason and keeps the text."""
    return lambda good, _body: replace(good, finish_reason=reason)


def say(content: str) -> Spoil:
    """Return what puts another text in the place of an answer."""
    return lambda _good, _body: Answer(text=content)


def alter(function: Callable[[str], str], finish_reason: str | None = None) -> Spoil:
    """Return what changes the text of an answer."""
    return lambda good, _body: replace(good, alter=function, finish_reason=finish_reason)


def raw(choice: Mapping[str, Any] | None, **more: Any) -> Spoil:
    """Return what answers with a body that the scripted server does not write by itself.

    `choice`: the only choice; None: there is none. `more`: what else the body holds.
    """
    choices = [] if choice is None else [choice]
    body = {"id": "chatcmpl-1", "object": "chat.completion", "created": 0, "model": "scripted"}
    content = json.dumps({**body, "choices": choices, **more}).encode()
    return lambda _good, _body: Answer(body=content)


def fault(member: Fault) -> Spoil:
    """Return what answers with a fault of the scripted server. One that damages a text damages
    that of the good answer."""
    printed_answer = member.answer
    if printed_answer.alter is not None:
        return alter(printed_answer.alter, printed_answer.finish_reason)
    return lambda _good, _body: member


def message(content: str | None, finish_reason: str = "stop") -> dict[str, Any]:
    """Return a choice with a text."""
    reply = {"role": "assistant", "content": content}
    return {"index": 0, "message": reply, "finish_reason": finish_reason}


NUMBER = re.compile(r"(?<=[:\[,] )\d+(\.\d+)?")
UPSTREAM = {"message": "the provider is overloaded", "code": 502}

ENDS: Mapping[str, Way] = {
    "finish reason error": Way(end("error"), "error"),
    "finish reason abort": Way(end("abort"), "abort"),
    "finish reason insufficient_system_resource": Way(
        end("insufficient_system_resource"), "resource"
    ),
    "finish reason network_error": Way(end("network_error"), "network_error"),
    "a finish reason of its type": Way(
        raw({**message(HALF), "finish_reason": {"type": "abort", "message": "gone"}}), "abort"
    ),
    "finish reason SAFETY": Way(end("SAFETY"), "filter"),
    "finish reason MAX_TOKENS": Way(
        end("MAX_TOKENS"), "length|limit|cut|long|token", texts_only=True
    ),
    "finish reason content_filter": Way(end("content_filter"), "filter"),
    "finish reason model_length": Way(
        end("model_length"), "length|limit|cut|long|token", texts_only=True
    ),
    "finish reason length": Way(end("length"), "length|limit|cut|token", texts_only=True),
    "refusal": Way(
        lambda good, _body: replace(good, refusal="I cannot help with that."),
        "refus|cannot help",
    ),
}
"""Good texts with an end that says that the generation failed, was cut, or was refused."""

BODIES: Mapping[str, Way] = {
    "blank text": Way(say("  \n"), "empty|text|' '|neither|yes|blank"),
    "null in place of a text": Way(raw(message(None)), "empty|text|no answer"),
    "the text null": Way(say("null")),
    "no choices": Way(raw(None), "choice|completion|answer"),
    "an error in the choice": Way(raw({**message(HALF, "error"), "error": UPSTREAM}), "overloaded"),
    "an error beside the choices": Way(raw(message(HALF), error=UPSTREAM), "overloaded"),
    "NaN for numbers": Way(alter(lambda t: NUMBER.sub("NaN", t)), texts_only=True),
    "null for numbers": Way(alter(lambda t: NUMBER.sub("null", t)), texts_only=True),
}
"""Other bad answers that the scripted server has no fault for."""

TEXT_FAULTS = ("BROKEN_JSON", "CUT_JSON", "PROSE", "FENCE", "OUT_OF_RANGE")
READABLE = ("BROKEN_JSON", "PROSE", "FENCE")
ROW_FAULTS: Mapping[str, str] = {
    "SERVER_ERROR": "500|had an error",
    "OVERLOADED": "503|overloaded",
    "RATE_LIMIT": "429|[Rr]ate limit",
    "RATE_LIMIT_WAIT": "429|[Rr]ate limit",
    "RESET": "connection|reset|reach",
    "CUT_BODY": "connection|cut|body|reach|JSON",
    "NOT_JSON": "JSON|HTML|Bad gateway",
    "ERROR_IN_200": "Upstream failed|502",
    "BROKEN_JSON": ".",
    "CUT_JSON": ".",
    "PROSE": ".",
    "FENCE": ".",
    "OUT_OF_RANGE": ".",
    "EMPTY": "empty|text|neither|yes",
    "TOO_LONG_OPENAI": "context|long|tokens",
    "TOO_LONG_LLAMACPP": "context|long|tokens",
    "NO_IMAGES_OPENAI": "image",
    "NO_IMAGES_LLAMACPP": "image",
    "CALLS_ONLY": "tool|call",
    "THOUGHT_ONLY": "thought|think|max-output-tokens|length|limit|cut",
    "THOUGHT_OPEN": "thought|think|max-output-tokens|length|limit|cut",
}
"""Faults that concern one call, each with what the reason must say."""
RUN_FAULTS: Mapping[str, str] = {
    "UNAUTHORISED": "401|key",
    "FORBIDDEN": "403|right|Country",
    "NOT_FOUND": "404|does not exist|no such model",
    "NO_CREDIT": "quota|credit",
    "NO_SCHEMA": "response_format|schema|400",
    "NO_LOGPROBS": "logprobs",
    "NO_DECISIONS": "decision",
    "TIMEOUT": "seconds|no answer|time",
}
"""Faults that concern the endpoint: after one of them other calls are asked in another way or not
at all, so each has runs of its own."""
WITHOUT_LOGPROBS = (
    "null in place of a text",
    "no choices",
    "an error in the choice",
    "a finish reason of its type",
    "an error beside the choices",
)
"""Ways whose answers have no log-probabilities, which concern the endpoint, too: a judge that reads
them may say that it gives none. So each has runs of its own, with a whole row beside."""
WAITING: Mapping[str, str] = {
    "ENDLESS": "ends by the same limit as TIMEOUT, after megabytes of blanks",
    "NO_STREAM": "no judge and no study streams",
    "STREAM_IGNORED": "no judge and no study streams",
    "STREAM_STALL": "no judge and no study streams",
    "STREAM_SHORT": "no judge and no study streams",
    "STREAM_NO_DONE": "no judge and no study streams",
}
"""Faults that are not tried, each with the reason."""


def list_ways() -> dict[str, Way]:
    """Return all ways by their names."""
    faults = {
        name: Way(
            fault(Fault[name]),
            reason,
            readable=name in READABLE,
            texts_only=name in TEXT_FAULTS,
        )
        for name, reason in ROW_FAULTS.items()
    }
    endpoint = {name: Way(fault(Fault[name]), reason) for name, reason in RUN_FAULTS.items()}
    return {**ENDS, **BODIES, **faults, **endpoint}


WAYS = list_ways()
CODES = {name: f"q{number:02d}z" for number, name in enumerate(["whole", *WAYS])}
MARK = re.compile(r"(?<=[A-Za-z])q(\d\d)z")
MARKED_WORDS = re.compile(r"\b(Oslo|Norway|Bergen|twelve)\b")


def mark_row(row: Mapping[str, Any], way: str) -> dict[str, Any]:
    """Return a judge's row whose texts name a way."""
    marked = MARKED_WORDS.sub(lambda word: word[0] + CODES[way], json.dumps(row))
    return {**json.loads(marked), "id": way}


def answer_well(body: Body, number: int) -> Answer:
    """Return the good answer to a request, which is the same with marks and without."""
    unmarked = json.loads(MARK.sub("", json.dumps(body)))
    good = answer(unmarked, number)
    return Answer(text=good) if isinstance(good, str) else good or Answer()


def answer_by_marks(body: Body, number: int) -> Answer | Fault:
    """Answer each request in the way that its texts name."""
    good = answer_well(body, number)
    mark = MARK.search(json.dumps(body))
    names = list(CODES)
    way = names[int(mark[1])] if mark else "whole"
    return good if way == "whole" else spoil_answer(way, good, body)


def spoil_answer(way: str, good: Answer, body: Body) -> Answer | Fault:
    """Return the bad answer to a request; the good one where the way means nothing for it."""
    unaffected = WAYS[way].texts_only and is_one_token(body)
    return good if unaffected else WAYS[way].spoil(good, body)


def name_form(body: Body) -> str:
    """Return the form of the answer that a request asks for."""
    if is_one_token(body):
        return "decisions"
    return "objects" if body.get("response_format") else "texts"


def is_one_token(body: Body) -> bool:
    """Tell whether a request asks for one token, as decisions do."""
    return 1 in (body.get("max_tokens"), body.get("max_completion_tokens"))


@dataclass(frozen=True)
class Judged:
    """What a command wrote about the rows that it judged, by their ids, and how it ended."""

    code: int
    rows: Mapping[str, Sequence[Mapping[str, str]]]
    err: str

    def read_scores(self, row: str) -> list[float | None]:
        """Return the score of each candidate of a row; None where its cell is empty."""
        return [float(cells["score"]) if cells["score"] else None for cells in self.rows[row]]

    def read_reasons(self, row: str) -> list[str]:
        """Return the reason of each candidate of a row."""
        return [cells["reason"] for cells in self.rows[row]]


def judge_rows(
    world: World,
    recipe: JudgeRecipe,
    script: Script,
    *rows: Mapping[str, Any],
    settings: str = SETTINGS,
    again: bool = False,
) -> Judged:
    """Judge rows with a judge; return what the command says about them.

    `again`: in the store of the last command, instead of an empty one.
    """
    if not again:
        (world.home / "store.db").unlink(missing_ok=True)
    (world.home / "textevolve.toml").write_text(settings, encoding="utf-8")
    for name, content in recipe.files.items():
        (world.home / name).write_text(content, encoding="utf-8")
    if recipe.text.endswith(".judge") and not (world.home / recipe.text).exists():
        world.fit_judge(recipe.text)
    world.server.script = script
    (world.home / SCORES).unlink(missing_ok=True)
    (world.home / "rows.jsonl").write_text(write_rows(list(rows)), encoding="utf-8")
    judge = recipe.text.replace("MODEL", world.model)
    outcome = world.cli(
        *("evaluate", "rows.jsonl", "--judge", judge, "-m", world.model),
        *("--seed", "1", "-o", SCORES),
    )
    return Judged(outcome.code, read_cells(world.home / SCORES), outcome.err)


def read_cells(path: Path) -> dict[str, list[dict[str, str]]]:
    """Return the lines of a table of scores by the id of their row; none if it was not written."""
    rows: dict[str, list[dict[str, str]]] = {}
    if path.exists():
        with path.open(encoding="utf-8", newline="") as file:
            for cells in csv.DictReader(file):
                rows.setdefault(cells["id"], []).append(cells)
    return rows


@dataclass(frozen=True)
class Calls:
    """The calls of one form that a kind of study makes.

    Attributes:
        figures: The paths in the summary of what their answers give, as a pattern.
        kept: The paths of what other answers give, as a pattern; empty: nothing.
        code: The exit code of a run without these answers.
    """

    figures: str
    kept: str = ""
    code: int = 3


AGREEMENT = r"^\.summary\.judges\[\d\]\.((accuracy|kappa|calibration\.brier)\.value|ties)$"
VARIANTS = r"^\.variants\[\d\]\.((mean|pass_rate|scorers\.\w+)\.value)$"
VALID = r"valid\.value$"
"""Memory figures named `all` count a failed judgement as not reached, as their data set does."""

STUDY_CALLS: Mapping[str, Calls] = {
    "evaluate, decisions": Calls(r"^\.aggregates\.(mean|pass_rate)\.value$"),
    "compare, texts": Calls(VARIANTS),
    "compare, decisions": Calls(r"scorers\.probe\.value$", r"scorers\.exact\.value$", code=0),
    "compare-quants, texts": Calls(VARIANTS),
    "calibrate, texts": Calls(r"^\.nodes\[\d\]\.placings.*mean$|^\.gain\.(first|second|p)$"),
    "calibrate, objects": Calls(r"^\.nodes\[1\]|^\.gain\.", r"^\.nodes\[0\]\.text$", code=0),
    "chain, texts": Calls(r"^\.runs\[\d\]\.outputs"),
    "agreement, decisions": Calls(AGREEMENT),
    "ablation, objects": Calls(AGREEMENT + r"|^\.payoff\.(difference|accuracy|p)"),
    "escalation, decisions": Calls(r"^\.(first|difference)\.value|^\.items\[\d\]\.first\.credit"),
    "escalation, objects": Calls(
        r"^\.(second|difference)\.value|^\.items\[\d+\]\.second\.credit",
        r"^\.items\[\d+\]\.first\.credit",
    ),
    "robustness, decisions": Calls(r"rates\[\d\]\.rate$"),
    "fit, decisions": Calls(r"^\.(fit|judge)\."),
    "nodes, decisions": Calls(r"^\.evaluators\.probe\.mean$"),
    "memory-eval, objects": Calls(r"^\.overall.*" + VALID),
    "memory-eval, texts": Calls(
        r"^\.overall\.question.*" + VALID, r"^\.overall\.(recall|accuracy|fmr|f1).*" + VALID
    ),
    "optimize, texts": Calls(r"^\.tasks\[0\]\.(score|output|best)$|evaluation\.score$"),
    "optimize, decisions": Calls(r"^\.tasks\[0\]\.(score|output|best)$|evaluation\.score$"),
    "innovate, texts": Calls(r"^\.(before|after|gain)\.value$|^\.p$|score$"),
    "innovate, decisions": Calls(r"^\.(before|after|gain)\.value$|^\.p$|score$"),
    "innovate, objects": Calls(
        r"^\.after\.(value|samples)|^\.attempts\[1\]\.input", r"^\.refined$", code=0
    ),
    "guide, texts": Calls(r"^\.(plain|guided)\.text$"),
    "guide, objects": Calls(r"^\.guided\.text$|^\.transcript$"),
    "profile, objects": Calls(r"^\.profile\."),
    "summarize, texts": Calls(r"^\.text$"),
    "create-memories, objects": Calls(r"^\.decisions\.|^\.decided_by\."),
    "integrate-memories, objects": Calls(r"^\.gathered\.questions|^\.questions"),
    "evolve-persona, objects": Calls(r"^\.(persona|version)$|^\.made\.(text|changes)"),
}
"""Each kind of study that asks models, with each form of its calls."""
ASKING_NO_MODEL: Mapping[str, str] = {
    "rates": "its verdicts are in its files",
    "read-corpus": "it asks for embeddings alone, which have cells of their own",
}


def flatten(value: Any, path: str = "") -> dict[str, Any]:
    """Return what is in nested objects and lists by its path, such as `.runs[0].outputs.story`;
    what is empty or null is not there."""
    if isinstance(value, Mapping):
        parts = [(f"{path}.{name}", part) for name, part in value.items()]
    elif isinstance(value, list):
        parts = [(f"{path}[{number}]", part) for number, part in enumerate(value)]
    else:
        return {} if value in (None, "") else {path: value}
    return {name: leaf for inner, part in parts for name, leaf in flatten(part, inner).items()}


def select(pattern: str, summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a summary whose paths match a pattern."""
    return {path: value for path, value in flatten(summary).items() if re.search(pattern, path)}


def run_study(
    world: World,
    kind: str,
    script: Script,
    *options: str,
    recipe: Recipe | None = None,
    settings: str = SETTINGS,
) -> tuple[Any, dict[str, Any]]:
    """Run a kind of study, whose calls are answered by a script; return how the command ended, and
    its summary. `recipe`: by default that of the kind."""
    recipe = recipe or RECIPES[kind]
    (world.home / "textevolve.toml").write_text(settings, encoding="utf-8")
    world.prepare(recipe)
    world.script = script
    outcome = world.run(kind, recipe, "-o", "summary.json", *options)
    path = world.home / "summary.json"
    return outcome, json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


@dataclass(frozen=True)
class Part:
    """One row of a study whose answers are bad, while those of the others are good.

    Attributes:
        needle: What stands in the requests about this row alone.
        keys: The columns of the study's table that name a row.
        row: The names in these columns of the lines that are affected, as a pattern.
        values: The columns with what its answers give.
        records: How many records have no score then.
        mean: The path of a mean in the summary, and how it follows from the other lines; None: the
            study has none.
    """

    needle: str
    keys: tuple[str, ...]
    row: str
    values: tuple[str, ...]
    records: int = 1
    mean: tuple[str, Callable[[Sequence[Mapping[str, str]]], float]] | None = None


def average(column: str) -> Callable[[Sequence[Mapping[str, str]]], float]:
    """Return what computes the mean of a column."""
    return lambda lines: fmean(float(line[column]) for line in lines)


def average_best(lines: Sequence[Mapping[str, str]]) -> float:
    """Return the mean over the cases of the score of the best candidate."""
    best: dict[str, float] = {}
    for line in lines:
        best[line["id"]] = max(float(line["score"]), best.get(line["id"], 0.0))
    return fmean(best.values())


COMPARED = ("score", "scores.exact")
PARTS: Mapping[str, Part] = {
    "evaluate": Part(
        *("Question 1", ("id", "candidate"), "^c1,", ("score", "passed")),
        mean=(r"^\.aggregates\.mean\.value$", average_best),
    ),
    "compare": Part(
        *("What is 1 ", ("row",), "^r1$", (*COMPARED, "scores.probe")),
        mean=(r"^\.variants\[0\]\.mean\.value$", average("score")),
    ),
    "compare-quants": Part("What is 1 ", ("row",), "^r1$", COMPARED, records=2),
    "chain": Part("What is 1 ", ("id",), "^r1$", ("output.story",)),
    "agreement": Part(
        *("Question 1", ("item",), "^i1$", ("credit",)),
        records=2,
        mean=(r"^\.summary\.judges\[0\]\.accuracy\.value$", average("credit")),
    ),
    "ablation": Part("Question 1", ("item",), "^i1$", ("credit",), records=10),
    "escalation": Part(
        *("Question 1", ("item",), "^i1$", ("first", "second", "certainty")),
        records=2,
        mean=(r"^\.first\.value$", average("first")),
    ),
    "robustness": Part("Is 1 even", ("case",), "-1$", ("good", "bad", "odds"), records=8),
    "fit": Part("Question 1:", ("item", "judge"), "^i1,probe$", ("credit",), records=2),
    "nodes": Part(
        *("sea, a 1", ("case",), "^a:2 ", ("score", "rewards.probe")),
        mean=(r"^\.evaluators\.probe\.mean$", average("rewards.probe")),
    ),
    "memory-eval": Part(
        *("Which languages does", ("task", "texts.question"), "^question,Which"),
        ("score", "verdict.label"),
    ),
    "create-memories": Part("Ann drinks black", ("dialogue",), "^d2$", ("text",)),
}
"""Each kind of study with several rows."""
ONE_ROW: Mapping[str, str] = {
    "calibrate": "its table has a line for each template, not for each row",
    "optimize": "its recipe has one task",
    "innovate": "its recipe has one input",
    "guide": "it has one question",
    "profile": "it has one subject",
    "summarize": "it has one text",
    "integrate-memories": "it has one agent",
    "evolve-persona": "it has one agent",
}


def read_lines(path: Path) -> list[dict[str, str]]:
    """Return the lines of a table that a command wrote."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def read_junit(path: Path) -> dict[str, list[str]]:
    """Return the names of the test cases of a JUnit file by what they hold: `error`, `failure`,
    `skipped`; `gate` for those of gates that fail."""
    outcomes: dict[str, list[str]] = {"error": [], "failure": [], "skipped": [], "gate": []}
    for suite in ElementTree.parse(path).getroot():
        for case in suite:
            for outcome in case:
                kind = "gate" if suite.get("name") == "gates" else outcome.tag
                outcomes[kind].append(case.get("name") or "")
    return outcomes
