"""Export of spans: to a file as OTLP JSON, one line for each span, or to a collector by OTLP over
HTTP.

The environment variables of OpenTelemetry (`OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`,
`OTEL_TRACES_SAMPLER`, `OTEL_EXPORTER_OTLP_HEADERS`, ...) apply as in any program.
"""

from __future__ import annotations

import logging
import os
import re
from base64 import b64decode
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests
from google.protobuf.json_format import MessageToJson
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    SimpleSpanProcessor,
    SpanExporter,
    SpanExportResult,
)
from opentelemetry.trace import Tracer

from textevolve.errors import SettingsError
from textevolve.ledger import log
from textevolve.proxies import find_proxy
from textevolve.texts.prose import join_lines

TRACES_PATH = "/v1/traces"
QUEUE_SIZE = "OTEL_BSP_MAX_QUEUE_SIZE"
LONG_QUEUE = 65_536
"""The environment variable for the number of spans that may wait to be sent, and our default for
it. The default is large, since a run whose answers are in the journal produces spans faster than
they are sent."""
REPORTED = 400
"""The number of characters of a collector's error message that are logged."""
RETRIED = (408, 429)
_ID = re.compile(r'("(?:traceId|spanId|parentSpanId)": )"([^"]*)"')


def open_tracer(name: str, destination: str, collector: str) -> Tracer:
    """Return a tracer with this name. Its spans go to `destination`, a file or an address, or, if
    that is empty, to the `collector` that OpenTelemetry's own variables name. Waiting spans are
    sent when the program ends.

    Raises:
        SettingsError: the file cannot be written, or the address is invalid.
    """
    resource_fields = {} if os.environ.get("OTEL_SERVICE_NAME") else {SERVICE_NAME: name}
    provider = TracerProvider(resource=Resource.create(resource_fields))
    provider.add_span_processor(_open_processor(destination, collector))

    return provider.get_tracer(name)


def _open_processor(destination: str, collector: str) -> SpanProcessor:
    if "://" in destination or not destination:
        parts = urlsplit(destination)
        path = parts.path if parts.path.strip("/") else TRACES_PATH
        address = parts._replace(path=path).geturl() if destination else None
        session = _CollectorSession()
        session.hooks["response"].append(_losses.hear)
        _losses.places.append(_place_of(collector))
        logging.getLogger(OTLPSpanExporter.__module__).addFilter(_losses)
        size = int(os.environ.get(QUEUE_SIZE) or LONG_QUEUE)
        return BatchSpanProcessor(OTLPSpanExporter(address, session=session), max_queue_size=size)

    try:
        with Path(destination).open("a", encoding="utf-8"):
            pass
    except (OSError, ValueError) as error:
        raise SettingsError(f"traces = {destination}: cannot be written ({error})") from None

    return SimpleSpanProcessor(SpanFile(Path(destination)))


class _CollectorSession(requests.Session):
    """A session whose requests go through the same proxies as those to models: the library reads
    the variables by fewer rules, and sends what is for this machine to a proxy, too."""

    def merge_environment_settings(self, url: Any, *args: Any, **options: Any) -> Any:
        merged = super().merge_environment_settings(url, *args, **options)
        proxy = find_proxy(str(url))
        merged["proxies"] = {} if proxy is None else {"all": proxy.url}
        return merged


class LossReport(logging.Filter):
    """A log filter that reports the first loss of spans at each collector with its cause, instead
    of one message of the exporter for each loss. The cause includes the body of the collector's
    response. `places`: the host and port of each collector."""

    def __init__(self) -> None:
        super().__init__()
        self.places: list[str] = []
        self._reported: set[str] = set()

    def hear(self, answer: requests.Response, **_: object) -> None:
        if answer.status_code // 100 == 4 and answer.status_code not in RETRIED:
            cause = f"the collector answers {answer.status_code}: {answer.text}"
            self._report(_place_of(str(answer.url)), cause)

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno >= logging.ERROR and self._reported.isdisjoint(self.places):
            self._report(self.places[-1], record.getMessage())
        return False

    def _report(self, place: str, cause: str) -> None:
        if place not in self._reported:
            self._reported.add(place)
            cause = join_lines(cause)[:REPORTED]
            log.warning("spans are lost, but the run continues: %s: %s", place, cause)


_losses = LossReport()


def _place_of(address: str) -> str:
    """Return the host and port of an address, without a user name and password."""
    return urlsplit(address).netloc.rpartition("@")[2]


class SpanFile(SpanExporter):
    """An exporter that appends spans to a file as they end, in the format of the collector's file
    exporter. Each line is written in one piece, so that several processes may share a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        encoded = MessageToJson(encode_spans(spans), indent=None, use_integers_for_enums=True)
        # OTLP's JSON has ids in hexadecimal, where protobuf's has base64.
        line = _ID.sub(lambda match: f'{match[1]}"{b64decode(match[2]).hex()}"', encoded)
        try:
            with self.path.open("ab", buffering=0) as file:
                file.write(line.encode() + b"\n")
        except OSError as error:
            log.warning("spans are lost: %s cannot be written (%s)", self.path, error)
            return SpanExportResult.FAILURE

        return SpanExportResult.SUCCESS
