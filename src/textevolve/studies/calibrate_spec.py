"""What `calibrate` is told: a prompt, a program or a profile, rows, and what scores them."""

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
from textevolve.studies.profile_program import ProfileOrders
from textevolve.user_code import OWN

DEFAULT_JUDGE = "single"
NOT_OF_PROFILES = (
    *("template", "program", "step", "answer", "label", "metric", "judge", "second_judge"),
    *("judge_model", "group"),
)
"""Options that say nothing where a profile is improved."""


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
    profile: str | None = option(
        None,
        "What is improved in place of a prompt: a debate's profile, shipped or a YAML file; its"
        " personas, its components, and their weights. --data then has items that people judged.",
        short="-p",
        group="Program",
    )
    orders: ProfileOrders = option(
        "both",
        "Of a profile: debate about each item with its candidates as given and reversed, or in one"
        " order that is drawn, which is half of the calls.",
        group="Program",
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

    @property
    def takes_items(self) -> bool:
        return self.profile is not None

    @model_validator(mode="after")
    def _usable(self) -> CalibrateSpec:
        if self.program is not None and chains_among(self.model):
            raise InputError("--program and a chain as the --model: one of them is too many")
        program = program_of(self)
        if self.profile is not None:
            self._check_profile()
            return self
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

    def _check_profile(self) -> None:
        for name in NOT_OF_PROFILES:
            if getattr(self, name):
                named = "a template" if name == "template" else f"--{name.replace('_', '-')}"
                raise InputError(
                    f"--profile and {named}: leave out one of them; what a profile is weighed by"
                    " are people's labels, in the items of --data"
                )
        if self.strategy == "demos":
            raise InputError("--strategy demos is for prompts: a profile has no place for examples")


def program_of(spec: CalibrateSpec) -> str | None:
    """The program that is improved in place of a prompt."""
    return spec.program or (None if spec.model == spec.plain_model else spec.model)


def judges_asked(spec: CalibrateSpec) -> tuple[str | None, str | None]:
    """The judge that scores or gives reasons, and the second one."""
    judged = spec.judge or spec.metric or spec.profile
    first = spec.judge if judged else DEFAULT_JUDGE
    return (
        first and with_model(first, spec.judge_model),
        spec.second_judge and with_model(spec.second_judge, spec.judge_model),
    )
