"""Instruction formats: one description of each, rendering, parsing and conversion."""
