"""`textevolve models compare-quants`: a comparison of models, with the size and speed of each."""

import json

import pytest

from textevolve.errors import InputError
from textevolve.evaluation import Usage
from textevolve.llm.testing import Answer, ScriptedServer
from textevolve.settings import read_settings
from textevolve.studies.compare_cells import Output
from textevolve.studies.compare_quants import STUDY, CompareQuantsSpec, complete, quant_figures


def test_models_are_named_once():
    with pytest.raises(InputError, match="named twice"):
        CompareQuantsSpec(original="a", quants=("b", "a"))


def test_files_are_models_with_their_size(home):
    (home / "big.gguf").write_bytes(b"x" * 300)
    (home / "small.gguf").write_bytes(b"x" * 100)
    spec = complete(CompareQuantsSpec(original="big.gguf", quants="small.gguf"), read_settings())
    big, small = (f"local/{home / name}.gguf" for name in ("big", "small"))
    assert spec.models == (big, small)
    assert spec.sizes == {big: 300, small: 100}


def test_speed_is_that_of_all_tokens_of_a_model():
    spec = CompareQuantsSpec(original="o", quants="q", models=("o", "q"), sizes={"o": 7})

    def output(position, model, tokens, seconds):
        usage = Usage(1, completion_tokens=tokens)
        return Output(
            position, "1", model, model=model, text="t", score=1.0, usage=usage, seconds=seconds
        )

    records = [output(0, "o", 10, 2.0), output(1, "q", 30, 2.0), output(2, "o", 10, 3.0)]
    figures = quant_figures(spec, STUDY.summarise(spec, records))
    assert (figures["o"].bytes, figures["o"].speed) == (7, 4.0)
    assert (figures["q"].bytes, figures["q"].speed) == (None, 15.0)


def test_models_are_compared_on_rows(cli, home):
    rows = [{"input": f"{n} + {n}?", "sum": str(2 * n)} for n in range(6)]
    (home / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def script(body, _number):
        n = int(body["messages"][-1]["content"].split()[0])
        return Answer(text=str(2 * n if body["model"] == "original" or n < 3 else 0), delay=0.01)

    with ScriptedServer(script) as server:
        models = (f"{server.url}#original", f"{server.url}#quant")
        arguments = ("-d", "rows.jsonl", "--label", "sum", "--metric", "exact", "-o", "out.json")
        done = cli("models", "compare-quants", *models, *arguments)
    assert done.code == 0, done.err
    found = json.loads((home / "out.json").read_text())
    found = found.get("result", found)
    assert [one["mean"]["value"] for one in found["variants"]] == [1.0, 0.5]
    assert all(one["speed"] > 0 for one in found["quants"].values())
    assert "Size and speed" in done.out
