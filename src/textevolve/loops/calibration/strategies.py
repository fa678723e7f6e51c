"""The strategies of a search by their names: each grows the tree in its own way."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from textevolve.loops.attempt import StopReason
from textevolve.loops.calibration.hill_climbing import improve
from textevolve.loops.calibration.operators import DEMOS, REFLECT
from textevolve.loops.calibration.plan import StrategyName
from textevolve.loops.calibration.protegi import climb
from textevolve.loops.calibration.search import TemplateSearch

STRATEGIES: Mapping[StrategyName, Callable[[TemplateSearch], Awaitable[StopReason]]] = {
    "auto": partial(improve, operators=(DEMOS, REFLECT)),
    "reflect": partial(improve, operators=(REFLECT,)),
    "demos": partial(improve, operators=(DEMOS,)),
    "protegi": climb,
}
