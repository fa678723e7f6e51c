"""The optimisers that `optimizers.py` compares, each on a simulation, in this process.

An arm is a function of a simulation (whose budget it has to keep) and its settings that gives what
it would return to its user. MIPROv2 needs packages that do not go with ours, and is in
`optimizer_miprov2.py`, which runs in an environment of its own.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, TypeVar

from gepa.core.adapter import EvaluationBatch, GEPAAdapter

from optimizer_simulator import BudgetSpent, Row, Simulation, fill
from textevolve.errors import BudgetError
from textevolve.evaluation import Case, Evaluation, EvaluationResult, Usage
from textevolve.llm.model import Request, Response
from textevolve.loops.attempt import PlainEvaluation
from textevolve.loops.calibration.optimizing import search_template
from textevolve.loops.calibration.plan import CalibrationContext, CalibrationPlan, CalibrationResult
from textevolve.loops.calibration.rewriting import Editor, RewritingRules, rewrite
from textevolve.loops.calibration.trial_runner import (
    PROMPT,
    Material,
    part_examples,
    plain_prompt,
    take_examples,
)
from textevolve.metrics.label_metrics import Grader

_GEPA: Any = import_module("gepa")  # its types are incomplete
D = TypeVar("D")
IDLE = 200
PARAPHRASE = "Say the same in other words, more clearly for the one who has to do it."
_SECTION = re.compile(
    r"\[\[(?P<nonce>\w+) (?P<name>[^\]\n]*)\]\]\n(?P<text>.*?)\[\[/(?P=nonce) ", re.S
)
BLOCK = re.compile(r"```\n?(.*?)```", re.S)


@dataclass(frozen=True, slots=True)
class Returned:
    """What an optimiser returns: the prompt, and what else is to be known of how it came about.
    `leader`: what it would have returned without a test; `accepted`: whether it replaces the
    original; `detail`: for whoever looks into a single run."""

    prompt: str
    leader: str = ""
    accepted: bool = True
    detail: str = ""


@dataclass
class Simulated:
    """Generator and editor as our `Model`s. The kind of a call is told by its schema: a list of
    texts is instructions, a text is a template, and no schema is an answer to a ticket."""

    simulation: Simulation
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


def material_of(simulation: Simulation, share: float | None = None) -> Material:
    rows = [
        (str(row.number), {"ticket": row.ticket, "label": row.label}) for row in simulation.given
    ]
    examples, columns = take_examples(simulation.template, rows, label="label")
    return part_examples(simulation.template, examples, columns, "label", share, None)


def calibrate(simulation: Simulation, plan: Mapping[str, Any]) -> Returned:
    """Ours. Where the world has a judge it gives the scores; else the metric does."""
    result = asyncio.run(_calibrate(simulation, plan))
    leader = result.nodes[result.leader].text
    chosen = leader if result.accepted else simulation.template
    return Returned(chosen, leader, result.accepted, describe(result, simulation))


async def _calibrate(simulation: Simulation, plan: Mapping[str, Any]) -> CalibrationResult:
    fields: dict[str, Any] = {"seed": simulation.seed, **plan}
    if "budget" in CalibrationPlan.model_fields and "strategy" in fields:
        fields.setdefault("budget", simulation.budget or None)
    model = Simulated(simulation)

    def metric(output: str, label: Any) -> EvaluationResult:
        score = simulation.grade(output, str(label))
        return EvaluationResult(score, score >= 0.5, f"The right answer is {label}.")

    async def judge(case: Case, /) -> Evaluation:
        results = list[EvaluationResult]()
        for text in case.candidates:
            number = int(re.findall(r"ticket r(\d+)", case.input)[-1])
            try:
                score, feedback = simulation.judge(number, text)
            except BudgetSpent as error:
                raise BudgetError(str(error)) from None
            results.append(EvaluationResult(score, score >= 0.5, feedback))
        return PlainEvaluation(tuple(results), Usage(len(results)))

    context = CalibrationContext(
        generator=model,
        editor=model,
        evaluator=judge if simulation.world.judged else None,
        metric=None if simulation.world.judged else Grader(metric),
    )
    return await search_template(material_of(simulation), CalibrationPlan(**fields), context)


def describe(result: CalibrationResult, simulation: Simulation) -> str:
    lines = [
        f"stopped {result.stopped} {result.reason}; rounds {result.rounds}; gain {result.gain}"
    ]
    for node in result.nodes:
        quality = simulation.quality(node.text)
        lines.append(
            f"  {node.number} <- {node.parent} r{node.round} {getattr(node, 'operator', '')}"
            f" quality {quality:.2f}"
            f" {[(p.stage, p.round, p.mean, p.asked, p.kept) for p in node.placings]}"
            f" {node.fault}"
        )
    return "\n".join(lines)


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
class TicketAdapter(ReflectingAdapter[Row]):
    """GEPA's view of the simulation: the whole template is the only component, and the reflective
    data set has its default adapter's three fields."""

    simulation: Simulation
    remembered: dict[tuple[str, int], str] = field(default_factory=dict[tuple[str, int], str])
    propose_new_texts = None

    def evaluate(
        self, batch: list[Row], candidate: dict[str, str], capture_traces: bool = False
    ) -> EvaluationBatch[dict[str, Any], str]:
        outputs, scores, traces = list[str](), list[float](), list[dict[str, Any]]()
        for row in batch:
            output = self._output(candidate["prompt"], row)
            if self.simulation.world.judged:
                score, feedback = self.simulation.judge(row.number, output)
            else:
                score = self.simulation.grade(output, row.label)
                feedback = f"The right answer is {row.label}."
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


@dataclass(frozen=True, slots=True)
class GepaSettings:
    """`validation`: rows of the given ones for its Pareto set; 0: all rows serve as both.
    `minibatch`: of reflection. `merge`, `selector`, `lenient`: its options of like names."""

    validation: int = 20
    minibatch: int = 3
    merge: bool = False
    selector: str = "pareto"
    lenient: bool = False

    def __str__(self) -> str:
        more = "".join(
            f", {text}"
            for text, is_set in (
                ("merge", self.merge),
                (self.selector, self.selector != "pareto"),
                ("equal is enough", self.lenient),
            )
            if is_set
        )
        return f"validation {self.validation or 'all'}, minibatch {self.minibatch}{more}"


class Silent:
    """GEPA's log, which nobody reads here."""

    def log(self, message: str) -> None:
        pass


def optimize_with_gepa(
    template: str,
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

    def stop(_: Any) -> bool:
        now = calls_left()
        seen["idle"] = seen["idle"] + 1 if now == seen["left"] else 0
        seen["left"] = now
        return now <= 0 or seen["idle"] >= IDLE

    return _GEPA.optimize(
        seed_candidate={"prompt": template},
        trainset=list(rows[settings.validation :]),
        valset=list(rows[: settings.validation] or rows),
        adapter=adapter,
        reflection_lm=reflect,
        reflection_minibatch_size=settings.minibatch,
        candidate_selection_strategy=settings.selector,
        use_merge=settings.merge,
        acceptance_criterion="improvement_or_equal" if settings.lenient else "strict_improvement",
        cache_evaluation=True,
        raise_on_exception=False,
        stop_callbacks=stop,
        logger=Silent(),
        seed=seed,
    )


def best_of(result: Any) -> str:
    """The prompt that GEPA returns."""
    best = result.best_candidate
    return best if isinstance(best, str) else best["prompt"]


def run_gepa(simulation: Simulation, settings: GepaSettings = GepaSettings()) -> Returned:
    def reflect(prompt: Any) -> str:
        blocks = BLOCK.findall(str(prompt))
        new = simulation.rewrite(blocks[0], "\n".join(blocks[1:]), simulation.spent)
        return f"```\n{new}\n```"

    try:
        result = optimize_with_gepa(
            simulation.template,
            simulation.given,
            TicketAdapter(simulation),
            reflect,
            lambda: simulation.left,
            settings,
            simulation.seed,
        )
    except BudgetSpent:  # not even the original was tried on all rows of validation
        return Returned(simulation.template, simulation.template, False)
    text = best_of(result)
    lines = [
        f"{n} <- {result.parents[n]} on validation {result.val_aggregate_scores[n]:.2f}"
        f" quality {simulation.quality(c['prompt']):.2f}"
        f" after {result.discovery_eval_counts[n]} evaluations"
        for n, c in enumerate(result.candidates)
    ]
    return Returned(text, text, text != simulation.template, "\n".join(lines))


def run_paraphrases(simulation: Simulation, count: int = 6) -> Returned:
    """The best of some rewordings and the original, each on as many rows as there are calls for."""

    async def reword() -> list[str]:
        material = material_of(simulation)
        rules = RewritingRules(material.template, material.names, material.columns)
        editor = Editor(Simulated(simulation), {PROMPT: rules}, simulation.seed)
        templates = plain_prompt(simulation.template)
        rewrites = [
            await rewrite(editor, templates, (PARAPHRASE,), PROMPT, 9000 + n) for n in range(count)
        ]
        return [rewritten.text for rewritten in rewrites if rewritten.text and not rewritten.note]

    arms = list(dict.fromkeys((simulation.template, *asyncio.run(reword()))))
    each = min(len(simulation.given), simulation.left // len(arms))
    totals = [
        sum(
            simulation.grade(simulation.generate(fill(a, r)), r.label)
            for r in simulation.given[:each]
        )
        for a in arms
    ]
    best = arms[max(range(len(arms)), key=lambda n: (totals[n], -n))]
    return Returned(best, best, best != simulation.template)


def run_demonstrations(simulation: Simulation, size: int = 4) -> Returned:
    """Sets of labelled rows above the original, drawn at random, and the best of those on the other
    rows; each on as many as there are calls for, 30 at most. No editor."""
    rows, best = simulation.given, (-1.0, simulation.template)
    tried = max(2, min(16, simulation.left // 20))
    each = min(30, simulation.left // tried)
    for n in range(tried):
        order = sorted(rows, key=lambda row: simulation.unit("pasted", n, row.number))
        demos = [f"{row.ticket}\n{row.label}" for row in order[:size]] if n else []
        prompt = "\n\n".join([*demos, simulation.template])
        tried_rows = order[-each:]
        scores = [
            simulation.grade(simulation.generate(fill(prompt, row)), row.label)
            for row in tried_rows
        ]
        best = max(best, (sum(scores) / each, prompt), key=lambda pair: pair[0])
    return Returned(best[1], best[1], best[1] != simulation.template)


Arm = Callable[[Simulation], Returned]
