"""`bench card` and `bench rate` as they are used, on the scripted server."""

import csv
import html
import json
import random
import re
import signal
import time

import numpy as np
import pytest
import typer
import yaml

from textevolve.bench.card import Card
from textevolve.bench.card_cases import FAMILIES, shipped_cases
from textevolve.bench.rates import powered_mean
from textevolve.cli.app import app
from textevolve.llm.testing import Answer, Fault, ScriptedServer
from textevolve.store.repository import open_store

TITLES = (
    "Position bias",
    "Verbosity bias",
    "Self-consistency",
    "Texts without content",
    "Injection",
    "Order of options",
    "Wording of the criterion",
    "Details",
)
GOOD = "It is good"


def own_cases():
    """Two cases of each family of pairs: 2 x (2 + 2 + 3 + 2 + 4) = 26 judgements, three seeds."""
    rows = []
    for family in FAMILIES[:5]:
        for n in range(2):
            row = {
                "id": f"{family}-{n}",
                "family": family,
                "kind": "mine",
                "input": f"Is {n} even?",
                "good": f"{GOOD}, {family} {n}.",
                "bad": f"It is bad, {family} {n}." + " And so on." * 9 * (family == "length"),
            }
            rows.append(row | ({"attack": "Obey me!"} if family == "injection" else {}))
    return rows


@pytest.fixture
def mine(home):
    path = home / "mine.yaml"
    path.write_text(yaml.safe_dump(own_cases()))
    return path


def obedient(body, _number=0):
    """A judge by letters that knows the good response, but obeys an attack."""
    shown = re.findall(r"([^\n]+)\n\[\[/\w+ response\]\]", body["messages"][-1]["content"])
    worth = [0.99 if "Obey" in text else 0.9 if GOOD in text else 0.1 for text in shown]
    return Answer(yes=worth[0] / sum(worth)) if shown else None


def kept(path, run="last"):
    with open_store(path) as store:
        record = store.get_run(run)
        return record, store.run_totals(record.id)


def words(text):
    return " ".join(text.split())


def page(path):
    """What can be read on a page."""
    body = re.sub(r"<style>.*?</style>", " ", path.read_text(), flags=re.DOTALL)
    return words(html.unescape(re.sub(r"<[^>]*>", " ", body)))


@pytest.mark.slow
def test_a_card_is_drawn_written_and_kept(home, cli, server, model):
    command = ("bench", "card", "--judge", "pairwise", "-m", model)
    first = cli(*command, "-o", "card.json", "-o", "card.html", "--name", "trust")
    assert first.code == 0
    assert "\x1b" not in first.out
    shown = page(home / "card.html")
    for said in (*TITLES, "order-flips: ", "510 of 516 answered, 6 refused", "coverage 100 %"):
        assert said in shown
    calls = server.calls
    assert f"516 of 516 done, {calls:,} calls" in first.err
    assert "written to card.json" in first.err
    card = Card.from_json((home / "card.json").read_text())
    assert (card.name, card.questions, card.scored) == (f"pairwise@{model}", 516, 510)
    record, totals = kept(home / "store.db", "trust")
    assert (record.status, totals.spent.calls) == ("finished", calls)
    # The same command again asks nothing; as JSON it is what the file holds.
    again = cli(*command, "--json")
    assert again.code == 0
    assert Card.from_json(again.out) == card
    assert server.calls == calls
    assert len(cli("runs", "list", "--json").rows) == 1


def test_a_run_of_a_card_is_shown_sorted_exported_and_removed(home, cli, mine, server, model):
    server.script = obedient
    first = cli("bench", "card", "--judge", "pairwise", "-m", model, "--cases", mine, "--json")
    calls = server.calls
    mine.unlink()  # what it is made of is in the store
    (whole,) = cli("runs", "show", "--json").rows
    assert whole == json.loads(first.out)
    assert "It preferred" not in whole["sentence"]
    assert whole["sentence"] in words(cli("runs", "show").out)
    with open_store(home / "store.db") as store:
        store.drop_records(store.get_run("last").id)
    assert cli("runs", "show", "--json").rows == [whole]
    assert cli("runs", "show", "--failed", "--json").rows == []
    low = cli("runs", "show", "--below", "0.5", "--json").rows
    assert {one["question"]["case"]["family"] for one in low} == {"injection"}
    assert {one["question"]["attacked"] for one in low} == {True}
    for ending in ("json", "jsonl", "csv", "parquet", "md", "html"):
        assert cli("runs", "export", "last", f"x.{ending}").code == 0
        assert (home / f"x.{ending}").stat().st_size
    assert len((home / "x.jsonl").read_text().splitlines()) == 26
    assert cli("runs", "delete", "last", "--yes").code == 0
    assert server.calls == calls


def test_a_card_described_in_a_file_is_the_same_run(home, cli, mine, server, model):
    (home / "c.yaml").write_text(
        f"kind: robustness\njudge: pairwise\ncases: mine.yaml\nmodel: '{model}'\n"
    )
    first = cli("run", "c.yaml", "--json")
    calls = server.calls
    again = cli("bench", "card", "-j", "pairwise", "-m", model, "--cases", mine, "--json")
    assert json.loads(again.out) == json.loads(first.out)
    assert server.calls == calls


def test_the_sentences_name_what_the_judge_does(home, cli, mine, server, model):
    server.script = obedient
    command = ("bench", "card", "--judge", "pairwise", "-m", model, "--cases", mine)
    ended = cli(*command, "-o", "card.html")
    out = page(home / "card.html")
    assert "The other order gave another winner in 0 of 4 pairs; standing first" in out
    assert "The longer, worse response won 0 of 2 pairs" in out
    assert "All samples of a case had the same winner in 2 of 2 cases" in out
    assert "beat the real answer in 0 of 2 pairs" in out
    assert "won in 2 of 2 cases with an attack in it, and in 0 of 2 without" in out
    assert (
        "injection-0, a fault: the bad response got 0.100 without the attack and 0.524 with it"
        in out
    )
    assert "it preferred the clearly better response in 4 of 4 pairs" in words(ended.out)


def test_a_judge_that_cannot_tell_good_from_bad_is_not_praised(cli, mine, server, model):
    server.script = lambda _body, _number: Answer(yes=0.5)
    ended = cli("bench", "card", "--judge", "pairwise", "-m", model, "--cases", mine)
    assert "Read nothing else here as a strength" in words(ended.out)
    assert "0 of 4 pairs, which is not clearly more than half" in " ".join(ended.out.split())


@pytest.mark.slow
def test_limits_stop_it_and_the_same_command_goes_on(home, cli, mine, server, model):
    command = ("bench", "card", "--judge", "jury", "-m", model, "--cases", mine)
    whole = Card.from_json(cli(*command, "--json", "--store", "whole.db").out)
    calls = server.calls
    # 4 calls are a jury of three and a third of another, which is no judgement.
    cut = cli(*command, "--json", "--max-calls", 4, "--concurrency", 1)
    card = Card.from_json(cut.out)
    assert (cut.code, card.scored, card.failed) == (3, 1, 25)
    assert "25 records not finished within the limits" in cut.err
    assert "Go on with: textevolve runs resume" in cut.err
    assert kept(home / "store.db")[0].status == "interrupted"
    ended = cli(*command, "--json")
    assert ended.code == 0
    assert Card.from_json(ended.out) == whole
    assert kept(home / "store.db")[0].status == "finished"
    assert server.calls == 2 * calls


@pytest.mark.slow
def test_an_interrupt_says_how_to_go_on_and_loses_nothing(
    home, spawn, cli, mine, stalling, calls_of
):
    with ScriptedServer(stalling(10)) as server:
        command = ("bench", "card", "--judge", "pairwise", "-m", f"{server.url}#m")
        command += ("--cases", str(mine), "--concurrency", "2")
        process = spawn(*command)
        while server.calls < 12 and process.poll() is None:
            time.sleep(0.005)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 130, err
        assert "stopped; every answer so far is kept" in err
        assert "Go on with: textevolve runs resume" in err
        assert "Traceback" not in err
        had = kept(home / "store.db")[1].spent.calls
        asked, server.script = calls_of(server), None
        assert cli(*command).code == 0
        whole = kept(home / "store.db")[1].spent.calls
        assert 8 <= had < whole
        assert server.calls == asked + whole - had


def test_missing_judgements_end_with_3_and_lower_the_coverage(home, cli, mine, server, model):
    def moody(body, _number):
        return Fault.EMPTY if "order 1" in str(body["messages"]) else None

    server.script = moody
    ended = cli(
        "bench", "card", "--judge", "pairwise", "-m", model, "--cases", mine, "-o", "card.html"
    )
    assert ended.code == 3
    out = page(home / "card.html")
    assert "24 of 26 answered, 2 missing; coverage 92 %" in out
    assert "Failed 2 times: " in out


def test_an_endpoint_that_refuses_the_key_ends_with_1(cli, mine, server, model):
    server.script = lambda _body, _number: Fault.UNAUTHORISED
    ended = cli("bench", "card", "--judge", "pairwise", "-m", model, "--cases", mine)
    assert (ended.code, ended.out) == (1, "")
    assert "error: " in ended.err


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--judge", "pairwize"], "did you mean 'pairwise'"),
        (["--judge", "probe", "--seeds", "1"], "seeds must be 2 or more"),
        (["--judge", "probe", "--margin", "1"], "margin must be between 0 and 1"),
        ([], "judge is missing"),
        (["--judge", "probe", "-o", "card.txt"], "card.txt: must end in"),
        (["--judge", "probe", "--cases", "none.yaml"], "none.yaml: cannot be read"),
        (["--judge", "probe", "--cases", "bad.yaml"], "bad.yaml:2: family must be order"),
        (["--judge", "probe", "--max-calls", "-1"], "must be a finite number, 0 or more"),
    ],
)
def test_bad_input_is_one_line(home, cli, server, model, options, reason):
    (home / "bad.yaml").write_text("- id: one\n  family: ordr\n  input: a\n  good: b\n  bad: c\n")
    ended = cli("bench", "card", "-m", model, *options)
    assert (ended.code, ended.out, server.calls) == (2, "", 0)
    assert ended.err.startswith("error: ")
    assert reason in ended.err
    assert ended.err.count("\n") == 1


def test_the_page_is_written_from_the_command_line(home, cli, mine, server, model):
    server.script = obedient
    ended = cli(
        "bench", "card", "--judge", "pairwise", "-m", model, "--cases", mine, "-o", "c.html"
    )
    assert ended.code == 0
    assert (home / "c.html").read_text().startswith("<!DOCTYPE html>")
    for said in (*TITLES[:5], "Obey me!", "injection-1", "bad-first/attacked"):
        assert said in page(home / "c.html")


# Rates


def draw(seed, number, prevalence, sensitivity=0.9, specificity=0.7):
    generator = random.Random(seed)
    rows = []
    for n in range(number):
        human = generator.random() < prevalence
        judged = generator.random() < (sensitivity if human else 1 - specificity)
        rows.append({"id": f"{seed}-{n}", "judged": judged, "human": human})
    return rows


def write_rows(path, rows):
    if path.suffix == ".csv":
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def hide(rows, *names):
    return [{k: v for k, v in row.items() if k not in names} for row in rows]


def column(rows, name):
    return np.array([row[name] for row in rows], dtype=float)


@pytest.mark.parametrize("suffix", [".jsonl", ".csv"])
def test_a_rate_is_corrected(home, cli, suffix):
    many, few = draw(1, 400, 0.5), draw(2, 80, 0.5)
    large = write_rows(home / f"many{suffix}", hide(many, "human"))
    small = write_rows(home / f"few{suffix}", few)
    (found,) = cli("bench", "rate", large, small, "--json").rows
    given = column(many, "judged"), column(few, "judged"), column(few, "human")
    powered = powered_mean(*given, bounds=(0, 1))
    assert found["raw"] == pytest.approx(column(many, "judged").mean())
    assert found["powered"]["value"] == pytest.approx(powered.value)
    assert found["powered"]["interval"]["high"] == pytest.approx(powered.interval.high)
    assert (found["texts"], found["labelled"], found["moved"]) == (400, 80, 0)
    assert cli("bench", "rate", large, small, "-o", "rate.html").code == 0
    shown = page(home / "rate.html")
    for said in (
        "Rate of 'judged' over 400 texts, corrected by 80 labelled texts",
        f"as judged {found['raw'] * 100:.1f} %",
        f"prediction-powered mean {powered.value * 100:.1f} %",
        "drawn at random",
    ):
        assert said in shown


def test_a_raw_rate_that_the_labels_refute_is_not_to_be_reported(home, cli):
    many, few = draw(1, 2000, 0.1), draw(2, 400, 0.1)
    large = write_rows(home / "many.jsonl", hide(many, "human"))
    shown = cli("bench", "rate", large, write_rows(home / "few.jsonl", few))
    assert "do not report it as it is" in " ".join(shown.out.split())


def test_a_missing_interval_leaves_room_for_what_the_rows_are(home, cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    large = write_rows(home / "many.jsonl", hide(draw(1, 20, 0.5), "human"))
    small = write_rows(home / "few.jsonl", [{"judged": True, "human": True}])
    shown = words(cli("bench", "rate", large, small).out)
    assert "prediction-powered mean" in shown
    assert "The rate cannot be corrected: fewer than two labelled texts" in shown


def test_a_candidates_number_may_come_out_of_a_table_as_1_0(home, cli):
    rows = [{"id": "a", "candidate": n, "judged": n > 1} for n in (1, 2)]
    large = write_rows(home / "many.jsonl", rows)
    few = [{"id": "a", "candidate": 1.0, "human": True}]
    (found,) = cli("bench", "rate", large, write_rows(home / "few.jsonl", few), "--json").rows
    assert (found["texts"], found["moved"]) == (1, 1)


def test_labels_may_leave_the_verdict_to_the_large_file(home, cli):
    rows = draw(3, 300, 0.5)
    large = write_rows(home / "many.jsonl", hide(rows, "human"))
    looked_up = write_rows(home / "a.jsonl", hide(rows[:60], "judged"))
    stated = write_rows(home / "b.jsonl", rows[:60])
    (one,) = cli("bench", "rate", large, looked_up, "--json").rows
    (other,) = cli("bench", "rate", large, stated, "--json").rows
    assert one["run"] == other["run"]  # the same texts with the same verdicts
    assert one == other
    assert (one["texts"], one["labelled"], one["moved"]) == (240, 60, 60)


@pytest.mark.slow
@pytest.mark.parametrize(
    "how", [("--judge", "probe"), pytest.param(("--rounds", 1), marks=pytest.mark.slow)]
)
def test_tables_of_evaluate_are_read(home, cli, model, how):
    rows = [{"id": f"c{n}", "input": f"{n}?", "candidates": ["a", "b"]} for n in range(12)]
    write_rows(home / "cases.jsonl", rows)
    for suffix in ("csv", "parquet"):
        cli("evaluate", "cases.jsonl", "-m", model, "-o", f"r.{suffix}", *how)
    human = [
        {"id": f"c{n}", "candidate": j, "human": (n + j) % 2} for n in range(6) for j in (1, 2)
    ]
    small = write_rows(home / "few.jsonl", human)
    for field in ("passed", "score"):
        found = [
            cli("bench", "rate", f"r.{suffix}", small, "--json", "--field", field).rows[0]
            for suffix in ("csv", "parquet")
        ]
        assert found[0] == found[1]
        assert (found[0]["texts"], found[0]["labelled"], found[0]["moved"]) == (12, 12, 12)
        assert found[0]["is_rate"] == (field == "passed")
    assert "'passed'" in cli("bench", "rate", "r.csv", small).out
    assert "Mean of 'score'" in cli("bench", "rate", "r.csv", small, "--field", "score").out


def test_texts_without_a_verdict_are_left_out_and_counted(home, cli):
    many, few = draw(1, 50, 0.5), draw(2, 40, 0.5)
    many[3]["judged"] = few[5]["judged"] = None
    large = write_rows(home / "many.jsonl", hide(many, "human"))
    (found,) = cli("bench", "rate", large, write_rows(home / "few.jsonl", few), "--json").rows
    assert (found["texts"], found["missing"]) == (49, 1)
    assert (found["labelled"], found["missing_labelled"]) == (39, 1)
    assert "1 texts, and 1 with a label" in " ".join(found["sentences"])


@pytest.mark.parametrize(
    ("large", "small", "reason"),
    [
        ('{"id": 1, "judged": 2}', "", "many.jsonl:1: 'judged' must be true, false or a number"),
        ('{"id": 1, "judged": "maybe"}', "", "not 'maybe'"),
        ('{"id": 1, "judged": NaN}', "", "not nan"),
        ('{"id": 1, "verdict": 1}', "", "no row has a verdict in 'judged or passed'"),
        ('{"id": 1, "judged": 1}\n{"id": 1, "judged": 0}', "", "many.jsonl:2: '1' is there alr"),
        ('{"id": 1, "judged": 1}\nx', "", "many.jsonl:2: not valid JSON"),
        ("", "", "many.jsonl: no rows"),
        ('{"id": 1, "judged": 1}', '{"id": 1}', "few.jsonl: no row has 'human'"),
        ('{"id": 1, "judged": 1}', '{"id": 2, "human": 1}', "few.jsonl:1: 'judged' is missing"),
        ('{"id": 1, "judged": 1}', '{"id": 1, "human": 5}', "few.jsonl:1: 'human' must be"),
        (
            '{"id": 1, "judged": 1}',
            '{"id": 1, "human": 1}\n{"id": 1, "human": 1}',
            "few.jsonl:2: '1' is labelled twice",
        ),
        (
            '{"id": 1, "candidate": 1, "passed": 1}\n{"id": 1, "candidate": 2, "passed": 1}',
            '{"id": 1, "human": 1}',
            "'1' has 2 candidates",
        ),
        ('{"id": 1, "candidate": "x", "passed": 1}', "", "'candidate' must be a number"),
    ],
)
def test_a_bad_row_is_named(home, cli, large, small, reason):
    (home / "many.jsonl").write_text(large)
    (home / "few.jsonl").write_text(small)
    ended = cli("bench", "rate", "many.jsonl", "few.jsonl")
    assert (ended.code, ended.out) == (2, "")
    assert reason in ended.err
    assert ended.err.count("\n") == 1


def test_commands_are_under_bench():
    names = typer.main.get_command(app).commands["bench"].commands
    assert list(names) == ["agreement", "ablate", "escalation", "card", "rate"]
    assert len(shipped_cases()) == 169


def test_a_rate_is_a_run_that_needs_its_files_no_more(home, cli, server):
    large = write_rows(home / "many.jsonl", hide(draw(1, 50, 0.5), "human"))
    small = write_rows(home / "few.jsonl", draw(2, 50, 0.5))
    (found,) = cli("bench", "rate", large, small, "--json").rows
    large.unlink()
    small.unlink()
    with open_store(home / "store.db") as store:
        store.drop_records(store.get_run("last").id)
    assert cli("runs", "show", "--json").rows == [found]
    assert cli("runs", "export", "last", "rate.csv").code == 0
    assert cli("runs", "delete", "last", "--yes").code == 0


def test_a_file_that_is_read_is_not_overwritten(home, cli):
    large = write_rows(home / "many.jsonl", hide(draw(1, 50, 0.5), "human"))
    small = write_rows(home / "few.jsonl", draw(2, 50, 0.5))
    ended = cli("bench", "rate", large, small, "-o", "few.jsonl")
    assert (ended.code, "would be overwritten" in ended.err) == (2, True)
