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
    "evaluate": (te.evaluate, te.aevaluate, PAIR, {"judge": "probe"}, "scores"),
    "optimize": (te.optimize, te.aoptimize, ["Write."], {"judge": "probe"}, "output"),
    "innovate": (te.innovate, te.ainnovate, ["Write.", "probe"], {"rounds": 1}, "input"),
    "guide": (
        te.guide,
        te.aguide,
        ["Why?"],
        {"candidates": ["A", "B"], "judge": "probe"},
        "answer",
    ),
    "compare": (
        *(te.compare, te.acompare, [ROWS, ["What is {n} and {n} more?"]]),
        *({"label": "sum", "metric": "exact"}, "variants"),
    ),
    "run_chain": (te.run_chain, te.arun_chain, [CHAIN, {"n": 3}], {}, "outputs"),
    "summarize": (te.summarize, te.asummarize, ["The sea is deep. " * 300, 200], {}, "text"),
    "fit_judge": (te.fit_judge, te.afit_judge, [ITEMS, "probe,length"], {}, "fit"),
}


@pytest.mark.parametrize("name", VERBS)
def test_a_verb_gives_the_same_wherever_it_is_called(name, home, server, model):
    server.script = answer
    plain, awaited, texts, options, field = VERBS[name]
    plain = partial(plain, *texts, **options, model=model)

    async def within():
        return plain()

    async def beside():
        return await awaited(*texts, **options, model=model)

    with ThreadPoolExecutor(3) as pool:
        futures = [pool.submit(plain) for _ in range(3)]
        results = [plain(), asyncio.run(within()), asyncio.run(beside())]
        results += [future.result() for future in futures]
    results = [getattr(result, "runs", [result])[0] for result in results]
    fields = {str(getattr(result, field)) for result in results}
    assert len(fields) == 1
    assert fields != {"None"}


@pytest.mark.parametrize("name", VERBS)
async def test_a_verb_works_in_an_async_test_and_in_tasks_side_by_side(name, home, server, model):
    server.script = answer
    plain, awaited, texts, options, field = VERBS[name]
    both = await asyncio.gather(*(awaited(*texts, **options, model=model) for _ in range(2)))
    results = [*both, plain(*texts, **options, model=model)]
    results = [getattr(result, "runs", [result])[0] for result in results]
    assert len({str(getattr(result, field)) for result in results}) == 1


NOTEBOOK = """
import ast, asyncio, sys, types

cells = [
    "from textevolve import aevaluate, evaluate, open_namespace",
    "first = evaluate('Is 7 prime?', ['A good one.', 'No.'], judge='probe', model=model)",
    "second = await aevaluate('Is 7 prime?', ['A good one.', 'No.'], judge='probe', model=model)",
    "with open_namespace('acme', create=True) as space: ann = space.users.create('ann')",
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


def test_cells_of_a_notebook_call_verbs_plainly_and_awaited(spawn, server, model):
    server.script = answer
    process = spawn(model, script=NOTEBOOK)
    out, said = process.communicate(timeout=120)
    assert (process.returncode, out) == (0, "True ann\n"), said


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
        "from textevolve import evaluate_batch\n"
        "cases = [(f'Why {n}?', ['A good one.', 'No.']) for n in range(6)]\n"
        f"list(evaluate_batch(cases, judge='probe', model={model!r}, concurrency=1))\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    assert reached.wait(60)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "KeyboardInterrupt" in said
    server.script = answer
    before = server.calls
    assert cli("runs", "resume", "last").code == 0
    assert 0 < server.calls - before < 36
