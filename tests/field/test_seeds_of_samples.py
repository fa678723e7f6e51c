"""Situations of people who sample several answers from a server that honours seeds: samples, equal
rows and the rounds of blind judges must be draws of their own, each with its own seed.

The scripted server throws a coin that the prompt and the seed decide, as OpenAI, vLLM and llama.cpp
do. That 8 such samples agree in all of 20 rows has the probability (1/128)^20.
"""

import hashlib
import json

import pytest

from field.asked import record, write_rows
from textevolve import run
from textevolve.agents.simulated_user import SimulatedUser, write_message
from textevolve.debate.profile import load_profile
from textevolve.evaluation import Usage
from textevolve.llm.model import Request, Response, draw_sample
from textevolve.studies.compare_spec import CompareSpec


def coin(body):
    """Return heads or tails, the same for the same prompt and seed."""
    key = json.dumps([body["messages"], body.get("seed")])
    return "heads" if hashlib.sha256(key.encode()).digest()[0] % 2 else "tails"


def compare(model, rows, **options):
    fields = {"prompts": {"p": "{q}"}, "models": [model], "metric": ["regex:heads"]}
    return run(CompareSpec(**{**fields, "temperature": 1.0, **options}), cases=rows)


def seeds_of(bodies):
    return sorted(body["seed"] for body in bodies)


def test_samples_differ_within_rows(home, model, server):
    record(server, coin)
    rows = [{"id": n, "q": f"Toss coin {n}."} for n in range(20)]
    comparison = compare(model, rows, samples=8)
    texts = {}
    for output in comparison.outputs:
        texts.setdefault(output.row, set()).add(output.text)
    assert sum(len(each) == 1 for each in texts.values()) < 5


def test_equal_rows_are_draws(home, model, server):
    bodies = record(server, coin)
    comparison = compare(model, [{"id": n, "q": "Toss a coin."} for n in range(30)])
    assert len(bodies) == 30
    assert len(set(seeds_of(bodies))) == 30
    assert {output.text for output in comparison.outputs} == {"heads", "tails"}


def test_samples_of_equal_rows_differ(home, model, server):
    bodies = record(server, coin)
    compare(model, [{"id": n, "q": "Toss a coin."} for n in range(3)], samples=4)
    assert len(set(seeds_of(bodies))) == 12


def test_equal_rows_share_without_temperature(home, model, server):
    bodies = record(server, coin)
    compare(model, [{"id": n, "q": "Toss a coin."} for n in range(30)], temperature=0)
    assert len(bodies) == 1


def test_more_samples_ask_the_rest(home, model, server):
    bodies = record(server, coin)
    rows = [{"id": n, "q": "Toss a coin."} for n in range(3)]
    compare(model, rows, samples=2)
    before = seeds_of(bodies)
    compare(model, rows, samples=5)
    assert len(bodies) == 15
    assert len(set(seeds_of(bodies))) == 15
    assert set(before) < set(seeds_of(bodies))


def test_an_added_row_asks_once(home, model, server):
    bodies = record(server, coin)
    rows = [{"id": n, "q": "Toss a coin."} for n in range(4)]
    compare(model, rows[:3])
    compare(model, rows)
    assert len(bodies) == 4


def test_conversations_draw_their_samples(home, model, server):
    bodies = record(server, coin)
    rows = [{"id": n, "turns": ["Toss a coin.", "Again."]} for n in range(2)]
    compare(model, rows, prompts={"p": "Be kind."}, samples=3)
    first_bodies = [body for body in bodies if len(body["messages"]) == 2]
    assert len(set(seeds_of(first_bodies))) == len(first_bodies) == 6


async def test_simulated_users_draw_their_samples():
    requests = []

    async def model(request):
        requests.append(request.seed)
        return Response('{"state": "continues", "message": "Hello."}', "stop", Usage())

    model.name = "scripted"
    user = SimulatedUser("scripted", "A refund.", temperature=0.7, seed=5)
    for sample in range(3):
        await write_message(user, model, (), sample, persists=False)
    assert requests == [5, 6, 7]


@pytest.mark.parametrize(
    ("profile", "turns"),
    [
        ("self-consistency", 5),
        ("medprompt", 5),
        ("society-of-minds", 6),
        ("ensemble-refinement", 6),
    ],
)
def test_judges_of_one_persona_draw(cli, home, model, server, profile, turns):
    write_rows(home / "c.jsonl", [{"input": "Why?", "output": "So."}])
    bodies = record(server, lambda _body: None)
    cli("evaluate", "c.jsonl", "-m", model, "--profile", profile)
    assert load_profile(profile).sampling_temperature == 0.7
    assert len(set(seeds_of(bodies))) == len(bodies) == turns


def test_rounds_of_independent_debates_draw(cli, home, model, server):
    parameters = {"protocol": "independent", "rounds": 4, "sampling_temperature": 1}
    row = {"input": "Why?", "output": "So.", "readout": "verbalized", **parameters}
    write_rows(home / "c.jsonl", [row])
    bodies = record(server, lambda _body: None)
    assert cli("evaluate", "c.jsonl", "-m", model).code == 0
    assert seeds_of(bodies) == [
        seed for seed in range(4) for _agent in load_profile("general").agents
    ]


def test_equal_rows_of_chains_draw(cli, home, model, server):
    chain = {"name": "c", "steps": [{"ask": "out", "prompt": "Toss {q}.", "seed": 1}]}
    (home / "c.yaml").write_text(json.dumps(chain))
    write_rows(home / "rows.jsonl", [{"id": n, "q": "a coin"} for n in range(6)])
    bodies = record(server, coin)
    assert cli("run", "chains", "run", "c.yaml", "-d", "rows.jsonl", "-m", model).code == 0
    assert seeds_of(bodies) == [1, 2, 3, 4, 5, 6]


def test_seeds_stay_within_bounds():
    request = Request(messages=(), temperature=1.0, seed=2**31 - 1)
    assert draw_sample(request, 0) == request
    assert draw_sample(request, 2).seed == 1
    assert draw_sample(Request(messages=(), temperature=1.0), 2).seed is None
    assert draw_sample(Request(messages=(), temperature=0.0, seed=7), 2).seed == 7
