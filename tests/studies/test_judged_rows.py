"""Tables for other programs: every row is there, missing is missing, nothing is half written."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest

from textevolve.debate.result import DebateResult
from textevolve.report.files import open_target
from textevolve.runs.report import write_records
from textevolve.studies.evaluate import STUDY

Make = Callable[..., DebateResult]
Results = list[DebateResult] | Callable[[], Iterator[DebateResult]]


def write_results(results: Results, path: str | Path, ending: str = "") -> None:
    """As `-o PATH` writes what a run holds."""
    ending = ending or (".jsonl" if path == "-" else Path(path).suffix)
    records = results if callable(results) else lambda: iter(results)
    with open_target(path, binary=ending == ".parquet") as target:
        write_records(STUDY, records, target, ending)


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def read_parquet(path: Path) -> list[dict[str, Any]]:
    return parquet.read_table(path).to_pylist()  # pyright: ignore


def test_csv_has_a_row_for_each_candidate(tmp_path: Path, make_result: Make) -> None:
    result = make_result(index=4)
    write_results([result], tmp_path / "r.csv")
    rows = read_csv(tmp_path / "r.csv")
    assert [row["candidate"] for row in rows] == ["1", "2", "3"]
    assert [float(row["s_norm"]) for row in rows] == result.scores.tolist()
    assert [float(row["probability"]) for row in rows] == result.probabilities.tolist()
    assert [row["best"] for row in rows].index("true") == result.best
    accuracy = result.tensor.at(candidate=1, component="accuracy").mean()
    assert float(rows[1]["component_accuracy"]) == pytest.approx(accuracy)
    assert rows[0]["case_tokens"] == "720"
    assert "argued" not in rows[0]["feedback"]
    assert "mend plain" in rows[0]["feedback"]


def test_missing_is_empty_and_never_zero(
    tmp_path: Path, make_result: Make, unusable: DebateResult
) -> None:
    nobody = make_result(rounds=1, failed=((0, 0), (0, 1), (0, 2)), stopped="failed")
    write_results([nobody, unusable], tmp_path / "r.csv")
    write_results([nobody, unusable], tmp_path / "r.parquet")
    figures = (
        *("score", "s_norm", "probability", "passed", "best", "spread", "round_one_s_norm"),
        *("winner_changes", "component_accuracy", "component_timeliness"),
    )
    rows = read_csv(tmp_path / "r.csv")
    assert [row["status"] for row in rows] == ["failed"] * 4
    assert rows[-1]["candidate"] == ""
    assert rows[-1]["reason"] == "no candidates"
    assert {row[name] for row in rows for name in figures} == {""}
    for row in read_parquet(tmp_path / "r.parquet"):
        assert {row[name] for name in figures} == {None}


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet"])
def test_a_file_appears_whole_or_not_at_all(tmp_path: Path, make_result: Make, suffix: str) -> None:
    path = tmp_path / f"r.{suffix}"
    path.write_bytes(b"as it was")

    def broken() -> Iterator[DebateResult]:
        yield make_result()
        assert path.read_bytes() == b"as it was"
        raise RuntimeError("half way")

    with pytest.raises(RuntimeError, match="half way"):
        write_results(broken, path)
    assert path.read_bytes() == b"as it was"
    assert list(tmp_path.iterdir()) == [path]
