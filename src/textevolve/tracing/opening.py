"""Whether runs are traced, and with what. Without tracing nothing is loaded.

A setting, a variable of OpenTelemetry's that names a collector, or a tracer provider that the
program has set up turns tracing on.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
from functools import cache
from os.path import abspath
from typing import TYPE_CHECKING

from textevolve.errors import SettingsError
from textevolve.settings import Settings
from textevolve.spans import NO_SPAN, Span

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

NAME = "textevolve"
COLLECTOR = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
"""Variables that name a collector."""


def open_tracing(settings: Settings) -> Span:
    """Return the root of the spans of a client, or of none.

    Raises:
        SettingsError: spans cannot go where the settings say.
    """
    tracer = None if _is_disabled() else _find_tracer(settings)
    if tracer is None:
        return NO_SPAN
    from textevolve.tracing.recording import RecordedSpan, records_texts

    return RecordedSpan(tracer, records_texts())


def _is_disabled() -> bool:
    """Tell whether OpenTelemetry's own variables turn tracing off."""
    off = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    return off or os.environ.get("OTEL_TRACES_EXPORTER") == "none"


def _find_tracer(settings: Settings) -> Tracer | None:
    """Find the tracer of the settings, of the provider that the program has set up, or of the
    collector that the environment names."""
    if settings.traces is not None:
        is_address = "://" in settings.traces
        destination = settings.traces if is_address else abspath(settings.traces)
        try:
            from textevolve.tracing.span_export import open_tracer
        except ImportError:
            raise SettingsError(
                f"traces = {settings.traces}: needs OpenTelemetry; install textevolve[traces]"
            ) from None
        return open_tracer(destination, NAME)
    if "opentelemetry.trace" in sys.modules:
        api = importlib.import_module("opentelemetry.trace")
        provider = api.get_tracer_provider()
        if not isinstance(provider, api.ProxyTracerProvider | api.NoOpTracerProvider):
            return provider.get_tracer(NAME)
    named = next(filter(os.environ.get, COLLECTOR), None)
    return None if named is None else _open_collector(named)


@cache
def _open_collector(variable: str) -> Tracer | None:
    """Return a tracer to the collector that a variable names; without OpenTelemetry none, which is
    reported once, since the variable may be meant for other programs."""
    try:
        from textevolve.tracing.span_export import open_tracer
    except ImportError:
        logging.getLogger(NAME).warning(
            "%s is set, and nothing is traced: install textevolve[traces]", variable
        )
        return None
    return open_tracer("", NAME)
