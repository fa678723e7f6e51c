"""DSPy's MIPROv2 on the simulated tasks, in an environment of its own.

    python -m venv build/dspy && build/dspy/bin/pip install dspy optuna
    python benchmarks/optimizers.py --dspy build/dspy/bin/python

`optimizers.py` starts this file and writes orders to its standard input, one JSON list a line:
world, rows, budget, seed, settings. An answer of one line each follows. The settings are
`candidates` (of instructions and of demonstration sets), `training` and `validation` (rows),
`bootstrapped` and `labelled` (demonstrations at most; 0 and 0 is MIPROv2 without demonstrations).

MIPROv2 has no budget of calls. It gets as many trials as fit into what its first two steps leave,
and fewer, of fewer candidates, where that proves too many; what a refused attempt asked is not
counted. What was
answered once is not asked again, as with its cache. Its proposer sees the summary of the data set
and demonstrations, not the program's code, since the code says nothing of the task here and its
descriptions would cost two calls a candidate. It is given no failing answers by design.
"""

# dspy is not installed where types are checked.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import json
import logging
import os
import re
import sys
import warnings
from typing import Any

os.environ.setdefault("DSPY_CACHEDIR", os.path.join(os.path.dirname(sys.executable), "cache"))
warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)

import dspy  # noqa: E402
from dspy.teleprompt import MIPROv2  # noqa: E402

from optimizer_simulator import WORLDS, BudgetSpent, Simulation  # noqa: E402

MOST_TRIALS, ATTEMPTS = 40, 6
_WANTED = re.compile(r"starting with the field `\[\[ ## (\w+) ## \]\]`")
_SECTION = re.compile(r"\[\[ ## basic_instruction ## \]\]\n(.*?)\n\n\[\[ ## ", re.S)
_LABEL = re.compile(r"\br\d+: (?:none|K\d+(?:\+K\d+)*)")
SUMMARIZED = 6


class TooMuch(BaseException):
    """The budget is spent; no `except Exception` may take it for a wrong answer."""


class Simulated(dspy.BaseLM):
    """Generator and editor. Which is asked is told by the field that is wanted."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__("simulated", "chat", 0.0, 1000, False)
        self.simulation = simulation
        self.remembered: dict[str, str] = {}

    def forward(self, prompt: Any = None, messages: Any = None, **kwargs: Any) -> Any:
        text = "\n\n".join(message["content"] for message in messages or [])
        fields = _WANTED.findall(text or str(prompt))
        try:
            answer = self._answer(fields[-1], text, str(messages[-1]["content"]))
        except BudgetSpent as error:
            raise TooMuch(str(error)) from None
        return _shaped(f"[[ ## {fields[-1]} ## ]]\n{answer}\n\n[[ ## completed ## ]]")

    def _answer(self, field: str, text: str, last: str) -> str:
        if field == "answer":
            if text not in self.remembered:
                self.remembered[text] = self.simulation.generate(text)
            return self.remembered[text]
        if field == "proposed_instruction":
            section = _SECTION.search(last)
            current = section[1] if section else ""
            return self.simulation.rewrite(
                current, last.replace(current, ""), self.simulation.spent
            )
        # A summary of what was shown: some of the labels.
        self.simulation.spend("edit")
        return "The answers are such as " + ", ".join(_LABEL.findall(last)[:SUMMARIZED])

    def copy(self, **kwargs: Any) -> Simulated:
        return self


def _shaped(text: str) -> Any:
    from dspy.dsp.utils.utils import dotdict

    message = dotdict(content=text, role="assistant", tool_calls=None)
    choice = dotdict(message=message, finish_reason="stop", index=0, logprobs=None)
    usage = dotdict(prompt_tokens=0, completion_tokens=0, total_tokens=0)
    return dotdict(choices=[choice], usage=usage, model="simulated", _hidden_params={})


def run(simulation: Simulation, settings: dict[str, int], trials: int) -> str:
    """The prompt, but for the ticket, that MIPROv2 returns with so many trials.

    Raises:
        TooMuch: that takes more calls than the budget has.
    """
    lm = Simulated(simulation)
    instructions = simulation.template.replace("{ticket}\n", "").replace("{ticket}", "")
    examples = [
        dspy.Example(ticket=row.ticket, answer=row.label).with_inputs("ticket")
        for row in simulation.given
    ]
    size = settings["validation"]

    def metric(example: Any, prediction: Any, trace: Any = None) -> Any:
        score = simulation.grade(str(prediction.answer), example.answer)
        return score if trace is None else score >= 0.99

    with dspy.context(lm=lm, disable_history=True):
        program = dspy.Predict(dspy.Signature("ticket -> answer", instructions))
        optimizer = MIPROv2(
            metric=metric,
            prompt_model=lm,
            task_model=lm,
            auto=None,
            num_candidates=settings["candidates"],
            max_bootstrapped_demos=settings["bootstrapped"],
            max_labeled_demos=settings["labelled"],
            num_threads=1,
            seed=simulation.seed + 1,
        )
        best = optimizer.compile(
            program,
            trainset=examples[size : size + settings["training"]],
            valset=examples[:size],
            num_trials=trials,
            minibatch=False,
            program_aware_proposer=False,
            view_data_batch_size=10,
        )
    demos = [f"{demo['ticket']}\n{demo['answer']}" for demo in best.demos]
    return "\n".join([best.signature.instructions, *demos])


def optimize(
    world: str, rows: int, budget: int, seed: int, settings: dict[str, int]
) -> list[object]:
    """What `Measured` of optimizers.py has: true quality of what is returned, of what led (the
    same), of the original, whether they differ, and the calls."""
    fixed = settings["training"] + settings["candidates"] + settings["training"] // 10 + 2
    trials = max(1, (budget - fixed) // settings["validation"] - 1)
    simulation = Simulation(WORLDS[world], seed, rows, budget)
    original, text = simulation.quality(simulation.template), simulation.template
    for _ in range(ATTEMPTS):
        simulation = Simulation(WORLDS[world], seed, rows, budget)
        try:
            text = run(simulation, settings, min(trials, MOST_TRIALS))
            break
        except TooMuch:
            trials = max(1, trials * 2 // 3)
            fewer = max(3, settings["candidates"] * 3 // 4)
            settings = {**settings, "candidates": fewer}
    quality = simulation.quality(text)
    return [quality, quality, original, text != simulation.template, simulation.spent]


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    for line in sys.stdin:
        print(json.dumps(optimize(*json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()
