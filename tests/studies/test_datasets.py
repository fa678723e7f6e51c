"""What a row's fields mean, and which of them nothing reads."""

import pytest

from textevolve.evaluation import Case
from textevolve.rows.columns import Columns
from textevolve.store.repository import open_store
from textevolve.studies.case_rows import read_cases, take_cases

ROW = {"input": "2 + 2?", "candidates": ["4", "5"]}


def take_case(row, columns=None):
    (case,) = take_cases([row], columns)
    return case


@pytest.mark.parametrize("name", ["reference", "answer"])
@pytest.mark.parametrize(("given", "found"), [("four", "four"), (0.5, "0.5")])
def test_a_gold_answer_is_the_reference(name, given, found):
    columns = Columns()
    assert take_case({**ROW, name: given}, columns=columns).reference == found
    assert columns.unread == {}
    assert columns.warnings(reference=True) == []
    assert columns.warnings(reference=False)[0].endswith(f"read: {name}")


@pytest.mark.parametrize("given", [None, " \n", float("nan")])
def test_an_empty_field_is_no_reference(given):
    assert take_case({**ROW, "answer": given}).reference is None


def test_a_table_keeps_a_reference_as_it_stands(tmp_path):
    file = tmp_path / "cases.csv"
    file.write_text("input,candidate_1,answer,source,rounds\n2 + 2?,4,007,web,1\n3?,3,,,2\n")
    columns = Columns()
    cases = list(read_cases(str(file), columns))
    assert [case.reference for case in cases] == ["007", None]
    assert columns.unread == {"source": None}


def test_fields_that_nothing_reads_are_named_once():
    columns = Columns()
    rows = [{**ROW, "candidate_1": "x", "label": 1, "empty": None}, {**ROW, "label": 2, 7: "x"}]
    assert len(list(take_cases([*rows, Case("a", ("b",), reference="c")], columns))) == 3
    assert columns.line() == "columns: input, candidates; unread: candidate_1, label, 7"
    assert columns.warnings(reference=False) == [
        "only judges with a reference, such as --judge reference, read: reference"
    ]
    many = Columns(unread=dict.fromkeys(f"c{n}" for n in range(20)))
    assert many.line().endswith("c11 and 8 more")


def test_a_reference_is_kept_and_makes_another_run_and_none_makes_the_same(tmp_path, registered):
    plain = Case("a", ("b",), "1")
    gold = Case("a", ("b",), "1", reference="c")
    with open_store(tmp_path / "store.db") as store:
        run = registered(store, [plain])
        assert registered(store, [plain]).id == run.id
        assert registered(store, [gold]).id != run.id
        both = registered(store, [plain, gold])
        assert list(store.iterate_cases(both.id)) == [plain, gold]
