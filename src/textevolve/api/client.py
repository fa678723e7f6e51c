"""`Client` and `AsyncClient`: settings, store and limits, with verbs such as `evaluate` as methods.

    with Client(model="openai/gpt-6-luna", store="my.db", limits=Limits(cost=1)) as client:
        result = client.evaluate("Why are there tides?", [first, second], rounds=2)

A verb runs a study and takes the most used fields of the study's specification as keywords; None
leaves a field at its default. `run` takes a whole specification, as in
`client.run(CalibrateSpec(...))`. The functions of the package, such as `textevolve.evaluate`, are
the methods of a client without arguments.
"""

from __future__ import annotations

from functools import partial
from inspect import iscoroutine
from typing import TYPE_CHECKING, Any, Self, Unpack

from textevolve.api.opener import Opener, opened
from textevolve.api.verb_options import ChatOptions, takes_options
from textevolve.api.verbs import AsyncClient
from textevolve.engine import sync
from textevolve.engine.sync import iterated, waited

if TYPE_CHECKING:
    from textevolve.api.namespaces import Namespace
    from textevolve.api.opened import OpenChat
    from textevolve.api.runs import Runs


class Client(Opener):
    """The verbs of `AsyncClient` as plain methods that wait for the result; they also work while an
    event loop runs, as in a notebook. When a verb returns, all tasks that it started have ended.
    Objects that stay open between calls, such as chats and judges, run on a background event loop
    of the client."""

    run = waited(AsyncClient.run)
    evaluate = waited(AsyncClient.evaluate)
    evaluate_batch = iterated(AsyncClient.evaluate_batch)
    compare = waited(AsyncClient.compare)
    calibrate = waited(AsyncClient.calibrate)
    optimize = waited(AsyncClient.optimize)
    innovate = waited(AsyncClient.innovate)
    guide = waited(AsyncClient.guide)
    generate_profile = waited(AsyncClient.generate_profile)
    summarize = waited(AsyncClient.summarize)
    fit_judge = waited(AsyncClient.fit_judge)
    evaluate_memory = waited(AsyncClient.evaluate_memory)
    create_memories = waited(AsyncClient.create_memories)
    integrate_memories = waited(AsyncClient.integrate_memories)
    read_corpus = waited(AsyncClient.read_corpus)
    evolve_persona = waited(AsyncClient.evolve_persona)
    compare_quants = waited(AsyncClient.compare_quants)
    run_chain = waited(AsyncClient.run_chain)
    keep_history = waited(AsyncClient.keep_history)

    def call_sync(self, method: Any, *arguments: Any, **options: Any) -> Any:
        """Call a verb of `AsyncClient`, and return its result, or an iterator if it yields
        results."""
        work: Any = method(self, *arguments, **options)
        return sync.run(work) if iscoroutine(work) else sync.iterate(work)

    @property
    def runs(self) -> Runs:
        """The stored runs: list, read, compare, export and resume them."""
        return opened.Runs(self)

    @takes_options(ChatOptions)
    def chat(
        self,
        agent: str,
        **options: Unpack[ChatOptions],
    ) -> OpenChat:
        """Return a chat with an agent, NAMESPACE/AGENT, which opens at its first use. At the end of
        its `with` block memories are made from all turns."""
        chat = opened.OpenChat(partial(opened.open_chat, self, agent, options))
        self.keep(chat.resource)

        return chat

    def namespace(self, name: str | None = None, *, create: bool = False) -> Namespace:
        """Return a namespace, by default the one of the settings, which is created if it does not
        exist. It opens at its first use, which may raise the errors below. `create`: create any
        other namespace, too.

        Raises:
            InputError: there is no such namespace. StoreError: the store cannot be used.
        """
        return opened.keep_namespace(self, name, create=create)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_raised: object) -> None:
        self.close()


_default = Client()
judge = _default.judge
as_metric = _default.as_metric
open_chain = _default.open_chain
run = _default.run
evaluate = _default.evaluate
evaluate_batch = _default.evaluate_batch
compare = _default.compare
calibrate = _default.calibrate
optimize = _default.optimize
innovate = _default.innovate
guide = _default.guide
generate_profile = _default.generate_profile
summarize = _default.summarize
fit_judge = _default.fit_judge
evaluate_memory = _default.evaluate_memory
create_memories = _default.create_memories
integrate_memories = _default.integrate_memories
read_corpus = _default.read_corpus
evolve_persona = _default.evolve_persona
compare_quants = _default.compare_quants
run_chain = _default.run_chain
keep_history = _default.keep_history
chat = _default.chat
namespace = _default.namespace
