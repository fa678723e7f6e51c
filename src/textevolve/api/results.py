"""The result of `evaluate`, the same for all judges, and what all results have in common."""

from __future__ import annotations

import json
import os
from abc import abstractmethod
from collections.abc import AsyncIterable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from textevolve.debate.profile import Profile
from textevolve.errors import InputError
from textevolve.evaluation import (
    Case,
    EvaluationResult,
    Failure,
    Figure,
    Result,
    Usage,
    empty_default,
    select_failure,
)
from textevolve.judges.judge import Judge, quote_value, read_judge
from textevolve.judges.rubric import is_rubric_name
from textevolve.mappings import drop_none
from textevolve.rows.writing import frame_rows
from textevolve.runs.study import AnyStudy, StudySpec, find_study
from textevolve.showing import Drawing, TableRows
from textevolve.spec import Frozen
from textevolve.studies.evaluate_spec import DebateParameters, WholeProfile, name_none
from textevolve.user_code import name_object

if TYPE_CHECKING:
    from textevolve.debate.result import DebateResult
    from textevolve.judges.opening import JudgedCase
    from textevolve.store.runs import RunRecord


# Python objects of the user's program as arguments of verbs: functions, evaluators and judges.
#
# A study's specification is data, so it contains a name instead of the object; `Objects` maps the
# names to the objects.


class JudgeOptions(Frozen):
    """The base class of judges that are written as objects, such as `Debate(rounds=2)`. `model`:
    the spec of the model that the judge calls; None: the model of the verb, the client or the
    settings. `rubric`: what the judge pays attention to; None: the judge's own rubric."""

    model: str | None = None
    rubric: str | None = None

    @property
    @abstractmethod
    def text(self) -> str:
        """The judge's spec as a text, such as `probe+rules@MODEL`."""

    @property
    @abstractmethod
    def fields(self) -> dict[str, Any]:
        """The fields of `EvaluateSpec` that this judge sets."""


@dataclass
class Objects:
    """The user's Python objects. `by_name`: each object by the name that represents it in a
    specification."""

    by_name: dict[str, object] = empty_default(dict)

    def name(self, value: Any) -> Any:
        """Register an object, and return its name for specifications. A text, a mapping (the fields
        of a target) and None are returned unchanged; a judge such as `Debate(rounds=2)` becomes its
        text."""
        if value is None or isinstance(value, str | Mapping):
            return cast("Any", value)
        if isinstance(value, JudgeOptions):
            return value.text
        if isinstance(value, Judge):
            return read_judge(value).text
        first = name = name_object(value)
        number = 1
        while self.by_name.get(name, value) is not value:  # as of two lambdas side by side
            number += 1
            name = f"{first}#{number}"
        self.by_name[name] = value

        return name

    def name_all(self, values: Any) -> tuple[Any, ...]:
        """Register one object or several, and return their names for specifications."""
        several: list[Any] = [values]
        if isinstance(values, Iterable) and not isinstance(values, str | Mapping | JudgeOptions):
            several = list(cast("Iterable[Any]", values))
        return tuple(name for name in map(self.name, several) if name is not None)


def list_images(name: str, images: Iterable[Any]) -> list[Any]:
    """Return images as a list.

    Raises:
        InputError: it is a single image.
    """
    if isinstance(images, str | bytes | os.PathLike):
        raise InputError(f"{name} must be a list of images, not a single image")
    return list(images)


def take_candidates(candidates: object) -> tuple[str, ...]:
    """Return the candidates of a case; one text is one candidate.

    Raises:
        InputError: they are no texts.
    """
    if isinstance(candidates, str):
        return (candidates,)
    if isinstance(candidates, Iterable) and not isinstance(candidates, Mapping | bytes):
        return tuple(cast("Iterable[str]", candidates))
    kind = type(cast(object, candidates)).__name__
    raise InputError(f"candidates must be a list of texts, or one text, not {kind}")


# Judges as Python objects with options, for example in `evaluate(..., judge=Debate(rounds=2))`.


class Debate(JudgeOptions, DebateParameters):
    """A debate of agents as a judge. `profile`: the name of a shipped profile, a YAML file or a
    `Profile`, which sets agents and components. All other options override the profile. For
    `convergence`, `history_rounds`, `sampling_temperature`, `argument_words` and `decider` None is
    a value of its own, not the default."""

    profile: WholeProfile | None = None

    def __init__(self, **options: Any) -> None:
        super().__init__(**name_none(options))

    @property
    def fields(self) -> dict[str, Any]:
        # In the order of the class, so that the text is the same in every process.
        names = type(self).model_fields
        return {name: getattr(self, name) for name in names if name in self.model_fields_set}

    @property
    def text(self) -> str:
        options = drop_none(self.fields)
        profile: str | Profile = options.pop("profile", "")
        model = options.pop("model", "")
        is_name = isinstance(profile, str)
        written = profile if is_name else profile.model_dump_json(exclude_defaults=True)
        head = f"debate:{quote_value(written)}" if written else "debate"
        rubric = options.pop("rubric", "")
        parts = [f"{name}={quote_value(value)}" for name, value in options.items()]
        if rubric:
            parts.append(f"rubric={_quote_rubric(rubric)}")

        return "+".join([head, *parts]) + (f"@{model}" if model else "")


def _quote_rubric(rubric: str) -> str:
    """Return a rubric as the text of a judge has it: quoted, unless it is a shipped one's name."""
    if is_rubric_name(rubric):
        return rubric
    # Without the space an @ would name a file.
    return json.dumps(f" {rubric}" if rubric.startswith("@") else rubric, ensure_ascii=False)


T = TypeVar("T")


@dataclass(frozen=True, repr=False)
class CaseResult(Result):
    """The result of judging one case, with the judgement of each candidate.

    Attributes:
        record: The complete result, as it is stored.
        run: The id of the run.
        debate: The debate with its tensor of scores; None for other judges.
        by_judge: If several judges judged the case, the result of each by its text; this result is
            that of the first.
    """

    record: DebateResult | JudgedCase
    run: str
    debate: DebateResult | None = None
    by_judge: Mapping[str, CaseResult] = empty_default(dict)

    def __repr__(self) -> str:
        return repr(self.record)

    @property
    def case(self) -> Case:
        return self.record.case

    @property
    def judge(self) -> str:
        """The judge of this result if several judge each case; otherwise empty."""
        return getattr(self.record, "judge", "")

    @property
    def index(self) -> int:
        """The position of the case in its run, from 0."""
        return self.record.index

    @property
    def best(self) -> int | None:
        """The index of the best candidate; None if no candidate is best."""
        return self.record.best

    @property
    def result(self) -> tuple[EvaluationResult | Failure, ...]:
        """The judgement of each candidate, or the failure to judge it."""
        return self.record.result

    @property
    def scores(self) -> tuple[float | None, ...]:
        """The score of each candidate, in [0, 1]; None for a candidate without a score."""
        return tuple(outcome.score for outcome in self.record.outcomes)

    @property
    def feedback(self) -> tuple[str, ...]:
        """The judge's feedback on each candidate, or the reason for a missing score."""
        return tuple(outcome.feedback for outcome in self.result)

    @property
    def failure(self) -> Failure | None:
        """The failure of the first candidate without a score, one that a limit caused (`skipped`)
        before others; None if all candidates have a score."""
        return select_failure(self.record.outcomes)

    @property
    def usage(self) -> Usage:
        return self.record.usage

    def _repr_html_(self) -> str | None:
        return self.record._repr_html_()  # pyright: ignore[reportPrivateUsage]


def attach_run(result: T, run: RunRecord, records: Sequence[Any]) -> T:
    """Give a result the id of its run, and the functions that compute its table and its figures
    from the run's records; return the result."""
    if isinstance(result, Result):
        vars(result).update(
            run=run.id,
            _rows=partial(_read_rows, run, records),
            _figures=partial(_read_figures, run, records),
            _plots=partial(_draw_plots, run, records),
        )

    return result


async def collect_result(
    study: AnyStudy, spec: StudySpec, run: RunRecord, records: AsyncIterable[Any]
) -> Any:
    """Return the result of a run, whose records come in any order; the last one of a key counts."""
    latest: dict[str, Any] = {}
    async for record in records:
        latest[study.row(record).key] = attach_run(record, run, [record])
    ordered = sorted(latest.values(), key=lambda record: study.row(record).position)

    return attach_run(study.summarise(spec, ordered), run, ordered)


def _read_rows(run: RunRecord, records: Sequence[Any]) -> TableRows:
    return frame_rows(find_study(run.spec["kind"]).table(records))


def _read_figures(run: RunRecord, records: Sequence[Any]) -> Mapping[str, Figure]:
    return _report("make_data", run, records)["aggregates"]


def _draw_plots(run: RunRecord, records: Sequence[Any]) -> Drawing:
    return Drawing(_report("draw_plots", run, records))


def _report(form: str, run: RunRecord, records: Sequence[Any]) -> Any:
    """Make a form of the report of records as the store has them, so that its figures are those of
    `runs show --json`."""
    from textevolve.runs import report, stored

    study_run = stored.StudyRun(run)
    study = study_run.study
    return getattr(report, form)(study_run, lambda: map(study.decode, map(study.encode, records)))
