"""Folders of traces that are judged while programs write into them."""

import json
import os
import signal
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_eval.otlp_lines import chat, document, span
from textevolve.llm.testing import Answer
from textevolve.node_eval.following import TraceFolder
from textevolve.studies.following import PassRateWatch

FOLLOW = ("nodes", "spans", "--follow", "--every", 1, "--time-limit", 0)


def line(*spans):
    return json.dumps(document(*spans)) + "\n"


def trace(id, seconds=1, **more):
    """Return the line of a trace with one step."""
    texts = {"input__value": "When is high tide?", "output__value": "At six.", **more}
    return line(chat(f"{id}-1", 1, 1 + seconds, trace=id, **texts))


@pytest.fixture
def write(home):
    """Appends text to a file of the folder, as if it had been written `age` seconds ago."""
    (home / "spans").mkdir()

    def append(text, name="a.jsonl", age=1000):
        path = home / "spans" / name
        with path.open("ab") as file:
            file.write(text if isinstance(text, bytes) else text.encode())
        if age:
            moment = path.stat().st_mtime - age
            os.utime(path, (moment, moment))
        return path

    return append


@pytest.fixture
def folder(home, write):
    def follow(sample=1.0, known=()):
        return TraceFolder(str(home / "spans"), {}, sample, 60.0, known)

    return follow


def ids(look):
    return [episode.id for episode in look.episodes]


def test_complete_traces_are_judged_once(cli, write):
    write("".join(trace(f"t{n}", 1 + 9 * (n == 3)) for n in range(10)))
    outcome = cli(*FOLLOW, "--latency", 5)
    assert outcome.code == 0, outcome.err
    assert outcome.out.startswith("10 traces judged, 9 passed; 90.0 % of all 10 passed; run ")
    assert cli(*FOLLOW, "--latency", 5).out == ""

    write(trace("new"))
    outcome = cli(*FOLLOW, "--latency", 5)
    assert outcome.out.startswith("1 trace judged, 1 passed; 90.9 % of all 11 passed; run ")
    assert [run["name"] for run in cli("runs", "list", "--json").rows] == ["follow spans"] * 2


def test_a_fall_raises_one_alarm(cli, write):
    chosen = (*FOLLOW, "--latency", 5, "--expected", 0.8)
    write("".join(trace(f"good {n}", 1 + 9 * (n % 5 == 0)) for n in range(100)))
    assert cli(*chosen).code == 0
    write("".join(trace(f"bad {n}", 1 + 9 * (n % 5 > 0)) for n in range(20)), "b.jsonl")
    outcome = cli(*chosen)
    assert outcome.code == 4
    assert "ALARM: the pass rate has fallen below 0.8: of the last 100 traces 68 %" in outcome.out
    assert cli(*chosen).code == 0  # the evidence begins anew after the alarm
    write("".join(trace(f"later {n}") for n in range(5)))
    assert cli(*chosen).code == 0


def test_missing_judgements_are_no_failures(cli, home, server, model, write):
    (home / "textevolve.toml").write_text("[retries]\nattempts = 1\n")
    server.script = lambda body, _: Answer(status=500) if "broken" in str(body) else Answer(yes=0.9)
    write(trace("a") + trace("b", output__value="broken") + trace("c"))
    outcome = cli(*FOLLOW, "--judge", "probe", "-m", model, "--expected", 0.999)
    assert outcome.code == 0, outcome.err
    assert outcome.out.startswith("2 traces judged, 2 passed; 1 without a verdict")


def test_a_limit_ends_the_watch_and_the_next_start_finishes(cli, server, model, write):
    server.script = lambda body, _: Answer(yes=0.9)
    write("".join(trace(f"t{n}", output__value=f"At {n}.") for n in range(6)))
    chosen = (*FOLLOW, "--judge", "probe", "-m", model, "--concurrency", 1)
    outcome = cli(*chosen, "--max-calls", 4)
    assert outcome.code == 3
    assert "1 trace judged, 1 passed; 5 without a verdict" in outcome.out
    assert len(server.requests) == 4
    assert "The same command continues with new limits" in outcome.err
    write(trace("t6"))
    outcome = cli(*chosen)
    assert outcome.code == 0
    assert "100.0 % of all 7 passed" in outcome.out
    bodies = [json.dumps(request, sort_keys=True) for request in server.requests]
    assert len(set(bodies)) == len(bodies)


@pytest.mark.slow
def test_after_an_interrupt_the_same_command_finishes_the_run(
    cli, spawn, server, model, stalling, write
):
    def answer(body, _):
        return Answer(yes=0.9)

    server.script = stalling(10, answer)
    write("".join(trace(f"t{n}", output__value=f"At {n}.") for n in range(20)))
    chosen = (*FOLLOW[:-2], "--judge", "probe", "-m", model, "--concurrency", 2)
    process = spawn(*chosen)
    while len(server.requests) < 12 and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, said = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, ""), said
    assert "The same command continues" in said

    server.script = answer
    outcome = cli(*chosen, "--time-limit", 0)
    assert outcome.code == 0, outcome.err
    assert outcome.out.startswith("20 traces judged, 20 passed")
    assert [run["cases"] for run in cli("runs", "list", "--json").rows] == [20]
    write(trace("later"))
    assert "100.0 % of all 21 passed" in cli(*chosen, "--time-limit", 0).out


def test_other_judges_need_another_name(cli, write):
    write(trace("a"))
    assert cli(*FOLLOW, "--latency", 5).code == 0
    outcome = cli(*FOLLOW, "--latency", 6)
    assert outcome.code == 2
    assert "have other judges" in outcome.err
    assert cli(*FOLLOW, "--latency", 6, "--name", "stricter").code == 0


def test_an_alarm_of_an_interrupted_run_is_raised_by_the_next_start(cli, server, model, write):
    server.script = lambda body, _: Answer(yes=0.1)
    write("".join(trace(f"t{n}", output__value=f"At {n}.") for n in range(8)))
    chosen = (*FOLLOW, "--judge", "probe", "-m", model, "--expected", 0.99)
    assert cli(*chosen, "--max-calls", 4, "--concurrency", 1).code == 3
    outcome = cli(*chosen)
    assert outcome.code == 4
    assert "ALARM: the pass rate has fallen below 0.99: of the last 8 traces 0 %" in outcome.out


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("nodes", "spans", "--follow"), "no checks"),
        (("nodes", "no-folder", "--follow", "--latency", 1), "no such folder"),
        (("nodes", "--follow", "--latency", 1), "name the folder"),
        ((*FOLLOW, "--latency", 1, "--expected", 1), "expected"),
        ((*FOLLOW, "--latency", 1, "--sample", 0), "sample"),
        ((*FOLLOW, "--latency", 1, "-o", "x.json"), "--output: does not go with --follow"),
        ((*FOLLOW, "--latency", 1, "--json"), "--json: does not go with --follow"),
        ((*FOLLOW, "--latency", 1, "--min-mean", 0.5), "--min-mean: does not go with --follow"),
        (("nodes", "spans", "--latency", 1, "--sample", 0.5), "--sample: is for --follow alone"),
    ],
)
def test_refusals(cli, write, options, reason):
    outcome = cli(*options)
    assert outcome.code == 2
    assert reason in outcome.err


def test_half_a_line_waits(folder, write):
    text = trace("whole") + trace("half")
    write(text[:-40], age=0)
    following = folder()
    following.look()
    assert ids(following.look()) == ["whole"]
    write(text[-40:], age=0)
    following.look()
    assert ids(following.look()) == ["half"]


def test_files_that_are_renamed_and_cut(folder, write):
    path = write(trace("a"), age=0)
    following = folder()
    following.look()
    path.rename(path.with_name("a-2026-11-29.jsonl"))
    write(trace("b"), age=0)
    assert ids(following.look()) == ["a"]
    assert ids(following.look()) == ["b"]

    path.write_text("")
    write(trace("c"), age=0)  # as long as before, with another beginning
    look = following.look()
    assert not look.late
    assert ids(following.look()) == ["c"]

    path.write_text("")
    assert following.look().notes == ["a.jsonl was written anew: it is read from its start"]


def test_a_longer_file_that_begins_like_the_one_before(folder, write):
    path = write(trace("a") + trace("b"), age=0)
    following = folder()
    following.look()
    following.look()
    path.write_text("")
    write(trace("a") + trace("c") + trace("d"), age=0)
    assert not following.look().late
    assert ids(following.look()) == ["c", "d"]


def test_a_copied_file_brings_nothing_twice(folder, write):
    write(trace("a"), age=0)
    following = folder()
    following.look()
    assert ids(following.look()) == ["a"]
    write(trace("a"), "a.jsonl.1", age=0)
    look = following.look()
    assert not look.late
    assert not ids(following.look())


def test_a_trace_without_its_outermost_span_waits_longer(folder, write):
    root = span("root", 0, 9, trace="t", gen_ai__operation__name="invoke_agent")
    write(line(chat("step", 1, 2, parent="root", trace="t")), age=0)
    following = folder()
    assert [following.look().waiting for _ in range(5)] == [1] * 5
    write(line(root), age=0)
    assert following.look().waiting == 1
    (episode,) = following.look().episodes
    assert [item.node for item in episode.history.items] == ["step", "root"]
    write(line(chat("after", 3, 4, parent="root", trace="t")), age=0)
    assert following.look().late == 1

    write(line(chat("lost", 1, 2, parent="never", trace="u")), age=0)
    assert [len(following.look().episodes) for _ in range(11)] == [0] * 10 + [1]


def test_what_cannot_be_read_is_told(folder, write):
    write("oops\n\0\0\0\n" + trace("a") + line(span("http", trace="web")))
    write(b"\x1f\x8b", "old.jsonl.gz")
    write("text", "notes.txt")
    look = folder().look()
    assert ids(look) == ["a"]
    assert look.unused == {"without a step of an agent": 1}
    assert [fault.partition(":")[0] for fault in look.reading.faults] == ["a.jsonl"]
    assert [note.partition(" ")[0] for note in look.notes] == ["notes.txt", "old.jsonl.gz"]


def test_clocks_ahead_do_not_matter(folder, write):
    write(trace("a"), age=-5000)
    following = folder()
    assert following.look().waiting == 1
    assert ids(following.look()) == ["a"]


def test_a_sample_hangs_on_ids_alone(folder, write):
    write("".join(trace(f"{n:032x}") for n in range(400)))
    small, large = (folder(rate).look() for rate in (0.25, 0.5))
    assert set(ids(small)) < set(ids(large))
    assert 60 <= len(small.episodes) <= 140
    assert small.unused["not in the sample"] == 400 - len(small.episodes)


@given(st.lists(st.sampled_from([True, False, "no answer"]), max_size=60), st.integers(0, 60))
def test_evidence_does_not_hang_on_the_looks(verdicts, cut):
    whole, parts = PassRateWatch(0.9), PassRateWatch(0.9)
    alarms = whole.add(verdicts)
    assert alarms == parts.add(verdicts[:cut]) | parts.add(verdicts[cut:])
    assert whole == parts
    assert whole.judged + whole.missing == len(verdicts)
    assert whole.missing == verdicts.count("no answer")
