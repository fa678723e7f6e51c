"""Gates and JUnit files from the command line: what a build sees of a run."""

from xml.etree import ElementTree

import pytest

from textevolve.llm.testing import Answer

GOOD, BAD = "The moon pulls the sea.", "I like cheese."


@pytest.fixture
def judged(home, server):
    """Five rows of good answers and a bad one; of `blank.csv` one cannot be judged."""

    def fair(body, _number):
        content = body["messages"][-1]["content"]
        return Answer(yes=0.9 if GOOD in content else 0.2) if body.get("max_tokens") == 1 else None

    server.script = fair
    rows = [f"r{n},Why are there tides {n}?,{BAD if n == 3 else GOOD}" for n in range(6)]
    head = "id,input,candidate_1"
    (home / "cases.csv").write_text("\n".join([head, *rows]) + "\n")
    (home / "blank.csv").write_text("\n".join([head, *rows, f"blank, ,{GOOD}"]) + "\n")
    return home


def command(model, *more, cases="cases.csv"):
    return ("evaluate", cases, "-j", "probe", "-m", model, *map(str, more))


def lines(ended):
    return [line for line in ended.err.splitlines() if line.startswith("gate ")]


def test_gates_have_an_exit_code_and_a_line_each(cli, server, judged, model):
    outcome = cli(*command(model, "--min-mean", 0.7, "--min-pass-rate", 0.8))
    assert outcome.code == 0
    assert lines(outcome) == [
        "gate holds: pass rate 0.833 (95 % 0.436 to 0.970), at least 0.8",
        "gate holds: mean 0.783 (95 % 0.483 to 1.000), at least 0.7",
    ]
    calls = server.calls
    failed = cli(*command(model, "--min-mean", 0.8, "--min-pass-rate", 0.8))
    assert failed.code == 4
    assert lines(failed)[1] == "gate fails: mean 0.783 (95 % 0.483 to 1.000), below 0.8"
    stricter = cli(*command(model, "--min-pass-rate", 0.8, "--pass-threshold", 0.95))
    assert (stricter.code, server.calls) == (4, calls)  # other gates cost nothing
    assert "pass rate 0.000" in lines(stricter)[0]


def test_an_earlier_run_is_named_by_its_name_or_as_the_last(cli, judged, model):
    first_outcome = cli(*command(model, "--name", "main", "--no-worse-than", "last"))
    assert first_outcome.code == 0
    assert lines(first_outcome) == ["gate holds: no earlier run of the kind to compare with"]
    good = f"r0,Why are there tides 0?,{GOOD}"
    text = (judged / "cases.csv").read_text()
    (judged / "cases.csv").write_text(text.replace(good, good.replace(GOOD, BAD)))
    for most, code in ((0, 4), (1, 0)):
        outcome = cli(*command(model, "--no-worse-than", "main", "--max-regressions", most))
        assert outcome.code == code
        assert "1 of 5 cases that passed in main fail now (r0)" in lines(outcome)[0]


def test_what_cannot_be_compared_is_said_before_anything_is_asked(cli, server, judged, model):
    refused = cli(*command(model, "--no-worse-than", "nobody"))
    assert (refused.code, server.calls) == (2, 0)
    assert "error: --no-worse-than: run nobody: is not in this store" in refused.err
    assert cli("runs", "list", "--json").rows == []  # nothing of it is kept
    assert cli(*command(model, "--margin", 0.1)).code == 2
    assert cli(*command(model, "--name", "main")).code == 0
    calls = server.calls
    (judged / "cases.csv").write_text(f"id,input,candidate_1\nr0,Something else?,{GOOD}\n")
    other = cli(*command(model, "--no-worse-than", "main"))
    assert (other.code, server.calls) == (2, calls)
    assert "case 'r0' has another input" in other.err
    assert [run["status"] for run in cli("runs", "list", "--json").rows] == ["finished"]
    (judged / "t.txt").write_text("Say {input}.")
    compare = ("compare", "-p", "t.txt", "-m", model, "-d", "cases.csv")
    kind = cli(*compare, "--metric", "exact", "--label", "candidate_1", "--no-worse-than", "main")
    assert kind.code == 2
    assert "is of the kind evaluate, not compare" in kind.err


def test_junit_has_a_case_for_each_record_and_gate(cli, judged, model):
    junit = ("--junit", "j.xml", "--min-mean", 0.9, "--max-failed", 1)
    outcome = cli(*command(model, *junit, cases="blank.csv"))
    assert outcome.code == 4
    records, gates = ElementTree.parse(judged / "j.xml").getroot()
    assert (records.get("name"), records.get("tests")) == ("evaluate", "7")
    found = {case.get("name"): [child.tag for child in case] for case in records}
    assert found == {
        **{f"r{n}": ["failure"] if n == 3 else [] for n in range(6)},
        "blank": ["skipped"],  # --max-failed allows it
    }
    (failure,) = records.iter("failure")
    assert failure.get("message") == "score 0.200, not passed"
    assert f"text: {BAD}" in failure.text
    assert "feedback: " in failure.text
    assert next(records.iter("skipped")).get("message") == "the input is blank"
    assert [(case.get("name"), len(case)) for case in gates] == [("max failed", 0), ("min mean", 1)]
    assert "below 0.9" in next(gates.iter("failure")).get("message")
