"""Chat formats: how a conversation becomes the one text that a model reads, and back.

Here: one description of each instruction format, rendering, parsing, conversion and inference, and
Jinja chat templates as models publish them. Not here: prompts of our own (`llm.template`) and calls
of models.
"""
