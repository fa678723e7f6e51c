"""Verbs as plain functions that take a client's options and all fields of a specification beside
their own, for tests that are about what a study does and not about how Python calls it."""

import inspect

from textevolve import AsyncClient, Client

CLIENT = [*inspect.signature(Client).parameters][1:]


class Fields:
    """Lays further fields over the specification of each study."""

    fields = None

    def _open_run(self, spec, *arguments, **options):
        if self.fields:
            fields = {name: getattr(spec, name) for name in spec.model_fields_set}
            spec = type(spec)(**{**fields, **self.fields})
        return super()._open_run(spec, *arguments, **options)


class FlatClient(Fields, Client):
    pass


class AsyncFlatClient(Fields, AsyncClient):
    pass


def prepare(kind, verb, options):
    """The verb of a new client, and what is left for it."""
    known_mapping_proxy_type = inspect.signature(getattr(AsyncClient, verb)).parameters
    client = kind(**{name: options.pop(name) for name in CLIENT if name in options})
    fields = {
        name: options.pop(name) for name in list(options) if name not in known_mapping_proxy_type
    }
    client.fields = {name: "none" if one is None else one for name, one in fields.items()}
    return getattr(client, verb)


def make_sync(verb):
    def call(*arguments, **options):
        return take(prepare(FlatClient, verb, options)(*arguments, **options))

    return call


def make_async(verb):
    async def call(*arguments, **options):
        return take(await prepare(AsyncFlatClient, verb, options)(*arguments, **options))

    return call


def take(result):
    """The record of a case, which has all that its judge gave."""
    return getattr(result, "record", result)


async def aevaluate_batch(*arguments, **options):
    results = prepare(AsyncFlatClient, "evaluate_batch", options)(*arguments, **options)
    try:
        async for result in results:
            yield take(result)
    finally:
        await results.aclose()


def evaluate_batch(*arguments, **options):
    return map(take, prepare(FlatClient, "evaluate_batch", options)(*arguments, **options))


VERBS = (
    *("evaluate", "compare", "calibrate", "optimize", "innovate", "guide", "generate_profile"),
    *("summarize", "fit_judge", "evaluate_memory", "create_memories", "integrate_memories"),
    *("read_corpus", "evolve_persona", "compare_quants", "run_chain"),
)
globals().update({verb: make_sync(verb) for verb in VERBS})
globals().update({f"a{verb}": make_async(verb) for verb in VERBS})


def make_opener(verb):
    def call(*arguments, **options):
        client = Client(**{name: options.pop(name) for name in CLIENT if name in options})
        return getattr(client, verb)(*arguments, **options)

    return call


OPENERS = ("judge", "as_metric", "open_chain", "as_runnable", "as_chat_model", "as_dspy_module")
globals().update({verb: make_opener(verb) for verb in (*OPENERS, "as_dspy_lm", "chat")})
