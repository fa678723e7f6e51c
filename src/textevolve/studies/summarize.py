"""The summarize study: it shortens texts of any length to a budget of tokens.

`textevolve.llm.mapreduce` splits the texts, has a model shorten each piece, and joins the results.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

from textevolve.errors import AnswerError, BudgetError, InputError
from textevolve.evaluation import Case, Failure, Result, error_of, failure_of
from textevolve.llm.mapreduce import (
    CONTEXT,
    FOCUS,
    KEEP_INSTRUCTION,
    SMALLEST_BUDGET,
    Compressed,
    Dropped,
    compress,
    compression_prompts,
)
from textevolve.llm.prompts import count_tokens
from textevolve.mappings import read_fields
from textevolve.report import wording
from textevolve.report.blocks import Report, Texts
from textevolve.rows import STANDARD_INPUT, read_text
from textevolve.rows.tables import name_of
from textevolve.runs.study import (
    Asks,
    Row,
    Study,
    StudySpec,
    json_decoder,
    last_record,
    record_reason,
    row_of,
)
from textevolve.spec import Several, option
from textevolve.texts.prose import join_lines
from textevolve.wiring import Workbench

KEY = "summary"


class SummarizeSpec(StudySpec):
    """Shorten texts of any length to a budget of tokens: one summary of all of them.

    Known elsewhere as map-reduce summarization.
    """

    kind: ClassVar[str] = "summarize"
    scored: ClassVar[bool] = False
    indivisible: ClassVar[bool] = True

    files: Several = option(
        (),
        "Files of plain text, read in this order; - is standard input.",
        argument=True,
        reads=True,
        identity=False,
    )
    budget: int = option(
        400,
        "The most tokens (of 4 characters) of the summary.",
        short="-b",
        group="Summary",
        ge=SMALLEST_BUDGET,
    )
    focus: str = option(
        "",
        "The topic or question of the summary; information about it has priority.",
        group="Summary",
    )
    context: int = option(
        CONTEXT,
        "The model's context in tokens. A larger context reads fewer and larger parts.",
        group="Summary",
        ge=1024,
    )
    seed: int = option(0, "The seed of the answers; another seed may give another summary.")


@dataclass(frozen=True)
class Summary(Result):
    """The summary of texts (`compressed`), or the `failure` to write it. `texts`: the number of
    texts."""

    model: str
    texts: int
    compressed: Compressed | None = None
    failure: Failure | None = None

    @property
    def text(self) -> str:
        """The summary; empty if there is none."""
        return "" if self.compressed is None else self.compressed.text

    @property
    def tokens(self) -> int:
        return count_tokens(self.text)

    @property
    def dropped(self) -> Dropped:
        """The pieces of the texts that are missing in the summary for other reasons than
        shortening, such as a failed call."""
        return Dropped() if self.compressed is None else self.compressed.dropped

    def require(self) -> Compressed:
        """Return the compressed text.

        Raises:
            AnswerError: the model gave no usable answer to any piece. BudgetError: a limit was
                reached first.
        """
        if self.compressed is not None:
            return self.compressed
        assert self.failure is not None
        raise error_of(self.failure)


def ask(_spec: SummarizeSpec) -> Asks:
    return Asks(writes=True, prompts=compression_prompts())


def read_cases(spec: SummarizeSpec) -> Iterator[Case]:
    if not spec.files:
        raise InputError("name a file of text, or - for standard input")
    if list(spec.files).count(STANDARD_INPUT) > 1:
        raise InputError("standard input (-) can be read only once")
    return as_cases(map(read_text, spec.files), spec.files)


def as_cases(texts: Iterable[str], names: Sequence[str] = ()) -> Iterator[Case]:
    """Yield a case for each text. `names`: the names of the texts' files.

    Raises:
        InputError: a text is blank, or there is none.
    """
    number = 0

    for number, text in enumerate(texts, 1):
        name = name_of(names[number - 1]) if names else f"text {number}"
        if not text.strip():
            raise InputError(f"{name}: has no text")
        yield Case(text, (), f"{number} {name}")

    if not number:
        raise InputError("the files have no text to summarize")


async def run(
    spec: SummarizeSpec, cases: Iterable[Case], bench: Workbench
) -> AsyncGenerator[Summary]:
    texts = [case.input for case in cases]
    instruction = KEEP_INSTRUCTION
    if focus := join_lines(spec.focus):
        end = "" if focus.endswith((".", "!", "?")) else "."
        instruction += f" {FOCUS}{focus}{end}"
    compressed = None
    failure = None

    try:
        compressed = await compress(
            bench.model,
            texts,
            spec.budget,
            instruction=instruction,
            context=spec.context,
            concurrency=bench.concurrency,
            seed=spec.seed,
        )
    except (AnswerError, BudgetError) as error:
        failure = failure_of(error)

    yield Summary(bench.default_model, len(texts), compressed, failure)


def find_row(summary: Summary) -> Row:
    failure = summary.failure
    failed = summary.dropped.failed
    if failed:
        lost = f"{wording.count(len(failed), 'chunk')} without an answer"
        reason = f"{lost}, {summary.dropped.failed_characters} characters: {failed[0].reason}"
        skipped = any(chunk.skipped for chunk in failed)
        failure = Failure("skipped" if skipped else "failed", reason)

    return row_of(KEY, 0, failure, KEY)


def report(spec: SummarizeSpec, summary: Summary) -> Report:
    title = f"Summary of {wording.count(summary.texts, 'text')}"
    if summary.compressed is None:
        reason = summary.failure.reason if summary.failure is not None else ""
        return Report(title, f"There is no summary: {reason}", [])
    compressed = summary.compressed
    dropped = summary.dropped
    length = f"{compressed.tokens:,} of {spec.budget:,} tokens"
    source = f"{compressed.characters:,} characters"
    levels = wording.count(compressed.levels, "level")
    calls = wording.count(compressed.calls, "call")
    sentence = f"{length}, of {source}, in {levels} and {calls}."
    if not compressed.levels:
        sentence = f"{length}: the text fits already, so no model was called."
    lost = {
        "Chunks without an answer": len(dropped.failed),
        "Answers that were cut": dropped.cuts,
        "Because": "; ".join(dict.fromkeys(chunk.reason for chunk in dropped.failed)),
    }
    facts = {name: str(value) for name, value in lost.items() if value}

    return Report(title, sentence, [Texts("Summary", [("", compressed.text)])], facts)


def data(_spec: SummarizeSpec, summary: Summary) -> Mapping[str, Any]:
    return {
        "texts": summary.texts,
        **read_fields(summary.compressed, "text", "tokens", "characters", "levels", "calls"),
        "dropped": asdict(summary.dropped),
        "failure": summary.failure and asdict(summary.failure),
    }


def flatten(summary: Summary) -> Iterator[Mapping[str, Any]]:
    yield {
        "texts": summary.texts,
        **read_fields(summary.compressed, "text", "tokens", "characters", "levels", "calls"),
        "failure": record_reason(summary.failure),
        "chunks_failed": len(summary.dropped.failed),
        "answers_cut": summary.dropped.cuts,
    }


STUDY = Study(
    spec=SummarizeSpec,
    cases=read_cases,
    take=lambda _spec, texts, _objects: as_cases(texts),
    asks=ask,
    run=run,
    row=find_row,
    decode=json_decoder(Summary),
    summarise=last_record,
    report=report,
    data=data,
    flat=flatten,
    reads=lambda _spec: lambda case: replace(case, id=""),  # the name of its file
    texts={".txt": lambda _spec, summary: f"{summary.text}\n" if summary.compressed else ""},
)
