"""Functions on texts that need no model: words and sentences, numbers, dates, pattern searches,
splitting, YAML with line numbers, and JSON checked by a schema."""
