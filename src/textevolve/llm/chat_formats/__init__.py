"""Chat formats: how a conversation becomes the one text that a model reads, and back.

Here: formats described by their markers and rules, and Jinja chat templates as models publish them.
Not here: prompts of our own (`llm.template`) and calls of models.
"""
