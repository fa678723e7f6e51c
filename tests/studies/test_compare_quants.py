"""`textevolve models compare-quants`: what a quantised model loses, up to the table."""

import json
import math

import pytest

from textevolve.errors import InputError
from textevolve.evaluation import Failure
from textevolve.llm.testing import Answer, ScriptedServer
from textevolve.studies.compare_quants import (
    CompareQuantsSpec,
    Measurement,
    cut_parts,
    models_of,
    report_quants,
    summarise_quants,
)

WORDS = " ".join(f"word{n}" for n in range(200))


def measured(model, measure, case, **more):
    return Measurement(0, model, measure, case, **more)


# The figures


def test_perplexity_is_that_of_all_tokens_and_compared_part_by_part():
    records = [
        *(measured("o", "perplexity", f"p{n}", tokens=10, surprise=10.0 + n) for n in range(4)),
        *(measured("q", "perplexity", f"p{n}", tokens=10, surprise=12.0 + n) for n in range(4)),
    ]
    original, quant = summarise_quants(["o", "q"], records).models
    assert original.perplexity.value == pytest.approx(math.exp(46 / 40))
    assert quant.perplexity.value == pytest.approx(math.exp(54 / 40))
    assert quant.times.value == pytest.approx(math.exp(8 / 40))
    assert math.isnan(original.times.value)
    assert quant.times.interval.reason == "no variation between the groups"


def test_only_parts_that_both_have_are_compared():
    records = [
        measured("o", "perplexity", "a", tokens=10, surprise=10.0),
        measured("q", "perplexity", "a", tokens=10, surprise=11.0),
        measured("q", "perplexity", "b", tokens=10, surprise=99.0),
        measured("o", "perplexity", "b", failure=Failure("failed", "no answer")),
    ]
    found = summarise_quants(["o", "q"], records)
    assert found.models[1].times.value == pytest.approx(math.exp(0.1))
    assert (found.failed, found.reasons) == (1, ("no answer",))


def test_speeds_are_geometric_means_and_ratios_repeat_by_repeat():
    records = [
        measured(model, "writing", f"speed {n}", tokens=10, seconds=seconds * slow)
        for model, seconds in (("o", 2.0), ("q", 1.0))
        for n, slow in enumerate((1.0, 4.0))
    ]
    found = summarise_quants(["o", "q"], records)
    original, quant = found.models
    assert original.writing.value == pytest.approx(2.5)
    assert quant.writing_times.value == pytest.approx(2.0)
    assert math.isnan(quant.reading_times.value)
    report = report_quants(found)
    assert "2.00 times the speed of writing" in report.sentence


# The text


def test_parts_of_a_text_are_as_it_has_them_and_evenly_spread():
    text = "  one two\n\nthree  four five six seven eight nine ten "
    assert list(cut_parts(text, 2, 9)) == [
        ("one two\n\nthree  four", "five six"),
        ("three  four five six", "seven eight"),
        ("five six seven eight", "nine ten"),
    ]
    spread = list(cut_parts(WORDS, 10, 3))
    assert [part.split()[0] for _, part in spread] == ["word20", "word80", "word140"]


def test_a_text_that_is_too_short_is_refused():
    with pytest.raises(InputError, match="has 3 words, too few"):
        list(cut_parts("one two three", 2, 9))


# The specification


def test_models_are_named_once():
    with pytest.raises(InputError, match="named twice"):
        CompareQuantsSpec(original="a", quants=("b", "a"))
    assert models_of(CompareQuantsSpec(original="a", quants="b")) == ("a", "b")


# The whole


@pytest.fixture
def world(home):
    (home / "text.txt").write_text(WORDS)
    with ScriptedServer(tokenizes=True) as server:
        yield home, server


def command(server, *more):
    models = (f"{server.url}#original", f"{server.url}#quant")
    given = ("--text", "text.txt", "--words", "10", "--chunks", "4")
    return ("models", "compare-quants", *models, *given, "--repeats", "2", *more)


def test_all_is_measured_shown_and_written(cli, world):
    home, server = world
    done = cli(*command(server, "-o", "out.json", "-o", "out.csv"))
    assert done.code == 0, done.err
    found = json.loads((home / "out.json").read_text())
    original, quant = found["result"]["models"] if "result" in found else found["models"]
    assert original["perplexity"]["value"] > 1
    assert quant["times"]["value"] > 0
    assert quant["writing"]["value"] > 0
    assert quant["bytes"] is None  # an endpoint's file is not known
    assert "perplexity" in done.out
    rows = (home / "out.csv").read_text().splitlines()
    assert len(rows) == 1 + 2 * (1 + 2 * 2 + 4)


def test_speeds_alone_and_nothing_at_all(cli, world):
    _, server = world
    models = (f"{server.url}#original", f"{server.url}#quant")
    done = cli("models", "compare-quants", *models, "--repeats", "1")
    assert done.code == 0, done.err
    assert "perplexity" not in done.out
    none = cli("models", "compare-quants", *models, "--repeats", "0")
    assert none.code == 2
    assert "nothing is to be measured" in none.err


def test_an_endpoint_that_forces_nothing_is_told_apart(cli, home):
    (home / "text.txt").write_text(WORDS)
    with ScriptedServer(lambda body, number: Answer(text="something else")) as server:
        models = (f"{server.url}#original", f"{server.url}#quant")
        given = ("--text", "text.txt", "--words", "10", "--repeats", "0")
        done = cli("models", "compare-quants", *models, *given)
    assert done.code == 3
    assert "not the text that was to be written" in done.out


def test_a_file_that_is_not_there_is_said(cli, home):
    done = cli("models", "compare-quants", "none.gguf", "other.gguf")
    assert done.code == 2
    assert "none.gguf" in done.err
