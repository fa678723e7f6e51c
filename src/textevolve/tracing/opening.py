"""The decision whether runs are traced, and with which tracer. OpenTelemetry is imported only if
they are.

Tracing is turned on by a setting, by an environment variable of OpenTelemetry that names a
collector, or by a tracer provider that the program has configured.
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
COLLECTOR = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
"""The environment variables that name a collector."""


def open_tracing(settings: Settings) -> Span:
    """Return the root span for a client's runs; without tracing, a root that records nothing.

    Raises:
        SettingsError: the destination of spans in the settings cannot be used.
    """
    # OpenTelemetry's own variables turn tracing off, whatever the settings say.
    is_off = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    if is_off or os.environ.get("OTEL_TRACES_EXPORTER") == "none":
        return NO_SPAN
    tracer = _find_tracer(settings)
    if tracer is None:
        return NO_SPAN
    from textevolve.tracing.recording import RecordedSpan, records_texts

    return RecordedSpan(tracer, records_texts())


def _find_tracer(settings: Settings) -> Tracer | None:
    """Return the tracer of the settings, of the tracer provider that the program has configured, or
    of the collector that environment variables name; None without tracing."""
    if (place := settings.traces) is not None:
        return _open_tracer(place if "://" in place else abspath(place), f"traces = {place}")
    if "opentelemetry.trace" in sys.modules:
        api = importlib.import_module("opentelemetry.trace")
        provider = api.get_tracer_provider()
        if not isinstance(provider, api.ProxyTracerProvider | api.NoOpTracerProvider):
            return provider.get_tracer(NAME)

    variable = next(filter(os.environ.get, COLLECTOR), None)

    return None if variable is None else _open_tracer("", variable)


@cache
def _open_tracer(destination: str, reason: str) -> Tracer | None:
    """Return a tracer that exports to a destination. If OpenTelemetry is not installed and only an
    environment variable requests tracing, log that once and return None.

    Raises:
        SettingsError: the settings name a destination that cannot be used.
    """
    try:
        from textevolve.tracing.span_export import open_tracer
    except ImportError:
        if destination:
            missing = f"{reason}: needs OpenTelemetry; install textevolve[traces]"
            raise SettingsError(missing) from None
        missing = "%s is set, but tracing is off: install textevolve[traces]"
        logging.getLogger(NAME).warning(missing, reason)
        return None

    return open_tracer(NAME, destination, os.environ.get(reason, destination))
