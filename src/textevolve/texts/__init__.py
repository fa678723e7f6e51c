"""Properties of a text that need no model: words and language, matches of a pattern, faults of JSON
by its schema. The rules built on them live in the packages above."""
