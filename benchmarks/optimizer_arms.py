"""The optimisers that `optimizers.py` compares, each on a simulation, in this process.

An arm is a function of a simulation (whose budget it has to keep) and its settings that gives what
it would return to its user.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, TypeAlias, TypeVar

from gepa.core.adapter import EvaluationBatch, GEPAAdapter

from optimizer_families import STEPS, FamilyTask, StepsTask
from optimizer_simulator import BudgetSpent, Row, Simulation, fill
from textevolve.errors import BudgetError
from textevolve.evaluation import EvaluationResult, Usage
from textevolve.llm.chains.scope import PromptUse
from textevolve.llm.model import Request, Response
from textevolve.loops.calibration.optimizing import search_template
from textevolve.loops.calibration.plan import CalibrationContext, CalibrationPlan, CalibrationResult
from textevolve.loops.calibration.trial_runner import (
    PROMPT,
    Example,
    Material,
    ProgramNames,
    ProgramOutput,
    Templates,
    part_examples,
    take_examples,
)
from textevolve.metrics.label_metrics import Grader

_GEPA: Any = import_module("gepa")  # its types are incomplete
D = TypeVar("D")
Task: TypeAlias = Simulation | FamilyTask
IDLE = 200
ONE_CALL = Usage(1, 1, 0, 1)
_SECTION = re.compile(
    r"\[\[(?P<nonce>\w+) (?P<name>[^\]\n]*)\]\]\n(?P<text>.*?)\[\[/(?P=nonce) ", re.S
)
BLOCK = re.compile(r"```\n?(.*?)```", re.S)


@dataclass(frozen=True, slots=True)
class Returned:
    """What an optimiser returns: the templates by name. `leader`: what it would have returned
    without a test; `accepted`: whether it replaces the original."""

    prompt: Mapping[str, str]
    leader: Mapping[str, str]
    accepted: bool = True


@dataclass
class Simulated:
    """Generator and editor as our `Model`s. The kind of a call is told by its schema: a list of
    texts is instructions, a text is a template, and no schema is an answer to a ticket."""

    simulation: Task
    name: str = "simulated"

    async def __call__(self, request: Request, /) -> Response:
        await asyncio.sleep(0)
        prompt = request.messages[-1].text
        try:
            text = self._answer(request, prompt)
        except BudgetSpent as error:
            raise BudgetError(str(error)) from None
        usage = Usage(1, max(1, len(prompt) // 4), 0, max(1, len(text) // 4))
        return Response(text, "stop", usage)

    def _answer(self, request: Request, prompt: str) -> str:
        if request.schema is None:
            return self.simulation.generate(prompt)
        sample = (request.sample, request.seed)
        fields = json.loads(request.schema)["properties"]
        lists = {name: field for name, field in fields.items() if field.get("type") == "array"}
        if len(lists) == len(fields):
            answer: dict[str, Any] = {
                name: self.simulation.instruct(prompt, sample, field.get("maxItems", 10))
                for name, field in lists.items()
            }
        else:  # a template, whatever else is asked for beside it
            new = self.simulation.rewrite(*part(prompt), sample)
            answer = {name: ["Mend what fails."] if name in lists else new for name in fields}
        return json.dumps(answer)


def part(prompt: str) -> tuple[str, str]:
    """The template in a prompt of ours, and all else that is shown in it."""
    sections = list(_SECTION.finditer(prompt))
    templates = [s["text"] for s in sections if "template" in s["name"]]
    other_texts = [s["text"] for s in sections if "template" not in s["name"]]
    return (templates[0] if templates else ""), "\n".join([*other_texts, *templates[1:]])


@dataclass
class StepsProgram:
    """The program of two steps, as ours runs it; each step that is asked counts as a call."""

    task: StepsTask
    templates = Templates(tuple(STEPS.items()))

    async def ask(
        self, templates: Templates, example: Example, count: Callable[[Usage], None], /
    ) -> ProgramOutput:
        await asyncio.sleep(0)
        uses = list[PromptUse]()
        text = example.values["ticket"]
        for name, placeholder in (("facts", "{ticket}"), ("answer", "{facts}")):
            prompt = templates[name].replace(placeholder, text)
            text, called = self.task.ask(prompt)
            count(ONE_CALL if called else Usage())
            uses.append(PromptUse(name, prompt, text))
        return ProgramOutput(Response(text, "stop", ONE_CALL), tuple(uses))

    def show(self, templates: Templates, example: Example, /) -> str:
        return example.values["ticket"]


def program_of(simulation: Task) -> StepsProgram | None:
    return StepsProgram(simulation) if isinstance(simulation, StepsTask) else None


def quality_of(simulation: Task, templates: Mapping[str, str]) -> float:
    """The true quality of a prompt, or of the templates of a program."""
    if isinstance(simulation, StepsTask):
        return simulation.quality_of(templates)
    return simulation.quality(templates[PROMPT])


def explain(simulation: Task, output: str, label: str) -> tuple[float, str]:
    """Score and explanation of an output by the task's metric."""
    if isinstance(simulation, FamilyTask):
        return simulation.explain(output)
    return simulation.grade(output, label), f"The right answer is {label}."


def material_of(simulation: Task, share: float | None = None) -> Material:
    rows = [
        (str(row.number), {"ticket": row.ticket, "label": row.label}) for row in simulation.given
    ]
    names = None
    template = simulation.template
    if isinstance(simulation, StepsTask):
        names = ProgramNames(("ticket",), (("facts", ("ticket",)), ("answer", ("facts",))), True)
        template = "\n\n".join(STEPS.values())
    examples, columns = take_examples(template, rows, label="label", program=names)
    return part_examples(template, examples, columns, "label", share, names)


def original_of(simulation: Task) -> dict[str, str]:
    """The templates to begin with, by name."""
    if isinstance(simulation, StepsTask):
        return dict(STEPS)
    return {PROMPT: simulation.template}


def calibrate(simulation: Task, plan: Mapping[str, Any]) -> Returned:
    """Ours, by the task's metric."""
    result = asyncio.run(_calibrate(simulation, plan))
    leader = dict(result.nodes[result.leader].templates.parts)
    return Returned(result.templates, leader, result.accepted)


async def _calibrate(simulation: Task, plan: Mapping[str, Any]) -> CalibrationResult:
    fields: dict[str, Any] = {"seed": simulation.seed, **plan}
    if "budget" in CalibrationPlan.model_fields and "strategy" in fields:
        fields.setdefault("budget", simulation.budget or None)
    model = Simulated(simulation)

    def metric(output: str, label: Any) -> EvaluationResult:
        score, feedback = explain(simulation, output, str(label))
        return EvaluationResult(score, score >= 0.5, feedback)

    context = CalibrationContext(
        generator=model,
        editor=model,
        metric=Grader(metric),
        program=program_of(simulation),
    )
    return await search_template(material_of(simulation), CalibrationPlan(**fields), context)


class ReflectingAdapter(GEPAAdapter[D, dict[str, Any], str]):
    """Shows GEPA's editor all that was traced."""

    def make_reflective_dataset(
        self,
        candidate: dict[str, str],
        eval_batch: EvaluationBatch[dict[str, Any], str],
        components_to_update: list[str],
    ) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        return {name: list(eval_batch.trajectories or ()) for name in components_to_update}


@dataclass
class TicketAdapter(ReflectingAdapter[Any]):
    """GEPA's view of a task: each template is a component, and the reflective data set has its
    default adapter's three fields."""

    simulation: Task
    remembered: dict[tuple[str, int], str] = field(default_factory=dict[tuple[str, int], str])
    propose_new_texts = None

    def evaluate(
        self, batch: list[Any], candidate: dict[str, str], capture_traces: bool = False
    ) -> EvaluationBatch[dict[str, Any], str]:
        outputs, scores, traces = list[str](), list[float](), list[dict[str, Any]]()
        for row in batch:
            if isinstance(self.simulation, StepsTask):
                output = self._run_steps(self.simulation, candidate, row)
            else:
                output = self._output(candidate[PROMPT], row)
            score, feedback = explain(self.simulation, output, row.label)
            if isinstance(self.simulation, FamilyTask):
                feedback += f" The right answer is {row.label}."
            outputs.append(output)
            scores.append(score)
            traces.append({"Inputs": row.ticket, "Generated Outputs": output, "Feedback": feedback})
        return EvaluationBatch(outputs, scores, traces if capture_traces else None)

    def _output(self, prompt: str, row: Row) -> str:
        """What was answered once at temperature 0 is not asked for again, as in ours."""
        key = (prompt, row.number)
        if key not in self.remembered:
            self.remembered[key] = self.simulation.generate(fill(prompt, row))
        return self.remembered[key]

    def _run_steps(self, task: StepsTask, candidate: Mapping[str, str], row: Any) -> str:
        facts, _ = task.ask(fill(candidate["facts"], row))
        return task.ask(candidate["answer"].replace("{facts}", facts))[0]


@dataclass(frozen=True, slots=True)
class GepaSettings:
    """`validation`: rows of the given ones for its Pareto set; 0: all rows serve as both.
    `minibatch`: of reflection. `lenient`: whether an equal score is accepted."""

    validation: int = 20
    minibatch: int = 3
    lenient: bool = False

    def __str__(self) -> str:
        more = ", equal is enough" if self.lenient else ""
        return f"validation {self.validation or 'all'}, minibatch {self.minibatch}{more}"


class Silent:
    """GEPA's log, which nobody reads here."""

    def log(self, message: str) -> None:
        pass


def optimize_with_gepa(
    templates: Mapping[str, str],
    rows: Sequence[Any],
    adapter: Any,
    reflect: Callable[[Any], str],
    calls_left: Callable[[], int],
    settings: GepaSettings,
    seed: int,
) -> Any:
    """GEPA's own result. It works until no call is left (or it makes none any more, since every
    minibatch is perfect): an iteration that a refused call cuts short is lost, and none is thrown
    away on a forecast. Its cache is on."""
    seen = {"left": -1, "idle": 0}
    validation = min(settings.validation, len(rows) // 2)

    def stop(_: Any) -> bool:
        now = calls_left()
        seen["idle"] = seen["idle"] + 1 if now == seen["left"] else 0
        seen["left"] = now
        return now <= 0 or seen["idle"] >= IDLE

    return _GEPA.optimize(
        seed_candidate=dict(templates),
        trainset=list(rows[validation:]),
        valset=list(rows[:validation] or rows),
        adapter=adapter,
        reflection_lm=reflect,
        reflection_minibatch_size=settings.minibatch,
        acceptance_criterion="improvement_or_equal" if settings.lenient else "strict_improvement",
        cache_evaluation=True,
        raise_on_exception=False,
        stop_callbacks=stop,
        logger=Silent(),
        seed=seed,
    )


def best_of(result: Any) -> dict[str, str]:
    """The templates that GEPA returns."""
    best = result.best_candidate
    return {PROMPT: best} if isinstance(best, str) else dict(best)


def run_gepa(simulation: Task, settings: GepaSettings = GepaSettings()) -> Returned:
    def reflect(prompt: Any) -> str:
        blocks = BLOCK.findall(str(prompt))
        new = simulation.rewrite(blocks[0].strip(), "\n".join(blocks[1:]), simulation.spent)
        return f"```\n{new}\n```"

    original = original_of(simulation)
    try:
        result = optimize_with_gepa(
            original,
            simulation.given,
            TicketAdapter(simulation),
            reflect,
            lambda: simulation.left,
            settings,
            simulation.seed,
        )
    except BudgetSpent:  # not even the original was tried on all rows of validation
        return Returned(original, original, False)
    templates = best_of(result)
    return Returned(templates, templates, templates != original)
