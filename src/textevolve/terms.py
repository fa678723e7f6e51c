"""Terms of papers and other tools, with the names that TextEvolve uses for them.

They are separate from specifications, so that the command line can look one up without importing
pydantic.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

TERMS: Mapping[str, str] = {
    "adaptive_threshold": "convergence",
    "convergence_threshold": "convergence",
    "early_stop": "convergence",
    "c": "convergence",
    "window": "history_rounds",
    "window_size": "history_rounds",
    "history": "history_rounds",
    "l": "history_rounds",
    "max_rounds": "rounds",
    "r": "rounds",
    "debaters": "agents",
    "personas": "agents",
    "a": "agents",
    "w": "weights",
    "metrics": "components",
    "criteria": "components",
    "responses": "candidates",
    "outputs": "candidates",
    "critic": "judge",
    "evaluator": "judge",
    "controller": "optimize",
    "up": "innovate",
    "utility_prompting": "innovate",
    "spo": "calibrate",
    "gr": "guide",
    "guided_reasoning": "guide",
}
"""The names of parameters and commands in TextEvolve, by the words of papers and other tools."""


def find_term(word: str, terms: Iterable[str]) -> str | None:
    """Return the TextEvolve name of a term from a paper or another tool; None if it is not in
    `terms`."""
    term = TERMS.get(word.strip().lower().lstrip("-").replace("-", "_"))
    return term if term is not None and term in terms else None
