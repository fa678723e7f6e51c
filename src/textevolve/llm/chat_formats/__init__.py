"""Chat formats (how a model's training writes conversations as text): descriptions of known
formats, rendering, parsing, conversion and detection."""
