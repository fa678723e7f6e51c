"""A run has rows whose texts are pages or transcripts of megabytes: what is read at once is limited
by its size, not by the number of rows."""

import pytest

from textevolve import Case
from textevolve.portions import split_portions
from textevolve.rows.formats import write_rows
from textevolve.store.records import RecordFilter, StoredRecord
from textevolve.store.repository import open_store
from textevolve.store.runs import read_cases
from textevolve.store.upkeep import copy_store

MEGABYTE = 1_000_000
NUMBER = 14


def test_lists_end_by_number_and_by_size():
    assert list(split_portions("aaaaa", 2, len)) == [["a", "a"], ["a", "a"], ["a"]]
    assert list(split_portions(["a", "aaa", "a", "aa"], 9, len, 4)) == [["a", "aaa"], ["a", "aa"]]
    assert list(split_portions([], 9, len)) == []


@pytest.fixture
def store(tmp_path):
    with open_store(tmp_path / "store.db") as store:
        spec = {"version": 2, "kind": "evaluate", "spec": {}}
        run = store.create_run(spec, "long", "long")
        texts = [str(n).rjust(3 * MEGABYTE) for n in range(NUMBER)]
        store.add_cases(run.id, [Case(text, ("a",), str(n)) for n, text in enumerate(texts)])
        bodies = [f'{{"text": "{text}"}}'.encode() for text in texts]
        records = [
            StoredRecord(str(n), n, str(n), 1.0, "scored", "", body)
            for n, body in enumerate(bodies)
        ]
        with store.lease(run.id):
            store.keep_records(run.id, records)
        yield store, run.id


def test_few_long_records_and_cases_are_read_at_once(store):
    opened, run_id = store
    assert len(opened.read_records(run_id, RecordFilter())) == 3
    assert [record.position for record in opened.iterate_records(run_id)] == list(range(NUMBER))
    assert len(opened.read_records(run_id, RecordFilter(), limit=5)) == 5
    assert len(opened.read(read_cases, run_id, 0)) == 11
    assert [case.id for case in opened.iterate_cases(run_id)] == list(map(str, range(NUMBER)))


def test_a_copy_has_all_of_them(store, tmp_path):
    opened, run_id = store
    assert copy_store(tmp_path / "store.db", tmp_path / "copy.db")["cases"] == NUMBER
    with open_store(tmp_path / "copy.db") as copy:
        assert list(copy.iterate_records(run_id)) == list(opened.iterate_records(run_id))


def test_parquet_is_written_in_groups(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = [{"n": n, "text": "a" * 3 * MEGABYTE} for n in range(7)]
    with (tmp_path / "rows.parquet").open("wb") as target:
        assert write_rows(lambda: rows, target, ".parquet") == 7
    written = parquet.ParquetFile(tmp_path / "rows.parquet")
    assert [written.metadata.row_group(n).num_rows for n in range(3)] == [3, 3, 1]
    assert written.read().to_pylist() == rows
