"""Where ArbiterOS has its policies. There are none here, and whoever asks for one is told."""

from __future__ import annotations

from typing import Any

from textevolve.errors import InputError

POLICIES = ("PolicyChecker", "PolicyRouter", "HistoryPolicyChecker", "MetricThresholdPolicyRouter")


def refuse(name: str) -> None:
    """
    Raises:
        InputError: it is one of ArbiterOS's policies.
    """
    if name in POLICIES:
        raise InputError(
            f"{name}: there are no policies here: nodes are judged, never stopped or routed; check"
            " in a node's own code, and route by what monitor.last_feedback(...) says"
        )


def __getattr__(name: str) -> Any:
    refuse(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
