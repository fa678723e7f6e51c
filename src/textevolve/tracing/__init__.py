"""Tracing with OpenTelemetry: whether a run is traced, what its spans hold, and where they go."""
