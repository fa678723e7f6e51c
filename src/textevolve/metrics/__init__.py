"""Metrics that need no model: code that scores an output from 0 to 1, by the label of its row, by
the recorded tool calls, or by itself."""
