"""What the end of the program, and a fork of it, does to evaluations that are unfinished."""

from __future__ import annotations

import atexit
import logging
import os
import weakref
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from textevolve.node_eval.background import Background

EXIT_WAIT = 5.0
"""Seconds for which the end of the program waits for what is unfinished."""

log = logging.getLogger("textevolve.node_eval")


def keep(background: Background) -> None:
    """Remember it, as long as anything else does."""
    _open.add(background)
    close_first()


def close_first() -> None:
    """What evaluators opened, such as a judge, closes itself at the end of the program: wait for
    the evaluators before that. What is registered last runs first; and what is unregistered leaves
    an empty place behind, so that this is not done for nothing."""
    global _registered
    if _registered != atexit._ncallbacks():  # pyright: ignore[reportPrivateUsage]
        atexit.unregister(_close_all)
        atexit.register(_close_all)
        _registered = atexit._ncallbacks()  # pyright: ignore[reportPrivateUsage]


def _close_all() -> None:
    """Nothing is printed but what is lost."""
    until = monotonic() + EXIT_WAIT
    for background in list(_open):
        if not background.is_done() and not background.close(max(0.0, until - monotonic())):
            log.warning("the program ended before every node was judged: wait with monitor.drain()")


def _restart_all() -> None:
    for background in list(_open):
        background.restart()


_open: weakref.WeakSet[Background] = weakref.WeakSet()
_registered = -1
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_restart_all)
