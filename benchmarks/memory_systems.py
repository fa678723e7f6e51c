"""Which memory system remembers right: ours, mem0, the whole context, none, with one local model.

    python benchmarks/memory_systems.py [--users 4] [--sessions 3] [--systems textevolve,mem0,...]
                                        [--model qwen2.5-coder-1.5b] [--judge-by-model]
                                        [--keep FOLDER]

Made users (`memory-eval synth`) of HaluMem's shape. The same weights write memories and answer for
every system, behind one loopback address that counts what each of them is asked; all embed with
local/minilm. Facts stand in the dialogues word for word, so that comparing strings is an exact
judge of this data; with --judge-by-model the local model judges, too, as it would real dialogues.
Shares have 95 % intervals over users. The same command again goes on in the folder that it kept.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from sitting import describe_machine
from textevolve.api.client import AsyncClient
from textevolve.api.results import Objects
from textevolve.api.running import open_run
from textevolve.evaluation import Case, EvaluationResult, Failure, Usage
from textevolve.llm.embeddings import embed
from textevolve.llm.local import serve
from textevolve.llm.weights import fetch
from textevolve.memory_eval.dataset import UNKNOWN, user_to_line
from textevolve.memory_eval.evaluation import MemoryEvaluation, SessionTimes
from textevolve.memory_eval.judging import Label, MemoryJudgement, MemoryVerdict, Subject
from textevolve.memory_eval.synthesis import synthesise
from textevolve.settings import Local, Provider, Settings, read_settings
from textevolve.studies.memory_eval import MemoryEvaluationSpec
from textevolve.texts.dates import dates_in, parse_time, write_date
from textevolve.wiring import open_models

EMBEDDER = "local/minilm"
SHOWN = {
    "recall": "integrity",
    "fmr": "not misled",
    "accuracy": "accuracy",
    "update_correct": "update",
    "question_correct": "questions",
}
_SMALL = """
    a an and as assistant at been by called for from had has have her his in is it its named of on s
    so that the their to user was were who with works
"""
SMALL_WORDS = frozenset(_SMALL.split())


@dataclass
class Door:
    """The one address of all models. `spent`: tokens and calls by the first part of the path, which
    says who asks: `system` or `judge`."""

    upstream: str
    key: str
    settings: Settings
    spent: dict[str, Counter[str]] = field(default_factory=dict[str, "Counter[str]"])
    embeddings: dict[str, list[float]] = field(default_factory=dict[str, "list[float]"])

    def note(self, who: str, **more: int) -> None:
        self.spent.setdefault(who, Counter()).update(more)

    async def chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        body.pop("store", None)
        headers = {"Authorization": f"Bearer {self.key}"}
        post = self.session.post(f"{self.upstream}/chat/completions", json=body, headers=headers)
        async with post as answer:
            text = await answer.read()
        if answer.status == 200:
            used = json.loads(text).get("usage", {})
            tokens = {n: used.get(n, 0) for n in ("prompt_tokens", "completion_tokens")}
            self.note(request.match_info["who"], calls=1, **tokens)
        return web.Response(body=text, status=answer.status, content_type="application/json")

    async def embed(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
        rows: list[Mapping[str, Any]] = []
        for place, text in enumerate(texts):
            if text not in self.embeddings:
                self.embeddings[text] = await embed(self.embedder, text)
            row = {"object": "embedding", "index": place, "embedding": self.embeddings[text]}
            rows.append(row)
        usage = {"prompt_tokens": 0, "total_tokens": 0}
        return web.json_response(
            {"object": "list", "data": rows, "model": EMBEDDER, "usage": usage}
        )

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[str]:
        """The address below which who asks is named."""
        app = web.Application(client_max_size=64 << 20)
        app.router.add_post("/{who}/v1/chat/completions", self.chat)
        app.router.add_post("/{who}/v1/embeddings", self.embed)
        runner = web.AppRunner(app, access_log=None)
        timeout = aiohttp.ClientTimeout(total=None)
        async with (
            aiohttp.ClientSession(timeout=timeout) as self.session,
            open_models(self.settings, _NoJournal()) as model_of,
        ):
            self.embedder = model_of(EMBEDDER)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            try:
                yield f"http://127.0.0.1:{runner.addresses[0][1]}"
            finally:
                await runner.cleanup()


class _NoJournal:
    """The systems' own calls are journaled by the systems."""

    async def find(self, key: str) -> None:
        return None

    async def has_answer(self, model: str) -> bool:
        return False

    async def append(self, entry: object) -> None:
        pass


class AsIfRight:
    """Scores the first verdict highest, without a call: the real verdict is found by strings."""

    async def __call__(self, case: Case, /) -> Any:
        return _Judged(
            tuple(EvaluationResult(float(n == 0), n == 0) for n in range(len(case.candidates)))
        )


@dataclass(frozen=True)
class _Judged:
    result: tuple[EvaluationResult | Failure, ...]
    usage: Usage = Usage()
    coverage: float = 1.0


def words(text: str) -> frozenset[str]:
    """Those that tell something; a date is one word, however it is written."""
    for written in dates_in(text):
        day = re.split(r",? (?:at )?\d{1,2}:\d{2}", written)[0]
        text = text.replace(day, write_date(parse_time(day), "%Y%m%d"))
    tokens = re.findall(r"[a-z0-9:]+", text.lower().replace("'s", " "))
    return frozenset(word for word in tokens if word not in SMALL_WORDS)


def says(text: str, fact: str) -> bool:
    """Whether all words of a fact that tell something stand in one line of a text."""
    return any(words(fact) <= words(line) for line in text.splitlines())


def judge_by_strings(subject: Subject) -> Label | None:
    """The verdict on made data; None where there is nothing to be judged."""
    texts = subject.texts
    match subject.task:
        case "integrity":
            return 2 if says(texts["memories"], texts["expected"]) else 0
        case "accuracy":
            gold = texts["gold"].splitlines()
            return 2 if any(words(fact) <= words(texts["memory"]) for fact in gold) else 0
        case "update":
            new = says(texts["memories"], texts["expected"])
            old = any(
                says(texts["memories"], line) for line in texts["original"].splitlines() if line
            )
            return "Correct" if new and not old else "Hallucination" if old else "Omission"
        case "question":
            answer, reference = texts["answer"].lower(), texts["reference"].lower()
            if reference == UNKNOWN:
                unsure = ("unknown", "not know", "no information", "not mention", "cannot", "n't")
                return "Correct" if any(word in answer for word in unsure) else "Hallucination"
            return "Correct" if words(reference) <= words(answer) else "Omission"


def judge_anew(judgement: MemoryJudgement) -> MemoryJudgement:
    if isinstance(judgement.outcome, Failure) or judgement.subject.by_rule is not None:
        return judgement
    label = judge_by_strings(judgement.subject)
    assert label is not None
    included = bool(label) if judgement.subject.task == "accuracy" else None
    return replace(judgement, outcome=MemoryVerdict(label, "by strings", included))


async def measure(
    system: str, data: Path, settings: Settings, door: Door, *, by_model: bool
) -> tuple[MemoryEvaluation, Mapping[str, float]]:
    """A system's metrics, and what a session took: tokens, calls and seconds of the system."""
    before = Counter(door.spent.get("system", Counter[str]()))
    objects, collected = Objects(), MemoryEvaluation()
    judge = None if by_model else objects.name(AsIfRight())
    spec = MemoryEvaluationSpec(data=str(data), system=system, judge=judge, model="judge/local")
    sessions, seconds = 0, 0.0
    client, finder = AsyncClient(settings=settings), objects.by_name
    opened = open_run(client, spec, None, finder, name="", ordered=True, ends=False)
    async with opened as (_run, records):
        async for record in records:
            if isinstance(record, SessionTimes):
                sessions += 1
                seconds += record.adding or 0.0
            if isinstance(record, MemoryJudgement) and not by_model:
                record = judge_anew(record)
            collected.take(record)
    spent = Counter(door.spent.get("system", Counter[str]()))
    spent.subtract(before)
    tokens = spent["prompt_tokens"] + spent["completion_tokens"]
    took = {"tokens": tokens, "calls": spent["calls"], "seconds": seconds}
    return collected, {n: value / max(1, sessions) for n, value in took.items()}


def show(system: str, evaluation: MemoryEvaluation, took: Mapping[str, float]) -> str:
    cells: list[str] = []
    for name in SHOWN:
        pair = evaluation.metrics.overall.get(name)
        metric = pair.all if pair else None
        if metric is None or metric.value is None:
            cells.append("-")
        elif metric.low is None or metric.high is None:
            cells.append(f"{metric.value:.2f}")
        else:
            cells.append(f"{metric.value:.2f} [{metric.low:.2f}, {metric.high:.2f}]")
    spent = [f"{took['tokens']:,.0f}", f"{took['calls']:.1f}", f"{took['seconds']:.1f}"]
    failed = str(sum(number for _, _, number in evaluation.failures))
    return "| " + " | ".join([system, *cells, *spent, failed]) + " |"


def settings_for(folder: Path, address: str) -> Settings:
    providers = {
        name: Provider(base_url=f"{address}/{name}/v1", keyless=True)
        for name in ("system", "judge")
    }
    fields = {"store": folder / "store.db", "providers": providers, "concurrency": 1}
    plain = read_settings(store=str(folder / "store.db"))
    timeouts = {"read": 1800.0, "total": 1800.0, "deadline": 3600.0}
    return plain.model_copy(
        update={**fields, "timeouts": plain.timeouts.model_copy(update=timeouts)}
    )


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--users", type=int, default=4)
    parser.add_argument("--sessions", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--systems", default="textevolve:model=system/local,mem0,context,none")
    parser.add_argument("--model", default="qwen2.5-coder-1.5b")
    parser.add_argument("--judge-by-model", action="store_true")
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    print(describe_machine())
    os.environ["TEXTEVOLVE_MEM0_MODEL"] = "system/local"
    os.environ["TEXTEVOLVE_MEM0_EMBEDDER"] = "system/minilm"
    folder = options.keep or Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / f"people-{options.users}-{options.sessions}-{options.seed}.jsonl"
    lines = [user_to_line(u) for u in synthesise(options.users, options.sessions, options.seed)]
    data.write_text("\n".join(lines) + "\n", encoding="utf-8")
    settings = read_settings()
    weights = fetch(options.model, settings)
    print(
        f"{options.users} users, {options.sessions} sessions each, {options.model};"
        f" kept in {folder}\n"
    )
    heads = ["system", *SHOWN.values(), "tokens a session", "calls", "seconds adding", "failed"]
    print("| " + " | ".join(heads) + " |\n|" + "---|" * len(heads), flush=True)
    with serve(weights, Local(slots=1, context=16384)) as server:
        door = Door(server.base_url, server.api_key, settings)
        async with door.open() as address:
            ours = settings_for(folder, address)
            for system in options.systems.split(","):
                for by_model in (False, True) if options.judge_by_model else (False,):
                    began = time.monotonic()
                    evaluation, took = await measure(system, data, ours, door, by_model=by_model)
                    name = system.partition(":")[0] + (" (judged by model)" if by_model else "")
                    print(show(name, evaluation, took), flush=True)
                    print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr)
    print(json.dumps({who: dict(spent) for who, spent in door.spent.items()}))


if __name__ == "__main__":
    asyncio.run(main())
