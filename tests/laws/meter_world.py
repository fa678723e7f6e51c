"""What the cells of the law *meter* need: an endpoint that keeps an account of what it answered,
the ways in which its answers end, and readers of what we charged.

Nothing here computes a charge as the product does: what is owed is summed up from the bodies that
the endpoint sent, at prices that are powers of two, so that sums are exact.
"""

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event
from typing import Any

from laws.registries import choose
from textevolve.llm.testing import Answer, Fault, ScriptedBatches, ScriptedServer

Body = Mapping[str, Any]

PRICES: Mapping[str, tuple[float, float, float]] = {
    "scripted": (2.0**-20, 2.0**-19, 2.0**-22),
    "scripted-small": (2.0**-14, 2.0**-13, 2.0**-16),
    "scripted-embeddings": (2.0**-26, 2.0**-25, 2.0**-28),
}
"""The dollars for a token of a prompt, of an answer, and of a prompt that was cached, by model."""

QUICK_RETRIES = "[retries]\nattempts = 2\nfirst = 0.001\nlongest = 0.002\n"


def write_settings(home: Path, url: str, more: str = "") -> None:
    """Write the settings file of the folder: the prices of all models, and short waits."""
    text = QUICK_RETRIES + more
    for model, (prompt, completion, cached) in PRICES.items():
        text += f'[prices."{url}#{model}"]\n'
        text += f"input = {prompt * 1e6!r}\noutput = {completion * 1e6!r}\n"
        text += f"cached_input = {cached * 1e6!r}\n"
    (home / "textevolve.toml").write_text(text, encoding="utf-8")


@dataclass(frozen=True)
class Bill:
    """Calls with their tokens and their cost in dollars; None: the cost is unknown."""

    calls: int = 0
    prompt: int = 0
    cached: int = 0
    completion: int = 0
    cost: float | None = 0.0

    @property
    def tokens(self) -> int:
        return self.prompt + self.completion

    def __add__(self, other: "Bill") -> "Bill":
        unknown = self.cost is None or other.cost is None
        return Bill(
            self.calls + other.calls,
            self.prompt + other.prompt,
            self.cached + other.cached,
            self.completion + other.completion,
            None if unknown else self.cost + other.cost,
        )


def add_up(bills: Iterable[Bill]) -> Bill:
    return sum(bills, Bill())


@dataclass(frozen=True)
class Served:
    """One answer that the endpoint worked on.

    `usage`: the usage that it names; None if it names none. `whole`: whether all of it was sent.
    """

    model: str
    usage: Mapping[str, Any] | None
    whole: bool

    def owe(self) -> Bill:
        """Return what the endpoint bills: each token at the model's price, thoughts that are
        counted beside the answer as parts of it."""
        usage = self.usage or {}
        prompt = int(usage.get("prompt_tokens") or usage.get("input_tokens") or 0)
        completion = int(usage.get("completion_tokens") or usage.get("output_tokens") or 0)
        details = usage.get("completion_tokens_details") or {}
        thoughts = details.get("reasoning_tokens") or 0
        if usage.get("total_tokens") == prompt + completion + thoughts:
            completion += thoughts
        inner = usage.get("prompt_tokens_details") or usage.get("input_tokens_details") or {}
        cached = inner.get("cached_tokens") or 0
        cached = cached or usage.get("prompt_cache_hit_tokens") or 0
        cached = cached or usage.get("cache_read_input_tokens") or 0
        if cached > prompt:  # they are counted beside it
            prompt += cached
        for_prompt, for_completion, for_cached = PRICES[self.model]
        cost = (prompt - cached) * for_prompt + cached * for_cached + completion * for_completion
        return Bill(1, prompt, cached, completion, cost)


class AccountedBatches(ScriptedBatches):
    """A batch API that hands each answered line to `note`."""

    note: Callable[[str, Body, Answer], None]

    def answer(self, method, path, headers, body, ask):
        def noted(line_body, line):
            answer = ask(line_body, line)
            self.note("/chat/completions", line_body, answer)
            return answer

        return super().answer(method, path, headers, body, noted)


class AccountedServer(ScriptedServer):
    """A scripted server that keeps an account of the answers that it worked on: chats, decisions,
    embeddings and lines of batches. A refusal is none, and neither is a page of a gateway."""

    def __post_init__(self):
        super().__post_init__()
        self.account: list[Served] = []
        self.asked = Event()  # set by the first answer

    def answer(self, method, path, headers, body):
        answer = super().answer(method, path, headers, body)
        if path.endswith("/embeddings") and isinstance(self.script, EndingScript):
            answer = self.script.end_embedding(json.loads(body), answer)
        elif path.endswith("/chat/completions") and isinstance(self.script, EndingScript):
            answer = self.script.end_body(answer)
        if method == "POST" and not path.startswith(("/v1/files", "/v1/batches")):
            self.note(path, json.loads(body), answer)
        return answer

    def note(self, path: str, body: Body, answer: Answer) -> None:
        """Add an answer to the account."""
        if answer.status not in (200, 500) or path.endswith("/tokenize"):
            return
        try:
            sent = json.loads(answer.body or b"")
        except ValueError:
            return
        if not {"choices", "data", "answers"} & sent.keys():
            return
        self.asked.set()
        whole = answer.transport == "whole"
        self.account.append(Served(str(body.get("model")), sent.get("usage"), whole))

    def owe(self) -> Bill:
        """Return what the endpoint bills for all whole answers."""
        return add_up(served.owe() for served in self.account if served.whole)

    def find_dearest(self, measure: Callable[[Bill], float]) -> float:
        """Return the most of one answer, by some measure of its bill."""
        return max((measure(served.owe()) for served in self.account), default=0.0)

    def count_broken(self) -> int:
        """Return the number of answers that were not sent as a whole."""
        return sum(not served.whole for served in self.account)


# The ways in which answers end


@dataclass(frozen=True)
class Ending:
    """A way in which the endpoint's answers end.

    Attributes:
        alter: What is sent in place of a good answer. `turn`: how often the same request came
            before, from 0.
        usage: Fields of the usage that are added to the reported tokens; `tokens` is False if it
            reports none.
        body: What becomes of the JSON of an answer; empty: nothing.
        settings: Lines for the settings file.
    """

    alter: Callable[[Answer, int], Answer | Fault] = lambda good, turn: good
    usage: Mapping[str, Any] = field(default_factory=dict)
    tokens: bool = True
    body: Callable[[dict[str, Any]], Mapping[str, Any]] | None = None
    settings: str = ""


def _always(**fields: Any) -> Callable[[Answer, int], Answer]:
    return lambda good, turn: replace(good, **fields)


def _at_first(bad: Answer | Fault) -> Callable[[Answer, int], Answer | Fault]:
    return lambda good, turn: good if turn else bad


def _broken_at_first(transport: str) -> Callable[[Answer, int], Answer]:
    def alter(good: Answer, turn: int) -> Answer:
        return good if turn else replace(good, transport=transport)

    return alter


def _leave_out_logprobs(body: dict[str, Any]) -> Mapping[str, Any]:
    choices = [{**choice, "logprobs": None} for choice in body["choices"]]
    return {**body, "choices": choices}


def _cut_small(events: list[bytes]) -> list[bytes]:
    """Cut a stream into packets that hold no whole line."""
    stream = b"".join(events)
    return [stream[start : start + 24] for start in range(0, len(stream), 24)]


THOUGHTS = {"completion_tokens_details": {"reasoning_tokens": 3}}
IMPATIENT = "[timeouts]\nread = 0.2\ntotal = 0.2\ndeadline = 0.5\n"

PAID: Mapping[str, Ending] = {
    "whole": Ending(),
    "cut by length": Ending(_always(finish_reason="length")),
    "filtered": Ending(_always(finish_reason="content_filter")),
    "failed within a 200": Ending(_always(finish_reason="error")),
    "refused in words": Ending(_always(refusal="I cannot do this.")),
    "blank": Ending(_always(text="  \n", yes=None)),
    "no sense": Ending(_always(text="No idea.", yes=None)),
    "calls of tools alone": Ending(_always(text="", yes=None, tool_calls=(("look", "{}"),))),
    "thoughts alone": Ending(
        _always(text="", yes=None, reasoning="Wait. " * 9, finish_reason="length")
    ),
    "no sense at first": Ending(
        lambda good, turn: good if turn else replace(good, text="No idea.", yes=None)
    ),
    "no log-probabilities": Ending(body=_leave_out_logprobs),
    "no choices": Ending(body=lambda body: {**body, "choices": []}),
    "500 with its tokens at first": Ending(
        lambda good, turn: good if turn else replace(good, status=500)
    ),
}
"""Answers that come as a whole and are billed, whether or not anybody can use them."""

USAGES: Mapping[str, Ending] = {
    "cached tokens": Ending(usage={"prompt_tokens_details": {"cached_tokens": 8}}),
    "cached tokens beside the prompt": Ending(
        usage={"prompt_tokens_details": {"cached_tokens": 99_999}}
    ),
    "cached tokens in DeepSeek's words": Ending(usage={"prompt_cache_hit_tokens": 8}),
    "thoughts within the answer": Ending(usage=THOUGHTS),
    "thoughts beside the answer": Ending(usage={**THOUGHTS, "total_tokens": "beside"}),
    "a reported cost of 0": Ending(usage={"cost": 0}),
    "a reported cost of 1 dollar": Ending(usage={"cost": 1.0}),
    "tokens in newer words": Ending(usage={"names": "newer"}),
    "tokens as floats": Ending(usage={"names": "floats"}),
}
"""Forms in which usage is reported. The user's own prices hold whatever cost is reported."""

UNSAID: Mapping[str, Ending] = {
    "no usage": Ending(tokens=False),
    "usage of zeros": Ending(usage={"names": "zeros"}),
    "usage of nulls": Ending(usage={"names": "nulls"}),
}
"""Answers whose tokens nobody reports: they are counted from the texts."""

ATTEMPTS: Mapping[str, Ending] = {
    "500 at first": Ending(_at_first(Fault.SERVER_ERROR)),
    "429 at first": Ending(_at_first(Fault.RATE_LIMIT)),
    "an error in a 200 at first": Ending(_at_first(Fault.ERROR_IN_200)),
    "a page of HTML at first": Ending(_at_first(Fault.NOT_JSON)),
    "refused": Ending(lambda good, turn: Fault.TOO_LONG_OPENAI),
    "forbidden": Ending(lambda good, turn: Fault.FORBIDDEN),
}
"""Attempts that cost nothing: only the good answers after them are billed."""

BROKEN: Mapping[str, Ending] = {
    "reset in the middle at first": Ending(_broken_at_first("reset")),
    "cut in the middle at first": Ending(_broken_at_first("cut")),
    "reset in the middle": Ending(_always(transport="reset")),
    "never answered in time": Ending(_always(transport="hang"), settings=IMPATIENT),
}
"""Answers that the endpoint worked on and that never came as a whole: it bills them all the
same."""

STREAMED: Mapping[str, Ending] = {
    "a stream in small packets": Ending(_always(packets=_cut_small, pace=0.002)),
}
"""Forms of streams, which only what passes a stream on can tell apart."""

FAMILIES: Mapping[str, Mapping[str, Ending]] = {
    "paid": PAID,
    "usages": USAGES,
    "unsaid": UNSAID,
    "attempts": ATTEMPTS,
    "broken": BROKEN,
    "unbroken": {**PAID, **USAGES, **UNSAID, **ATTEMPTS},
    "other": {**USAGES, **UNSAID, **ATTEMPTS, **BROKEN},
}
ENDINGS: Mapping[str, Ending] = {
    **PAID,
    **USAGES,
    **UNSAID,
    **ATTEMPTS,
    **BROKEN,
    **STREAMED,
}


def choose_endings(member: str, numbers: Mapping[str, int]) -> list[str]:
    """Return the endings that are tried on a member of a registry: so many of each family."""
    chosen: list[str] = []
    for family, number in numbers.items():
        chosen += choose(member, FAMILIES[family], number)
    return chosen


class EndingScript:
    """A script that answers as `good` does, each answer ended in one way, with a usage that differs
    from call to call."""

    def __init__(self, good: Callable[[Body, int], Answer | str | None], ending: Ending) -> None:
        self.good = good
        self.ending = ending
        self.turns: Counter[str] = Counter()

    def __call__(self, body: Body, number: int) -> Answer | Fault:
        reply = self.good(body, number)
        answer = Answer(text=reply) if isinstance(reply, str) else reply or Answer()
        request = json.dumps(body, sort_keys=True)
        turn = self.turns[request]
        self.turns[request] += 1
        return self.ending.alter(replace(answer, usage=self.report(number)), turn)

    def end_embedding(self, body: Body, answer: Answer) -> Answer:
        """Return an answer to a request for embeddings, ended in the way of this script."""
        sent = json.loads(answer.body) | {"usage": self.report(self._count(body))}
        sent["usage"].pop("completion_tokens", None)
        good = replace(answer, body=json.dumps(sent).encode())
        outcome = self.ending.alter(good, self.turns[json.dumps(body, sort_keys=True)] - 1)
        return outcome.answer if isinstance(outcome, Fault) else outcome

    def end_body(self, answer: Answer) -> Answer:
        """Return a whole answer with the JSON that this script's ending makes of its own."""
        change = self.ending.body
        if change is None or answer.status != 200:
            return answer
        return replace(answer, body=json.dumps(change(json.loads(answer.body))).encode())

    def _count(self, body: Body) -> int:
        request = json.dumps(body, sort_keys=True)
        self.turns[request] += 1
        return sum(self.turns.values())

    def report(self, number: int) -> dict[str, Any]:
        """Return the usage that the answer with this number reports."""
        if not self.ending.tokens:
            return {}
        prompt = 16 + number % 5
        completion = 4 + number % 3
        added = dict(self.ending.usage)
        names = added.pop("names", "usual")
        usage: dict[str, Any] = {"prompt_tokens": prompt, "completion_tokens": completion}
        if names == "newer":
            usage = {"input_tokens": prompt, "output_tokens": completion}
        elif names == "floats":
            usage = {name: float(count) for name, count in usage.items()}
        elif names == "zeros":
            usage = dict.fromkeys(usage, 0)
        elif names == "nulls":
            usage = dict.fromkeys(usage)
        if added.get("total_tokens") == "beside":
            added["total_tokens"] = prompt + completion + 3
        return usage | added


# What we charged


def mark_journal(home: Path) -> int:
    """Return the number of the last call that the store of the folder has."""
    if not (home / "store.db").exists():
        return 0
    with closing(sqlite3.connect(home / "store.db")) as raw:
        (last,) = raw.execute("SELECT coalesce(max(id), 0) FROM calls").fetchone()
    return last


def read_journal(home: Path, mark: int = 0) -> list[Bill]:
    """Return the model calls that the store of the folder has since a mark. Calls of a program or
    function of the user are none: they are no model of the endpoint."""
    columns = "prompt_tokens, cached_tokens, completion_tokens, cost"
    if not (home / "store.db").exists():
        return []
    query = f"SELECT {columns} FROM calls WHERE id > ? AND model LIKE '%scripted%' ORDER BY id"
    with closing(sqlite3.connect(home / "store.db")) as raw:
        return [Bill(1, *row) for row in raw.execute(query, (mark,))]


def read_namespace(home: Path) -> int:
    """Return the tokens that were charged to all namespaces."""
    with closing(sqlite3.connect(home / "store.db")) as raw:
        (tokens,) = raw.execute("SELECT coalesce(sum(tokens), 0) FROM namespace_tokens").fetchone()
    return tokens


def read_list(cli: Callable[..., Any]) -> Bill:
    """Return the calls, tokens and cost of the last run, as `runs list` shows them. The tokens of
    answers and prompts are one sum, which stands as that of prompts."""
    run = json.loads(cli("runs", "list", "--limit", "1", "--json").out.splitlines()[0])
    return Bill(run["calls"], run["tokens"], run["cached_tokens"], 0, run["cost"])
