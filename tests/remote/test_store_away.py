"""A server whose store cannot be reached for a while, in the midst of a run that is watched."""

import time

from flat_verbs import evaluate_batch
from textevolve import Case
from textevolve.errors import StoreAwayError
from textevolve.llm.testing import Answer, ScriptedServer
from textevolve.store.repository import Store


def test_a_run_is_watched_on_while_the_store_of_the_server_is_away(serve, monkeypatch):
    get_run, until = Store.get_run, [0.0]

    def look(store, which):
        if time.monotonic() < until[0]:
            raise StoreAwayError("store postgresql://somebody@db.internal/runs: no connection")
        return get_run(store, which)

    def answer(_body, call):
        if call == 3:
            until[0] = time.monotonic() + 1.5
        return Answer(delay=0.1)

    monkeypatch.setattr(Store, "get_run", look)
    with ScriptedServer(answer) as scripted:
        name = f"{scripted.url}#any"
        same = {"model": name, "rounds": 1, "server": serve(model=name), "concurrency": 1}
        cases = [Case(f"Question {n}?", ("yes",), f"k{n}") for n in range(5)]
        found = list(evaluate_batch(cases, **same))
    assert sorted(one.index for one in found) == list(range(5))
