"""A judge that looks into long records: what it can see, what it may spend, and what it says."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from textevolve import Client, InputError, Limits, Settings
from textevolve.evaluation import Case
from textevolve.judges.investigator import MATCHES, SHOWN, RecordPart, _look, _Step, list_sections
from textevolve.llm.testing import Answer
from textevolve.trajectory import ToolUse, Trajectory

CRITERIA = "The order was refunded.\nThe answer names the amount."
BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "investigator.py"
FAR = 9000
"""Where the fault stands in a result: behind what the judge `trajectory` is shown."""


def trace(word):
    """A case whose long result has a word in its middle."""
    result = "x " * (FAR // 2) + f"order 1042 {word} " + "y " * 3000
    calls = (ToolUse("greet", None, "hello"), ToolUse("refunds", None, result))
    answer = "Refunded: 39 euros."
    return Case("Refund order 1042.", (answer,), trajectory=Trajectory(tool_calls=calls))


def judge_all(client, *words, judge, **options):
    cases = list(map(trace, words))
    return list(client.evaluate_batch(cases, judge=judge, ordered=True, **options))


def investigate(body, _call):
    """Answers as a careful model would: search, read there, then decide by what was shown."""
    messages = body["messages"]
    last = messages[-1]["content"]
    if '"decide"' in last and "Decide for each" in last:
        return Answer(text=json.dumps({"action": "search", "text": "1042"}))
    if "Section 2, character " in last and ", characters " not in last:
        place = int(last.partition("Section 2, character ")[2].partition(":")[0])
        return Answer(text=json.dumps({"action": "read", "section": 2, "start": place - 10}))
    answer = "no" if "refused" in last else "yes"
    verdict = {"reason": f"Section 2 says so: {answer}.", "answer": answer}
    verdicts = [verdict, {"reason": "39 euros.", "answer": "yes"}]
    return Answer(text=json.dumps({"action": "decide", "verdicts": verdicts}))


@pytest.fixture
def client(location, model):
    with Client(settings=Settings(store=location, model=model)) as opened:
        yield opened


def test_a_fault_far_into_a_result_is_found(client, server):
    server.script = investigate
    judge = "investigator+looks=4"
    options = {"judge": judge, "rubric": CRITERIA}
    sound, faulty = judge_all(client, "refunded", "refused", **options)
    assert (*sound.scores, *faulty.scores) == (1.0, 0.5)
    assert server.calls == 2 * 3  # search, read, decide
    feedback = faulty.feedback[0]
    assert "The order was refunded. no: Section 2 says so" in feedback
    assert "2 looks; read 1 of 2 sections" in feedback


def test_the_judge_of_whole_trajectories_cannot_tell_them(client, server):
    """The situation that this judge is for: both records look the same when calls are cut."""
    sound, faulty = judge_all(client, "refunded", "refused", judge="trajectory")
    assert sound.scores == faulty.scores


def test_who_never_decides_is_asked_once_more_and_then_has_no_score(client, server):
    server.script = lambda _body, _call: Answer(text=json.dumps({"action": "list"}))
    (result,) = judge_all(client, "refunded", judge="investigator+looks=3")
    assert result.scores == (None,)
    assert server.calls == 3 + 2  # the decision is asked for once more
    assert "verdicts" in result.result[0].reason


def test_a_decision_about_some_criteria_is_completed(client, server):
    def decide(body, _call):
        verdict = {"reason": "So.", "answer": "yes"}
        if "Decide now" in body["messages"][-1]["content"]:
            return Answer(text=json.dumps({"verdicts": [verdict, {**verdict, "answer": "no"}]}))
        return Answer(text=json.dumps({"action": "decide", "verdicts": [verdict]}))

    server.script = decide
    (result,) = judge_all(client, "refunded", judge="investigator", rubric=CRITERIA)
    assert (*result.scores, server.calls) == (0.5, 2)


def test_the_budget_of_a_run_ends_the_looks(location, model, server):
    server.script = investigate
    with Client(settings=Settings(store=location, model=model), limits=Limits(calls=2)) as client:
        (result,) = judge_all(client, "refused", judge="investigator", rubric=CRITERIA)
    assert result.scores == (None,)
    assert server.calls == 2


def test_a_row_without_a_record_is_refused():
    with pytest.raises(InputError, match="needs tool_calls, contexts or a context"):
        list_sections(Case("Why?", ("So.",)))
    assert list_sections(Case("Why?", ("So.",), trajectory=Trajectory(tool_calls=()))) == []
    long = Case("Why?", ("So.",), context="a" * 20_000)
    assert "".join(section.text for section in list_sections(long)) == "a" * 20_000


def test_the_planted_faults_of_the_benchmark_can_be_seen(client, server):
    """By a model that reads on. The other judge gives each pair equal scores, whatever its model:
    what it is shown is equal."""
    spec = importlib.util.spec_from_file_location("traces", BENCHMARK)
    benchmark = importlib.util.module_from_spec(spec)
    sys.modules["traces"] = benchmark
    spec.loader.exec_module(benchmark)
    faults = [json.dumps(json.dumps(trace.faulty))[1:-1] for trace in benchmark.TRACES]

    def read_on(body, _call):
        texts = [message["content"] for message in body["messages"]]
        start = 3600 * (len(texts) // 2)
        if start < 12_000:
            return Answer(text=json.dumps({"action": "read", "section": 2, "start": start}))
        answer = "no" if any(fault in "".join(texts) for fault in faults) else "yes"
        verdicts = [{"reason": "Section 2.", "answer": answer}] * 5
        return Answer(text=json.dumps({"action": "decide", "verdicts": verdicts}))

    assert benchmark.measure(client, "trajectory")["noticed"] == 12 / 2
    server.script = read_on
    assert benchmark.measure(client, "investigator")["noticed"] == 12
    del sys.modules["traces"]


def look(sections, action, **fields):
    return _look(sections, _Step(action=action, **fields))


def test_looks_show_all_of_a_record_and_say_what_is_left_out():
    text = "".join(chr(65 + n % 26) for n in range(10_000))
    sections = [RecordPart("passage", text), *[RecordPart("passage", "Oslo. oslo.")] * 60]
    shown = ""
    while len(shown) < len(text):
        shown += look(sections, "read", section=1, start=len(shown)).partition("\n")[2]
    assert shown == text
    assert f"characters 0 to {SHOWN} of 10000" in look(sections, "read", section=1)
    assert look(sections, "read", section=99) == "There is no section 99; there are 61."
    assert look(sections, "read", section=-3, start=-5).startswith("Section 1, characters 0")
    assert look(sections, "list").endswith("21 more sections")
    assert look(sections, "list", section=60).count("passage") == 2
    found = look(sections, "search", text="OSLO")
    assert found.count("Section") == MATCHES
    assert found.endswith(f"{120 - MATCHES} more places")
    assert "Nothing found" in look(sections, "search", text="Bergen")
    assert "Name in the field" in look(sections, "search", text=" ")
    # Its small letters have more characters than it has.
    assert "Section 1, character" in look(
        [RecordPart("", "\u0130stanbul")], "search", text="stanbul"
    )


def test_a_call_has_its_name_arguments_result_and_error():
    calls = (ToolUse("pay", {"euros": 3}, None, "declined"),)
    (section,) = list_sections(Case("Pay.", ("Paid.",), trajectory=Trajectory(tool_calls=calls)))
    assert section.title == "call of pay"
    assert json.loads(section.text)["error"] == "declined"
