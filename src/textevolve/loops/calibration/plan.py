"""How a prompt template is searched for, and what the search works with: settings, no work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import field_validator

from textevolve.evaluation import Evaluator
from textevolve.events import Listener, silence
from textevolve.llm.model import Model
from textevolve.loops.calibration.program import Program
from textevolve.loops.calibration.rewriting import SHOWN
from textevolve.loops.calibration.spending import read_budget
from textevolve.loops.calibration.tree import Gain
from textevolve.loops.calibration.trial_runner import CountFailures, JudgedInput
from textevolve.metrics.shapes import LabelMetric
from textevolve.spec import Frozen, option

Compare = Callable[[Sequence[float], Sequence[float]], Gain]
"""What a paired comparison of two lists of scores says, NaN for a missing one: first less second.
Handed in: how a gain is told from chance is for whoever runs the search to say."""

StrategyName = Literal["auto", "reflect", "demos", "protegi"]
PROTEGI = "Beam search (strategy protegi)"


class CalibrationPlan(Frozen):
    """How to search."""

    strategy: StrategyName = option(
        "auto",
        "How templates are searched for: reflect rewrites by what failed, in one call, and tries"
        " on few rows first; demos puts labelled rows in front as examples; auto (the default)"
        " does both and learns what pays; protegi is beam search by written gradients.",
        group="Search",
    )
    budget: str | None = option(
        None,
        "What all of it may take, validation included: a number of calls, such as 200, or of US"
        " dollars, such as $2.50. The search is planned by it.",
        group="Search",
    )
    editor: str | None = option(
        None, "The model that rewrites templates, where it is not --model.", group="Models"
    )
    choice: Literal["argmax", "softmax"] = option(
        "argmax",
        "Which template is rewritten next (auto, reflect, demos): always the best, or one drawn"
        " with odds by its score.",
        group="Search",
    )
    choice_temperature: float = option(
        0.05,
        "Temperature of softmax: the lower, the more often the best is drawn.",
        group="Search",
        gt=0,
    )
    beam: int = option(4, "Templates that are kept after each round.", group=PROTEGI, ge=1)
    depth: int = option(5, "Rounds at most.", group=PROTEGI, ge=1)
    successors: int = option(
        5, "New templates that are written for each one kept.", group=PROTEGI, ge=1
    )
    gradient_depth: int = option(
        10, "Instructions at most that are written for each template.", group="Search", ge=1
    )
    minibatch: int = option(
        5, "Training rows on which the faults of a template are looked for.", group=PROTEGI, ge=1
    )
    selection_minibatch: int = option(
        6, "Training rows on which all templates of a round compete.", group=PROTEGI, ge=1
    )
    final_minibatch: int = option(
        20, "Training rows that name the best template of the last beam.", group=PROTEGI, ge=1
    )
    selection: Literal["fast", "ucb"] = option(
        "fast",
        "How the beam is chosen: fast scores all templates on the same rows at once; ucb spends"
        " half of that on those that look best (bandits).",
        group=PROTEGI,
    )
    judged: JudgedInput = option(
        "seed",
        "What judges see as the input: the original template (seed), the prompt that was filled in"
        " (filled), or each template (template).",
        group="Judging",
    )
    failures: CountFailures = option(
        "zero",
        "What an output counts that is empty or refused, or that the metric cannot read: zero, or"
        " missing, which leaves it out of the means.",
        group="Judging",
    )
    grad_debate_rounds: int = option(
        1,
        "Rounds of a debate, counted from its end, whose arguments whoever writes the instructions"
        " is shown.",
        group="Judging",
        ge=0,
    )
    patience: int = option(
        3,
        "Rounds in a row in which no new template may enter the beam. A round of the other"
        " strategies is as many new templates as --successors says.",
        group="Search",
        ge=1,
    )
    temperature: float | None = option(
        0.0, "Sampling temperature of the outputs.", group="Models", ge=0, le=2
    )
    max_output_tokens: int = option(
        512, "Tokens at most that an output may have.", group="Models", ge=1
    )

    @field_validator("budget")
    @classmethod
    def _readable(cls, given: str | None) -> str | None:
        return given if given is None else str(read_budget(given)).removesuffix(" calls")

    seed: int = option(0, "Seed of the rows that are drawn.", group="Search")


@dataclass(frozen=True)
class CalibrationContext:
    """What the search works with. `generator` answers the prompts, `editor` writes instructions and
    templates. At least one of `evaluator` and `metric`; with both the metric gives the scores and
    the evaluator the reasons. `second_judge` is never optimised against. `time_limit`: in seconds.
    `program`: what is optimised; None: the template alone, which `generator` answers. `shown`:
    characters of all outcomes that one prompt shows the editor.
    """

    generator: Model
    editor: Model
    compare: Compare
    evaluator: Evaluator | None = None
    metric: LabelMetric | None = None
    second_judge: Evaluator | None = None
    concurrency: int = 64
    time_limit: float | None = None
    listener: Listener = silence
    program: Program | None = None
    shown: int = SHOWN
