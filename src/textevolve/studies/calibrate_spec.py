"""What `calibrate` is told: a prompt or a program, rows, and what scores them."""

from __future__ import annotations

from typing import ClassVar

from pydantic import model_validator

from textevolve.errors import InputError
from textevolve.judge_specs import with_model
from textevolve.judge_texts import check_absolute
from textevolve.loops.calibration.plan import CalibrationPlan
from textevolve.metrics.label_metrics import needs_label, open_metric
from textevolve.spec import option
from textevolve.studies.chained import chains_among
from textevolve.studies.datasets import MappedSpec
from textevolve.user_code import OWN

DEFAULT_JUDGE = "single"


class CalibrateSpec(CalibrationPlan, MappedSpec):
    """Search for a better prompt template, and take it only if its gain on held-out rows is real.

    Known elsewhere as automatic prompt optimisation with textual gradients and beam search
    (ProTeGi).
    """

    kind: ClassVar[str] = "calibrate"

    template: str = option(
        "",
        "A file with the prompt template, in which {names} are placeholders. A chain has its own;"
        " of another program a YAML file of its templates by name.",
        argument=True,
        text="file",
    )
    program: str | None = option(
        None,
        "What is improved in place of a prompt: a chain's file, or MODULE:NAME or FILE.py:NAME of a"
        " chain, a function of prompts and a row, a LangGraph graph, a DSPy module. --model then"
        " answers its prompts.",
        group="Program",
    )
    step: str | None = option(
        None,
        "Of a chain: the step whose template is improved, where it is not to be all of them.",
        group="Program",
    )
    answer: str | None = option(
        None, "Of a program that gives several values: the one that is scored.", group="Program"
    )
    data: str = option(
        "",
        "Rows of values for the placeholders, as JSONL, JSON, CSV or Parquet.",
        short="-d",
        group="Data",
        identity=False,
        reads=True,
    )
    label: str | None = option(
        None, "The column with the right answer, which a metric compares with.", group="Data"
    )
    metric: str | None = option(
        None,
        "What scores an output without a judge: exact, contains, regex:PATTERN, MODULE:FUNCTION.",
        group="Judging",
    )
    judge: str | None = option(
        None,
        "The judge that scores outputs, such as probe+rules; beside a metric it only gives reasons."
        f" With neither, it is {DEFAULT_JUDGE}.",
        short="-j",
        group="Judging",
    )
    second_judge: str | None = option(
        None,
        "A judge that the search never sees: it reports on the held-out rows.",
        group="Judging",
    )
    judge_model: str | None = option(
        None, "The model for judges that name none, where it is not --model.", group="Models"
    )
    group: str | None = option(
        None,
        "A column: rows in which it is the same are never parted into search and validation.",
        group="Data",
    )
    validation: float | None = option(
        None,
        "Share of the rows that is held out of the search; by default two thirds to three quarters,"
        " by their number.",
        group="Search",
        gt=0,
        lt=1,
    )

    @model_validator(mode="after")
    def _usable(self) -> CalibrateSpec:
        if self.program is not None and chains_among(self.model):
            raise InputError("--program and a chain as the --model: one of them is too many")
        program = program_of(self)
        if not self.template.strip() and program is None:
            raise InputError("the template is blank: name a file with a prompt template")
        if self.step is not None and program is None:
            raise InputError("--step is of a chain: name the chain with --program")
        if self.answer is not None and program is None:
            raise InputError("--answer is of a program: name it with --program")
        first, second = judges_asked(self)
        if first is not None and first == second:
            raise InputError("the second judge is the first: name another, or another model")
        for judge in (first, second):
            if judge is not None:
                check_absolute(judge)
        if self.metric is not None and not self.metric.startswith(OWN):
            open_metric(self.metric)
            if needs_label(self.metric) and self.label is None:
                raise InputError(f"metric {self.metric}: name the column of the label, too")
        return self


def program_of(spec: CalibrateSpec) -> str | None:
    """The program that is improved in place of a prompt."""
    return spec.program or (None if spec.model == spec.plain_model else spec.model)


def judges_asked(spec: CalibrateSpec) -> tuple[str | None, str | None]:
    """The judge that scores or gives reasons, and the second one."""
    first = spec.judge if spec.judge or spec.metric else DEFAULT_JUDGE
    return (
        first and with_model(first, spec.judge_model),
        spec.second_judge and with_model(spec.second_judge, spec.judge_model),
    )
