"""A debate's profile, calibrated on items that people judged: the judge that improves itself.

The made judge knows sums only where its wording tells it to check them; else it prefers either
candidate as by lot.
"""

import json
import re
import signal
import time
from zlib import crc32

import numpy as np
import pytest

from textevolve import calibrate
from textevolve.bench.items import Item
from textevolve.bench.profile_weights import fit_weights, gain_of_fit
from textevolve.debate.profile import COMPONENTS, Agent, Profile, load_profile, parse_profile
from textevolve.debate.profile_texts import dump_profile, profile_texts, with_texts
from textevolve.errors import InputError
from textevolve.llm.testing import ScriptedServer
from textevolve.settings import Settings

HELPS = "Check the sum."
NAME = "component correctness"
PROFILE = """\
name: adder
agents:
  - name: Reader
    persona: You read quickly.
components:
  - name: correctness
    meaning: how right it is
    rubric: {0: wrong, 10: right}
    question: is it right?
  - {name: style, meaning: how well it sounds}
rounds: 1
threshold: 0.6
"""
SECRET = "the reference that no debater sees"


def fenced(text, name):
    return re.search(rf"\[\[\w+ {name}\]\]\n(.*?)\n\[\[/", text, re.DOTALL)[1]


def by_lot(*of):
    return crc32(repr(of).encode()) % 11


def scores_of(told, asked, answers, _place, answer):
    """Of a response: the right one where it is told to check, else by lot."""
    right = asked == answer
    correctness = (9 if right else 2) if HELPS in told else by_lot(told, answer, answers)
    return {"correctness": correctness, "style": 5}


def debate(said, scores):
    """One agent's answer, from what all messages of the request say."""
    opening = said.rindex("The code of this debate")
    asked = str(2 * int(re.search(r"What +is (\d+)", said[opening:], re.IGNORECASE)[1]))
    found = re.findall(r"\[\[\w+ response (\d+)\]\]\n(.*?)\n\[\[/", said[opening:], re.DOTALL)
    answers = tuple(sorted(text for _, text in found))
    points = {"strengths": "s", "weaknesses": "w", "instructions": "i"}
    told = re.sub(r"The code of this debate.*?You are ", "", said, flags=re.DOTALL)
    told = re.sub(r", on Response.*", "", told)
    return {"argument": "Response 1 reads well."} | {
        f"Response {label}": points | {"scores": scores(told, asked, answers, place, text)}
        for place, (label, text) in enumerate(found)
    }


def edit(said, lines):
    """The editor writes the same line into one template, whatever it is shown."""
    if "Write at most" in said:
        alone = re.search(r"rewriting the template (.+?) alone", said)
        return {"instructions": [lines[1] if alone else f"{lines[0]}: {lines[1]}"]}
    told = [line.split(". ", 1)[1] for line in fenced(said, "instructions").splitlines()]
    if said.startswith("You rewrite a prompt template as"):
        return {"template": "\n".join([fenced(said, "template"), *told])}
    name, _, rest = told[0].partition(": ")
    old = fenced(said, f"template {name}").splitlines()
    return {"templates": [{"name": name, "template": "\n".join([f"{old[0]} {rest}", *old[1:]])}]}


def make_script(scores=scores_of, lines=(NAME, HELPS)):
    def script(body, _number):
        said = "\n".join(str(one["content"]) for one in body["messages"])
        last = body["messages"][-1]["content"]
        made = debate(said, scores) if "The code of this debate" in said else edit(last, lines)
        return json.dumps(made)

    return script


@pytest.fixture
def server():
    with ScriptedServer(make_script(), keep=100_000) as started:
        yield started


def make_items(number, winner=None):
    """The right sum first or second; people prefer it, or the place `winner`."""
    made = []
    for n in range(1, number + 1):
        texts = [str(2 * n), str(2 * n + 1)]
        first = crc32(str(n).encode()) % 2 == 0
        place = (1 if first else 2) if winner is None else winner
        shown = texts if first else texts[::-1]
        made.append({"input": f"What is {n} and {n}?", "candidates": shown, "winner": place})
        made[-1] |= {"id": f"sum{n}", "reference": SECRET}
    return made


@pytest.fixture
def items(home):
    made = make_items(36)
    (home / "labelled.jsonl").write_text("".join(json.dumps(one) + "\n" for one in made))
    (home / "judge.yaml").write_text(PROFILE)
    return made


@pytest.fixture
def means(home, model, items):
    settings = Settings(store=home / "store.db", model=model)
    return {"settings": settings, "profile": "judge.yaml", "budget": "200"}


def command(model, *more):
    given = ("--profile", "judge.yaml", "-d", "labelled.jsonl", "-m", model, "--budget", 200)
    return ("calibrate", *given, *more)


def test_a_better_profile_is_found_shown_and_written(cli, home, items, model, server):
    outputs = ("-o", "better.yaml", "-o", "search.json", "-o", "page.html")
    ended = cli(*command(model, *outputs))
    assert ended.code == 0, ended.err
    assert "The gain is significant" in ended.out
    assert "Calibration of a debate profile" in ended.out
    assert "Smallest detectable gain" in ended.out
    better = load_profile("better.yaml")
    assert better.components[0].meaning == "how right it is Check the sum"
    assert better.components[0].rubric == {0: "wrong", 10: "right"}
    assert better.threshold == 0.6
    assert "rounds: 1" in (home / "better.yaml").read_text()
    found = json.loads((home / "search.json").read_text())
    assert found["accepted"]
    assert found["gain"]["chance"] == 0.5
    assert found["gain"]["first"] == 1
    assert found["usage"]["calls"] <= 200
    assert server.calls <= found["usage"]["calls"]  # the journal has debates of equal prompts
    assert "changes in component correctness" in (home / "page.html").read_text()
    calls = server.calls
    again = cli(*command(model, *outputs))
    assert (again.code, server.calls) == (0, calls)


def test_debaters_see_no_label_and_the_editor_sees_what_they_argued(cli, items, model, server):
    assert cli(*command(model)).code == 0
    asked = ["\n".join(str(one["content"]) for one in body["messages"]) for body in server.requests]
    debated = [said for said in asked if "The code of this debate" in said]
    edited = [said for said in asked if "Write at most" in said]
    assert debated
    assert edited
    for said in debated:
        assert SECRET not in said
        assert "prefer" not in said
        assert "sum3" not in said  # ids
    assert "People prefer candidate" in edited[0]
    assert "Response 1 reads well." in fenced(edited[0], "output of persona Reader")
    assert re.search(r"candidate 1: correctness \d", edited[0])
    assert "This program is a debate" in edited[0]


def test_where_nothing_helps_the_original_is_kept(cli, home, items, model, server):
    server.script = make_script(lines=(NAME, "Be friendly."))
    ended = cli(*command(model, "-o", "better.yaml"))
    assert ended.code == 0
    assert "the original is kept" in ended.out
    assert load_profile("better.yaml") == load_profile("judge.yaml")


def first_is_best(told, _asked, answers, place, answer):
    place = 10 if place == 0 else 0
    return {"correctness": place if HELPS in told else by_lot(told, answer, answers), "style": 5}


@pytest.mark.parametrize("orders", ["both", "drawn"])
def test_to_prefer_the_first_gains_nothing(items, means, server, orders):
    """Even where people have always preferred the first."""
    server.script = make_script(first_is_best)
    found = calibrate("", make_items(60, winner=1), orders=orders, **means)
    assert not found.accepted
    first = [n for n in found.nodes if HELPS in n.text]
    assert first
    assert orders == "drawn" or {node.score for node in first} <= {0.5, None}


def wrong_or_nothing(told, asked, _answers, _place, answer):
    return {"correctness": 5 if HELPS in told else 9 * (answer != asked), "style": 5}


def test_to_abstain_gains_nothing_even_over_a_judge_that_is_worse_than_chance(items, means, server):
    server.script = make_script(wrong_or_nothing)
    found = calibrate("", items, **means, strategy="protegi")
    assert found.leader
    assert found.gain.p <= found.gain.level
    assert (found.gain.first, found.gain.second, found.gain.chance) == (0.5, 0, 0.5)
    assert not found.accepted


def misled_by_style(_told, asked, _answers, _place, answer):
    right = answer == asked
    return {"correctness": 6 if right else 5, "style": 1 if right else 9}


def test_weights_are_fitted_without_a_call(home, items, means, server):
    server.script = make_script(misled_by_style, lines=(NAME, "Be friendly."))
    found = calibrate("", items, **{**means, "budget": "400"})
    assert found.accepted
    assert found.weights == {"correctness": 1, "style": 0}
    node = next(node for node in found.nodes if node.operator == "weights")
    assert node.instructions == ("weights: correctness 1, style 0",)
    earned = next(one for one in found.operators if one.operator == "weights")
    assert (earned.calls, earned.taken) == (0, 1)
    # What was searched and decided was asked under the original's weights.
    debated = [b for b in server.requests if "code of this debate" in str(b["messages"])]
    bodies = {json.dumps(body, sort_keys=True) for body in debated}
    assert len(bodies) == len(debated)


def test_a_limit_stops_it_and_the_same_command_goes_on(cli, items, model, server):
    whole = json.loads(cli(*command(model, "--json", "--store", "other.db")).out)
    asked = server.calls
    stopped = cli(*command(model, "--max-calls", 60))
    assert stopped.code == 3
    assert server.calls - asked == 60
    resumed = cli("runs", "resume", "last", "--json", "--max-calls", 1000)
    assert resumed.code == 0, resumed.err
    assert server.calls == 2 * asked
    found = json.loads(resumed.out)
    assert found["templates"] == whole["templates"]
    assert found["gain"] == whole["gain"]


@pytest.mark.slow
def test_a_killed_search_goes_on(cli, spawn, items, model, server, stalling):
    server.script = stalling(50, make_script())
    process = spawn(*command(model))
    while server.calls < 50:
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    answered = {json.dumps(body) for body in list(server.requests)[:50]}
    server.requests.clear()
    server.script = make_script()
    ended = cli(*command(model, "--json"))
    assert ended.code == 0, ended.err
    found = json.loads(ended.out)
    assert found["accepted"]
    again = answered & {json.dumps(body) for body in server.requests}
    assert len(again) <= 32  # those that were in flight


@pytest.mark.slow
def test_a_rehearsal_tells_what_it_takes_and_asks_nothing(cli, items, model, server):
    told = cli(*command(model, "--dry-run"))
    assert told.code == 0, told.err
    assert "a true gain of" in told.out
    assert "calls for its debates" in told.out
    assert "200" in told.out
    small = cli(
        "calibrate", "-p", "judge.yaml", "-d", "labelled.jsonl", "-m", model, "--budget", 30
    )
    assert small.code == 2
    assert "too small: the shortest search and a decision take 48 calls" in small.err
    assert server.calls == 0


def test_what_cannot_be_calibrated_is_said(cli, home, items, model, server):
    few = "".join(json.dumps(one) + "\n" for one in items[:7])
    (home / "few.jsonl").write_text(few)
    (home / "broken.yaml").write_text("agents:\n  - name: Reader\n")
    base = ("calibrate", "-m", model)
    faults = {
        ("-p", "judge.yaml", "-d", "few.jsonl"): "7 on 7 different questions; at least 8",
        ("-p", "broken.yaml", "-d", "labelled.jsonl"): "broken.yaml:2: agents.0.persona: missing",
        ("-p", "generul", "-d", "labelled.jsonl"): "did you mean 'general'",
        ("-p", "judge.yaml"): "--data is missing",
        ("-p", "judge.yaml", "-d", "judge.yaml"): "judge.yaml",
    }
    for given, told in faults.items():
        ended = cli(*base, *given)
        assert ended.code == 2, given
        assert told in ended.err
    for option, value in {"metric": "exact", "judge": "probe", "label": "winner"}.items():
        ended = cli(*command(model, f"--{option}", value))
        assert ended.code == 2
        assert f"--profile and --{option}" in ended.err
    assert "demos is for prompts" in cli(*command(model, "--strategy", "demos")).err
    assert server.calls == 0


def test_alike_inputs_stay_on_one_side(items, means, server):
    doubled = [*items, *({**one, "id": one["id"] + "b"} for one in items)]
    for one in doubled[len(items) :]:
        one["input"] = one["input"].upper().replace("WHAT IS", "What  is") + " "
        one["candidates"] = one["candidates"][::-1]
        one["winner"] = 3 - one["winner"]
    found = calibrate("", doubled, **means)
    assert sum(found.rows) == 72
    assert all(number % 2 == 0 for number in found.rows)


def test_texts_of_a_profile_and_back():
    profile = Profile(agents=(Agent(name="A b", persona="One.\nTwo."),), components=COMPONENTS)
    texts = profile_texts(profile)
    assert with_texts(profile, texts) == profile
    assert list(texts)[:2] == ["persona A b", "component confidence"]
    changed = with_texts(
        profile,
        {
            "persona A b": "Three.",
            "component accuracy": "how true\nRules:\n- be strict\n- 10: true\nquestion: is it?",
            "component relevance": "how near",
            "component timeliness": "0: old",
        },
        {"accuracy": 0.5},
    )
    by_name = {one.name: one for one in changed.components}
    assert changed.agents[0].persona == "Three."
    assert by_name["accuracy"].meaning == "how true Rules: - be strict"
    assert by_name["accuracy"].rubric == {10: "true"}
    assert by_name["accuracy"].question == "is it?"
    assert by_name["relevance"].rubric == COMPONENTS[1].rubric
    assert by_name["timeliness"].meaning == COMPONENTS[4].meaning
    assert by_name["timeliness"].rubric == {0: "old"}
    assert changed.weight_list == (0, 0, 0.5, 0, 0)
    assert parse_profile(dump_profile(changed), "made") == changed


def test_weights_follow_what_people_prefer_and_folds_say_whether_they_help():
    generator = np.random.default_rng(0)
    items, scores, noise = [], [], []
    for n in range(40):
        human = (1.0, 0.0) if n % 2 else (0.0, 1.0)
        items.append(Item(str(n), f"input {n}", ("a", "b"), human, group=str(n)))
        speaks = np.array(human) + generator.normal(0, 0.3, 2)
        against = -np.array(human)
        lot = generator.normal(0, 1, 2)
        scores.append(np.stack([speaks, against, lot], axis=1))
        noise.append(generator.normal(0, 1, (2, 3)))
    names = ("speaks", "against", "lot")
    found = fit_weights(items, scores, names)
    assert found[0] == 1
    assert found[1] == 0
    assert found[2] < 0.3
    equal = dict.fromkeys(names, 1.0)
    assert gain_of_fit(items, scores, equal) > 0.2
    assert gain_of_fit(items, scores, {"speaks": 1, "against": 0, "lot": 0}) <= 0
    assert abs(gain_of_fit(items, noise, equal)) < 0.3
    assert fit_weights(items[:5], scores[:5], names) is None


def test_python_gives_the_better_profile(items, means, server):
    found = calibrate("", items, **means)
    better = with_texts(load_profile("judge.yaml"), found.templates, found.weights)
    assert found.accepted
    assert better.components[0].meaning == "how right it is Check the sum"
    with pytest.raises(InputError, match="too few labelled items"):
        calibrate("", items[:5], **means)
