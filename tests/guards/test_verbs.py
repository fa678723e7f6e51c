"""Every verb works from plain code, from threads, inside a running loop and awaited, with the same
result; Ctrl-C ends it with a run that can be resumed."""

import asyncio
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

import textevolve as te
from recorded.scripted import answer
from textevolve.llm.testing import Answer

pytestmark = pytest.mark.guard

PAIR = ("Is 7 prime?", ["Yes, a good one.", "No."])
ROWS = [{"id": f"r{n}", "n": n, "sum": str(2 * n)} for n in range(4)]
ITEMS = [
    {"id": f"i{n}", "input": f"Why {n}?", "output_1": f"Good {n}.", "output_2": "No.", "label": 1}
    for n in range(24)
]
CHAIN = te.Chain("double", te.ask("first", "What is {n} and {n} more?"), outputs="first")
VERBS = {
    "evaluate": (PAIR, {"judge": "probe"}, "scores"),
    "optimize": (["Write."], {"judge": "probe"}, "output"),
    "innovate": (["Write.", "probe"], {"rounds": 1}, "input"),
    "guide": (["Why?"], {"candidates": ["A", "B"]}, "answer"),
    "compare": (
        *([ROWS, ["What is {n} and {n} more?"]], {"label": "sum", "metric": "exact"}),
        "variants",
    ),
    "run_chain": ([CHAIN, {"n": 3}], {}, "outputs"),
    "summarize": (["The sea is deep. " * 300, 200], {}, "text"),
    "fit_judge": ([ITEMS, "probe,length"], {}, "fit"),
}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n == "fit_judge")) for n in VERBS]
)
def test_a_verb_gives_the_same_wherever_it_is_called(name, home, server, model):
    server.script = answer
    texts, options, field = VERBS[name]
    client, texts = te.Client(model), list(texts)
    plain = partial(getattr(client, name), *texts, **options)

    async def within():
        return plain()

    async def beside():
        async with te.AsyncClient(model) as awaited:
            return await getattr(awaited, name)(*texts, **options)

    with ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(plain) for _ in range(2)]
        default = getattr(te, name)(*texts, **options, model=model)
        results = [plain(), default, asyncio.run(within()), asyncio.run(beside())]
        results += [future.result() for future in futures]
    assert len({result.run for result in results}) == 1
    assert all(len(result.to_frame()) and result.aggregates["records"].value for result in results)
    results = [getattr(result, "runs", [result])[0] for result in results]
    fields = {str(getattr(result, field)) for result in results}
    assert len(fields) == 1
    assert fields != {"None"}


@pytest.mark.parametrize("name", ["evaluate", "compare", "run_chain", "summarize"])
async def test_a_verb_works_in_an_async_test_and_in_tasks_side_by_side(name, home, server, model):
    server.script = answer
    texts, options, field = VERBS[name]
    awaited = getattr(te.AsyncClient(model), name)
    both = await asyncio.gather(*(awaited(*texts, **options) for _ in range(2)))
    results = [*both, getattr(te, name)(*texts, **options, model=model)]
    results = [getattr(result, "runs", [result])[0] for result in results]
    assert len({str(getattr(result, field)) for result in results}) == 1


NOTEBOOK = """
import ast, asyncio, sys, types

cells = [
    "from textevolve import AsyncClient, evaluate, namespace",
    "first = evaluate('Is 7 prime?', ['A good one.', 'No.'], judge='probe', model=model)",
    "awaited = AsyncClient(model).evaluate",
    "second = await awaited('Is 7 prime?', ['A good one.', 'No.'], judge='probe')",
    "with namespace('acme', create=True) as space: ann = space.users.create('ann')",
    "print(list(first.scores) == list(second.scores), ann.spec.name)",
]

async def run_all(names):
    for cell in cells:  # as a kernel does: each cell is code of the loop that runs
        code = compile(cell, "cell", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        done = types.FunctionType(code, names)()
        if asyncio.iscoroutine(done):
            await done

asyncio.run(run_all({"model": sys.argv[1], "__builtins__": __builtins__}))
"""


@pytest.mark.slow
def test_cells_of_a_notebook_call_verbs_plainly_and_awaited(spawn, server, model):
    server.script = answer
    process = spawn(model, script=NOTEBOOK)
    out, spoken_answer = process.communicate(timeout=120)
    assert (process.returncode, out) == (0, "True ann\n"), spoken_answer


@pytest.mark.slow
def test_ctrl_c_ends_a_verb_with_a_run_that_can_be_resumed(home, server, model, cli):
    """In the main thread, where a program or a notebook calls it."""
    reached = threading.Event()

    def script(body, number):
        if number > 7:
            reached.set()
            return Answer(delay=3600)
        return answer(body, number)

    server.script = script
    code = (
        "from textevolve import Client\n"
        "cases = [(f'Why {n}?', ['A good one.', 'No.']) for n in range(6)]\n"
        f"list(Client({model!r}, concurrency=1).evaluate_batch(cases, judge='probe'))\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    assert reached.wait(60)
    process.send_signal(signal.SIGINT)
    _, spoken_answer = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "KeyboardInterrupt" in spoken_answer
    server.script = answer
    before = server.calls
    assert cli("runs", "resume", "last").code == 0
    assert 0 < server.calls - before < 36
