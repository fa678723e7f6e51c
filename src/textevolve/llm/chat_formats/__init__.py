"""Instruction formats: one description of each, rendering, parsing, conversion and inference."""
