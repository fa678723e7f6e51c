"""The registry of judges, which a test leaves as it was."""

from contextlib import contextmanager

from textevolve.judges import judge


@contextmanager
def own_judges():
    """Let the code within register judges; afterwards they are unknown."""
    judge.load_judges()
    registered = dict(judge.REGISTRY)
    forms = dict(judge.FORMS)
    try:
        yield
    finally:
        judge.REGISTRY.clear()
        judge.REGISTRY.update(registered)
        judge.FORMS.clear()
        judge.FORMS.update(forms)
        judge.parse_judge.cache_clear()
