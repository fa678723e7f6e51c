"""A fifth of all calls goes wrong, in every way that endpoints have: nothing is made up."""

import json
import re
from collections import Counter
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from flat_verbs import aevaluate_batch
from textevolve import Case, EvaluationResult, Failure, Settings
from textevolve.llm.testing import Answer, Fault, ScriptedServer, faults, instance, misbehave

pytestmark = pytest.mark.guard

USABLE = (None, Fault.PROSE, Fault.FENCE)
TRANSIENT = (
    *(Fault.RATE_LIMIT, Fault.RATE_LIMIT_WAIT, Fault.SERVER_ERROR, Fault.OVERLOADED),
    *(Fault.TIMEOUT, Fault.RESET, Fault.CUT_BODY, Fault.NOT_JSON, Fault.ERROR_IN_200),
)
CONTENT = (
    *(Fault.BROKEN_JSON, Fault.CUT_JSON, Fault.PROSE, Fault.FENCE, Fault.OUT_OF_RANGE),
    Fault.EMPTY,
)
SETTINGS = {
    "timeouts": {"connect": 2, "read": 0.4, "total": 2, "deadline": 20},
    "retries": {"attempts": 2, "first": 0.01, "longest": 0.05},
}
PATIENT = SETTINGS | {"retries": {"attempts": 6, "first": 0.01, "longest": 0.05}}


class Judge:
    """Misbehaves in a share of the calls; knows what it said in each answer that was whole.

    A turn is known by its debate's code, its round and its agent. Unless they are `whole` numbers,
    all stated scores differ.
    """

    def __init__(self, rate, kinds, seed=1, whole=False):
        self.whole = whole
        self.fault_of = faults(rate, kinds, seed)
        self.said = {}
        self.asked = Counter()
        self.faults = Counter()
        self.odds = {}
        self.rng = Random(seed)

    def __call__(self, body, number):
        fault = self.fault_of(body, number)
        self.faults[fault] += 1
        turn = turn_of(body)
        answer = misbehave(fault) if fault else Answer()
        if "response_format" not in body:
            return self._probe(body, turn, fault, answer)
        self.asked[turn] += 1
        spoken_answer = instance(body["response_format"]["json_schema"]["schema"], self.rng)
        scores = {}
        for label, points in spoken_answer.items():
            if label != "argument" and "scores" in points:
                points["scores"] = {name: self._draw() for name in points["scores"]}
                scores[int(label.split()[1])] = tuple(points["scores"].values())
        if fault in USABLE:
            self.said.setdefault(turn, []).append(scores)
        return answer if answer.body else replace(answer, text=json.dumps(spoken_answer))

    def _draw(self):
        return self.rng.randint(0, 10) if self.whole else round(self.rng.uniform(0, 10), 9)

    def _probe(self, body, turn, fault, answer):
        label, question = re.search(
            r"Look at Response (\d+) once.*\nOne question on it, as [^:]+: (.+) Answer with",
            body["messages"][-1]["content"],
            re.DOTALL,
        ).groups()
        yes = round(self.rng.uniform(0.02, 0.98), 9)
        if fault is None:
            self.odds.setdefault((*turn, int(label), question), []).append(10 * yes)
            return replace(answer, yes=yes)
        return answer


def turn_of(body):
    text = body["messages"][1]["content"]
    code = re.search(r"The code of this debate is (\w+)", text)[1]
    agent, round = re.findall(r"\nYou are ([^.\n]+)\. .*\nThis is round (\d+)", text)[-1]
    return code, int(round), agent


def cases(number):
    return [
        Case(f"Question {n}?", (f"Yes, {n}.", f"No, {n}.", "Perhaps."), f"c{n}")
        for n in range(number)
    ]


async def judge_all(home, judge, number, settings=SETTINGS, **parameters):
    async with ScriptedServer(judge, keep=0) as server:
        settings = Settings(store=home / "store.db", concurrency=min(number, 64), **settings)
        results = aevaluate_batch(
            cases(number),
            model=f"{server.url}#scripted",
            settings=settings,
            convergence=None,
            **parameters,
        )
        return [result async for result in results]


def check_shape(results, number):
    """Every case has a result; every turn has scores or a reason; coverage says how many."""
    assert sorted(r.index for r in results) == list(range(number))
    for result in results:
        assert result.case == cases(number)[result.index]
        for turn in result.turns:
            assert (turn.scores is None) == (turn.failure is not None)
            if turn.failure:
                assert turn.failure.kind == "failed"
                assert len(turn.failure.reason) > 20
        scored = [t for t in result.turns if t.scores is not None]
        planned = len(result.convergence) * len(result.agents)
        assert len(result.turns) == planned
        assert result.coverage == pytest.approx(len(scored) / planned)
        missing = np.isnan(result.tensor.values).all(axis=(2, 3))
        assert missing.sum() == planned - len(scored)
        assert np.isnan(result.tensor.values).any(axis=(2, 3)).sum() == missing.sum()
        for item in result.result:
            assert isinstance(item, EvaluationResult if scored else Failure)
        if scored:
            votes = np.array([t.scores for t in scored]).mean(axis=(0, 2))
            assert result.scores == pytest.approx(votes)
        else:
            assert result.stopped == "failed"
            assert result.best is None


def turns_with_scores(results):
    """Each turn that was scored with what names it, and its scores by the candidates' labels."""
    for result in results:
        for turn in result.turns:
            if turn.scores is not None:
                key = result.nonce, turn.round + 1, result.agents[turn.agent]
                yield result, key, dict(zip(result.labels, turn.scores, strict=True))


@pytest.mark.slow
async def test_two_hundred_debates_where_a_fifth_of_the_calls_goes_wrong(home):
    judge = Judge(0.2, TRANSIENT + CONTENT)
    results = await judge_all(home, judge, 200, readout="verbalized")
    check_shape(results, 200)
    assert set(judge.faults) == {None, *TRANSIENT, *CONTENT}
    failures = [t.failure.reason for r in results for t in r.turns if t.failure]
    assert any("unusable answer" in reason for reason in failures)
    assert any("no answer after" in reason for reason in failures)
    rungs = Counter(t.parse_mode for r in results for t in r.turns)
    assert {"strict", "tolerant", "asked-again"} <= set(rungs)
    for _, key, scores in turns_with_scores(results):
        assert scores in judge.said[key]


@pytest.mark.slow
async def test_probes_that_go_wrong_leave_their_turn_without_scores(home):
    judge = Judge(0.2, (*TRANSIENT, Fault.EMPTY, Fault.PROSE))
    results = await judge_all(home, judge, 12, PATIENT, readout="after-argument", rounds=1)
    check_shape(results, 12)
    assert any(t.failure for r in results for t in r.turns)
    for result, key, scores in turns_with_scores(results):
        for label, row in scores.items():
            for component, score in zip(result.profile.components, row, strict=True):
                odd = judge.odds[(*key, label, component.probe)]
                assert any(score == pytest.approx(value) for value in odd)
