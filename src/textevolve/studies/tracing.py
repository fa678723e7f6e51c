"""Tracing of the loops of a run, if it is configured. Without it nothing is loaded.

`loop_spans.py` makes spans of events, `span_export.py` exports them; both need OpenTelemetry.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from os.path import abspath
from typing import TYPE_CHECKING, Any

from textevolve.errors import SettingsError
from textevolve.events import Listener
from textevolve.settings import Settings
from textevolve.studies.study import AnyStudy

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

NAME = "textevolve"


@contextmanager
def trace_loops(
    study: AnyStudy, run_id: str, settings: Settings, listener: Listener
) -> Generator[tuple[Listener, Callable[[Any], None]]]:
    """Return the listener of a run, which also makes spans of its loop's events if that is
    configured, and a function that adds its records to them.

    Raises:
        SettingsError: spans cannot go where the settings say.
    """
    tracer = _find_tracer(settings) if study.steps else None
    if study.steps is None or tracer is None:
        yield listener, lambda _record: None
        return
    from textevolve.studies.loop_spans import LoopSpans

    spans = LoopSpans(tracer, study, study.steps, run_id, listener)
    try:
        yield spans, spans.keep
    except BaseException as error:
        spans.end(error)
        raise
    spans.end()


def _find_tracer(settings: Settings) -> Tracer | None:
    """Find the tracer of the settings, or of the provider that the program has set up."""
    if settings.traces is not None:
        try:
            from textevolve.studies.span_export import open_tracer
        except ImportError:
            raise SettingsError(
                f"traces = {settings.traces}: needs OpenTelemetry; install textevolve[traces]"
            ) from None
        is_address = "://" in settings.traces
        return open_tracer(settings.traces if is_address else abspath(settings.traces), NAME)
    if "opentelemetry.trace" not in sys.modules:
        return None
    api = importlib.import_module("opentelemetry.trace")
    provider = api.get_tracer_provider()
    idle = isinstance(provider, api.ProxyTracerProvider | api.NoOpTracerProvider)
    return None if idle else provider.get_tracer(NAME)
