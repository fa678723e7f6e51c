"""The user's own code within verbs, and the verbs of a client wherever they are called: further
parts of the first matrix of `test_transparency.py`.
"""

import asyncio
import functools
import inspect
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from laws.transparency_world import (
    Record,
    run_here,
    run_in_copied_context,
    run_in_loop,
    run_in_thread,
)
from textevolve import Case, Chain, Client, Cue, Failure, Memory, PromptSet, ask
from textevolve import call as call_step
from textevolve.node_eval import GENERATE, JudgeEvaluator, Monitor

# The user's own code that a verb calls, in the forms in which it may be written.


def write_own(body: Callable[[Any], Any]) -> dict[str, Callable[..., Any]]:
    """Return a piece of the user's code in each form; all take one argument."""

    def function(value):
        return body(value)

    async def coroutine(value):
        await asyncio.sleep(0)
        return body(value)

    @functools.wraps(function)
    def decorated(*arguments, **named):
        return function(*arguments, **named)

    def with_lead(lead, value):
        return body(value)

    async def with_lead_async(lead, value):
        await asyncio.sleep(0)
        return body(value)

    class Own:
        def method(self, value):
            return body(value)

        async def method_async(self, value):
            await asyncio.sleep(0)
            return body(value)

        @classmethod
        def class_method(cls, value):
            return body(value)

        @staticmethod
        def static_method(value):
            return body(value)

        def __call__(self, value):
            return body(value)

    class OwnAsync:
        async def __call__(self, value):
            await asyncio.sleep(0)
            return body(value)

    return {
        "function": function,
        "lambda": lambda value: body(value),
        "decorated function": decorated,
        "method": Own().method,
        "class method": Own.class_method,
        "static method": Own().static_method,
        "partial": functools.partial(with_lead, "lead"),
        "callable object": Own(),
        "async function": coroutine,
        "async method": Own().method_async,
        "async partial": functools.partial(with_lead_async, "lead"),
        "async callable object": OwnAsync(),
        "function that returns a coroutine": lambda value: coroutine(value),
    }


OWN_FORMS = tuple(write_own(lambda value: value))
ASYNC_FORMS = tuple(form for form in OWN_FORMS if "async" in form or "coroutine" in form)


@dataclass(frozen=True)
class Door:
    """A place where a verb calls the user's code.

    Attributes:
        use: Lets a client call a function, and returns what came of it.
        answer: What the user's code returns.
        outcome: What must come of it.
        argument: What the user's code must get, as `describe_argument` writes it.
        forms: The forms that it takes.
    """

    use: Callable[[Client, Any], Any]
    answer: Any
    outcome: Any
    argument: str
    forms: tuple[str, ...] = OWN_FORMS


def run_own_loop() -> None:
    """Run an event loop, as code does that calls an async library."""
    pause = asyncio.sleep(0)
    try:
        asyncio.run(pause)
    finally:
        pause.close()


def describe_argument(value: Any) -> str:
    """Describe the argument of the user's code: its type, and its text or fields."""
    if isinstance(value, Case):
        return f"a case: {value.input} {list(value.candidates)}"
    if isinstance(value, Cue):
        return f"a cue: {value.input} {list(value.candidates)}"
    return f"{type(value).__name__}: {value}"


def use_judge(client: Client, own: Any) -> Any:
    result = client.evaluate("Greet.", ["Hello.", "No."], judge=own)
    reasons = [content.reason for content in result.result if isinstance(content, Failure)]
    return reasons or list(result.scores)


def read_outputs(comparison: Any) -> Any:
    """Return text and score of each output, or the reason why it has none."""
    contents: Record = []
    for output in comparison.outputs:
        failures = [output.failure, *(grade.failure for grade in output.grades.values())]
        reasons = [failure.reason for failure in failures if failure is not None]
        contents.append(reasons[0] if reasons else (output.text, output.score))
    return contents


def use_metric(client: Client, own: Any) -> Any:
    rows = [{"out": "Hello.", "sum": "2"}]
    return read_outputs(client.compare(rows, outputs="out", label="sum", metric=own))


def use_target(client: Client, own: Any) -> Any:
    rows = [{"n": 1, "sum": "It is noon."}]
    return read_outputs(client.compare(rows, targets=[own], label="sum", metric="exact"))


def use_step(client: Client, own: Any) -> Any:
    return read_chain(client, Chain("chain", call_step("x", own), inputs=["value"]))


def use_parser(client: Client, own: Any) -> Any:
    step = ask("x", "What is {value} and {value} more?", parse=own)
    return read_chain(client, Chain("chain", step, inputs=["value"]))


def read_chain(client: Client, chain: Chain) -> Any:
    result = client.run_chain(chain, {"value": 3})
    failure = result.runs[0].failure
    return result.outputs["x"] if failure is None else failure.reason


def use_recall(client: Client, own: Any) -> Any:
    result = client.evaluate("Greet.", ["Hello.", "No."], recall=own, rounds=1)
    if result.failure is not None:
        return result.failure.reason
    return [memory.text for memory in result.debate.turns[0].memories]


DOORS: dict[str, Door] = {
    "judge": Door(use_judge, (0.25, 0.5), [0.25, 0.5], "a case: Greet. ['Hello.', 'No.']"),
    "metric": Door(
        use_metric,
        0.5,
        [("Hello.", 0.5)],
        "str: Hello.",
        tuple(form for form in OWN_FORMS if form not in ASYNC_FORMS),
    ),
    "target": Door(
        use_target,
        "It is noon.",
        [("It is noon.", 1.0)],
        "dict: {'n': 1}",
    ),
    "step of a chain": Door(use_step, [1, 2], [1, 2], "int: 3"),
    "parser of an answer": Door(use_parser, {"n": 6}, {"n": 6}, "str: 6"),
    "recall": Door(
        use_recall,
        (Memory("Hello is polite.", source="book"),),
        ["Hello is polite."],
        "a cue: Greet. ['Hello.', 'No.']",
        ASYNC_FORMS,
    ),
}

# Where a program reads the prompts that `calibrate` improves.


def read_in_own_thread(read: Callable[[], str]) -> str:
    return run_in_thread(read)[0]


def read_in_own_pool(read: Callable[[], str]) -> str:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(read).result()


async def read_in_task(read: Callable[[], str]) -> str:
    async def run() -> str:
        return read()

    return await asyncio.create_task(run())


async def read_in_executor(read: Callable[[], str]) -> str:
    return await asyncio.get_running_loop().run_in_executor(None, read)


async def read_in_copied_thread(read: Callable[[], str]) -> str:
    return await asyncio.to_thread(read)


READERS: dict[str, Callable[[Callable[[], str]], Any]] = {
    "in the program": run_here,
    "in a copied context": run_in_copied_context,
    "in a loop of its own": run_in_loop,
    "in a thread of its own": read_in_own_thread,
    "in a pool of its own": read_in_own_pool,
    "in a task": read_in_task,
    "in an executor": read_in_executor,
    "by to_thread": read_in_copied_thread,
}


def read_prompts(client: Client, reader: Callable[[Callable[[], str]], Any]) -> set[str]:
    """Let `calibrate` improve a prompt; return the texts of the prompt that its program read."""
    prompts = PromptSet(sum="What is {n} and {n} more?")
    texts: set[str] = set()

    def program(row: Any) -> str:
        texts.add(reader(lambda: prompts["sum"]))
        return "no idea"

    async def program_async(row: Any) -> str:
        texts.add(await reader(lambda: prompts["sum"]))
        return "no idea"

    client.calibrate(
        program_async if inspect.iscoroutinefunction(reader) else program,
        [{"n": n, "sum": str(2 * n)} for n in range(12)],
        templates=prompts,
        label="sum",
        metric="exact",
        strategy="protegi",
        budget=200,
    )
    return texts


# Each verb of a client, small.

ROWS = [{"n": n, "sum": str(2 * n)} for n in range(4)]
TWELVE_ROWS = [{"n": n, "sum": str(2 * n)} for n in range(12)]
PAIRS = [
    {
        "id": f"i{n}",
        "input": f"Question {n}: why?",
        "output_1": f"A good answer {n}.",
        "output_2": f"An answer {n} {('good', 'bad')[n % 3 > 0]} longer.",
        "label": (1, 2, 1, 1)[n % 4],
    }
    for n in range(24)
]
TEMPLATE = "What is {n} and {n} more?"
HANDBOOK = "# Wards\n\nThe wards close at nine.\n\n# Food\n\nFood is served at six.\n"
CHAT = [{"role": "user", "content": "FACT: Ben lives in Graz."}]


def prepare_memories(client: Client) -> Any:
    """Make an agent with a collection of memories, unless it is there; return its namespace."""
    space = client.namespace("acme", create=True)
    if not space.collections.list():
        for name, kind in (("chats", "episodic"), ("docs", "semantic"), ("insights", "insight")):
            space.collections.create(name, kind=kind, embedder=f"{client.model}-embeddings")
        space.memories("chats").add("Ann drinks green tea.")
        fields = {"memories": "chats", "insights": "insights", "memory": {"collections": ["chats"]}}
        space.agents.create("ada", persona="You are Ada. You speak calmly.", **fields)
    return space


def do_evaluate(client: Client) -> Any:
    return client.evaluate("Greet.", ["Hello.", "No."], judge="probe").scores


def do_debate(client: Client) -> Any:
    return client.evaluate("Greet.", ["Hello.", "No."], rounds=1).scores


def do_evaluate_batch(client: Client) -> Any:
    cases = [("Greet.", ["Hello.", "No."]), ("Thank.", ["Thanks.", "So?"])]
    return [result.scores for result in client.evaluate_batch(cases, judge="probe", ordered=True)]


def do_compare(client: Client) -> Any:
    compared = client.compare(ROWS, {"plain": TEMPLATE}, label="sum", metric="exact")
    return [(output.text, output.score) for output in compared.outputs]


def do_calibrate(client: Client) -> Any:
    calibrated = client.calibrate(
        TEMPLATE, TWELVE_ROWS, label="sum", metric="exact", strategy="protegi", budget=30
    )
    return [node.templates.parts for node in calibrated.nodes]


def do_optimize(client: Client) -> Any:
    optimized = client.optimize("Say what moves the sea.", judge="probe", max_iterations=1)
    return [(attempt.output, attempt.evaluation.score) for attempt in optimized.attempts]


def do_innovate(client: Client) -> Any:
    innovated = client.innovate("Tell of the sea.", "probe", rounds=1, outputs=2, fresh=3)
    return [attempt.output for attempt in innovated.innovation.attempts]


def do_guide(client: Client) -> Any:
    return str(client.guide("Why?", candidates=["The air.", "The sea."]).answer)


def do_generate_profile(client: Client) -> Any:
    return client.generate_profile("Replies to customers of a shop.").written.text


def do_summarize(client: Client) -> Any:
    return client.summarize("The sea is deep and wide. " * 300, budget=300).text


def do_fit_judge(client: Client) -> Any:
    fitted = client.fit_judge(PAIRS, "length", output=f"{threading.get_native_id()}.judge")
    return [signal.weight for signal in fitted.fit.signals]


def do_compare_quants(client: Client) -> Any:
    quants = [f"{client.model}-small"]
    compared = client.compare_quants(
        client.model, quants, ROWS, {"plain": TEMPLATE}, metric="exact", label="sum"
    )
    return [(output.text, output.score) for output in compared.outputs]


def do_run_chain(client: Client) -> Any:
    chain = Chain("twice", ask("first", "What is {n} and {n} more?"))
    return client.run_chain(chain, {"n": 3}).outputs["first"]


def do_open_chain(client: Client) -> Any:
    with client.open_chain(Chain("twice", ask("first", "What is {n} and {n} more?"))) as opened:
        return opened(n=3)["first"]


def do_as_metric(client: Client) -> Any:
    return client.as_metric("probe")("Greet.", "Hello.")


def do_judge(client: Client) -> Any:
    judge = client.judge("probe")

    async def run() -> Any:
        outcome = await judge(Case("Greet.", ("Hello.", "No.")))
        return [content.score for content in outcome.result]

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, run()).result()


def do_create_memories(client: Client) -> Any:
    prepare_memories(client)
    created = client.create_memories(CHAT, "acme/chats")
    return [dict(created.actions), created.memories]


def do_read_corpus(client: Client) -> Any:
    prepare_memories(client)
    Path("handbook.md").write_text(HANDBOOK, encoding="utf-8")
    readings = client.read_corpus("handbook.md", collection="acme/docs")
    return [[chunk.action for chunk in reading.chunks] for reading in readings]


def do_integrate_memories(client: Client) -> Any:
    prepare_memories(client)
    integrated = client.integrate_memories("acme/ada", always=True)
    return [insight.text for insight in integrated.insights]


def do_evolve_persona(client: Client) -> Any:
    prepare_memories(client)
    return client.evolve_persona("acme/ada", propose=True).text


def do_namespace(client: Client) -> Any:
    space = prepare_memories(client)
    return [
        memory.text for memory in space.memories("chats").search("What does Ann drink?").memories
    ]


def do_chat(client: Client) -> Any:
    prepare_memories(client)
    with client.chat("acme/ada", memory=False) as chat:
        return chat.say("Hello.").text


def do_keep_history(client: Client) -> Any:
    with Monitor([]) as monitor:
        with monitor.node(GENERATE, name="word"):
            pass
        return len(client.keep_history(monitor.history, name="words")) > 0


VERBS: dict[str, Callable[[Client], Any]] = {
    name.removeprefix("do_"): verb for name, verb in list(globals().items()) if name[:3] == "do_"
}


# Objects that stay open, each used once before.


def open_metric(client: Client) -> Callable[[], Any]:
    metric = client.as_metric("probe")
    return lambda: metric("Greet.", "Hello.")


def open_judge(client: Client) -> Callable[[], Any]:
    judge = client.judge("probe")

    async def run() -> Any:
        outcome = await judge(Case("Greet.", ("Hello.", "No.")))
        return [content.score for content in outcome.result]

    def judge_apart() -> Any:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(asyncio.run, run()).result()

    return judge_apart


def open_watched_judge(client: Client) -> Callable[[], Any]:
    """Open a monitor whose judge is waited for."""
    evaluator = JudgeEvaluator("greets", client.judge("probe"), background=False)
    monitor = Monitor([evaluator], timeout=2)

    def greet() -> Any:
        with monitor.node(GENERATE, name="greet", input_state={"text": "Greet."}) as node:
            node.output = {"text": "Hello."}
        outcome = monitor.last_feedback("greet").results["greets"]
        return getattr(outcome, "score", str(outcome))

    return greet


def open_a_chain(client: Client) -> Callable[[], Any]:
    chain = client.open_chain(Chain("twice", ask("first", TEMPLATE), inputs=["n"]))
    return lambda: chain(n=3)["first"]


def open_memories(client: Client) -> Callable[[], Any]:
    memories = prepare_memories(client).memories("chats")
    return lambda: [memory.text for memory in memories.search("What does Ann drink?").memories]


def open_chat(client: Client) -> Callable[[], Any]:
    prepare_memories(client)
    chat = client.chat("acme/ada", memory=False)
    return lambda: chat.say("Hello.").text


OPENED: dict[str, Callable[[Client], Callable[[], Any]]] = {
    "an open metric": open_metric,
    "an open judge": open_judge,
    "a monitor with a judge": open_watched_judge,
    "an open chain": open_a_chain,
    "open memories": open_memories,
    "an open chat": open_chat,
}
