"""Tracing with OpenTelemetry. `opening.py` decides whether a run is traced, `recording.py` defines
the content of spans, and `span_export.py` sends them to a file or a collector."""
