"""What all results have in common: the id of the run, a table of records, figures by name."""

import lzma
import pickle
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

from textevolve import Client
from textevolve.api.results import attach_run
from textevolve.evaluation import Figure
from textevolve.rows.writing import plain
from textevolve.runs.aggregates import collect_figures
from textevolve.runs.report import make_data
from textevolve.runs.stored import StudyRun, read_records
from textevolve.runs.study import KINDS
from textevolve.store.repository import open_store
from textevolve.studies.evaluate_spec import EvaluateSpec

KEPT = Path(__file__).parents[1] / "guards" / "kept.db.xz"
INTERVALS = {"evaluate": "pass_rate", "compare": "variants.plain.pass_rate", "calibrate": "gain"}
INTERVALS |= {"agreement": "summary.judges.probe.kappa", "robustness": "checks.order.rates.sound"}
INTERVALS |= {"rates": "raw", "innovate": "gain", "memory-eval": "overall.question_correct.all"}


def test_results_of_all_kinds_have_one_shape(home):
    (home / "store.db").write_bytes(lzma.decompress(KEPT.read_bytes()))
    with closing(sqlite3.connect(home / "store.db")) as raw:
        ids = [run for (run,) in raw.execute("SELECT id FROM runs")]
    seen = {}
    with open_store(str(home / "store.db")) as store:
        for run in (run for run in map(store.get_run, ids) if run.spec["kind"] in KINDS):
            study_run = StudyRun(run)
            study, records = study_run.study, list(read_records(store, study_run)())
            summary = study.summarise(study_run.spec, records)
            result = pickle.loads(pickle.dumps(attach_run(summary, run, records)))
            assert result.run == run.id
            assert len(result.to_frame()) == sum(
                1 for record in records for _ in study.flat(record)
            )
            assert result.aggregates["records"] == Figure(len(records))
            data = make_data(study_run, lambda stored=records: iter(stored))
            assert plain(result.aggregates) == plain(data["aggregates"])
            seen.setdefault(study.kind, {}).update(result.aggregates)
    assert len(seen) == 19
    assert all(seen[kind][name].low is not None for kind, name in INTERVALS.items())


def test_variants_may_have_names_of_fields():
    ends = {"difference": 0.1, "low": 0, "high": 1, "items": 2}
    means = [{"variant": "low", "scored": 3, "mean": {"value": 1, "low": 0, "high": 2}}]
    data = {"variants": means, "differences": {"value": ends, "low": ends, "judge": ends}}
    figures = dict(collect_figures({**data, "judge": {"x": 1}, "rows": [{"n": 1}, {"n": 2}]}))
    assert figures["variants.low.mean"] == Figure(1, 0, 2, 3)
    names = {f"differences.{name}": Figure(0.1, 0, 1, 2) for name in ("value", "low", "judge")}
    assert names.items() <= figures.items()
    assert len(figures) == 2 + 3 * 2


def test_a_result_without_a_record_has_a_run(model, home):
    result = Client(model).run(EvaluateSpec(judge="probe"), cases=[])
    assert (bool(result.run), len(result.to_frame())) == (True, 0)


def test_a_frame_is_of_pandas_or_else_of_polars(model, home, monkeypatch):
    result = Client(model).evaluate("Why?", ["So.", "No."], judge="probe")
    assert type(result.to_frame()).__module__.startswith("pandas")
    polars = SimpleNamespace(DataFrame=lambda rows, infer_schema_length: rows)
    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.setitem(sys.modules, "polars", polars)
    assert [row["text"] for row in result.to_frame()] == ["So.", "No."]


def test_results_plot_their_scores(model, home):
    cases = [{"input": "Why?", "output": "word " * n} for n in range(1, 13)]
    result = Client(model).run(EvaluateSpec(judge="look:length"), cases=cases)
    drawing = result.plot()._repr_html_()
    assert drawing.count("<rect") == 10
    assert "http" not in drawing
    one = Client(model).evaluate("Why?", ["So."], judge="look:length")
    assert "Nothing to plot" in one.plot()._repr_html_()
