"""The texts of a user's rows lie in nested fields, as other programs export them.

The rows are our own, in the forms of the exports.
"""

import json

import pytest

from textevolve.errors import InputError
from textevolve.rows import read_rows
from textevolve.rows.cases import take_cases
from textevolve.rows.columns import is_text_column
from textevolve.studies.rows import read_cases

BATCH = {
    "custom_id": "t0",
    "response": {"status_code": 200, "body": {"choices": [{"message": {"content": "Seven."}}]}},
}
HARNESS = {
    "doc_id": 4,
    "doc": {"question": "Name a prime."},
    "target": "7",
    "arguments": [["Q: Name a prime.\nA:", {"until": ["\n"]}]],
    "resps": [["Seven."]],
    "filtered_resps": ["Seven"],
}
STUDIO = {
    "id": 3,
    "data": {"prompt": "Name a prime.", "response": "Seven."},
    "annotations": [{"result": [{"value": {"choices": ["Good"]}}]}],
}
EXPORTS = {
    "batch": (BATCH, {"id": "t0", "output": "Seven."}),
    "batch of responses": (
        {
            "custom_id": "t1",
            "response": {"body": {"output": [{"content": [{"text": "Seven."}]}]}},
        },
        {"id": "t1", "output": "Seven."},
    ),
    "harness": (
        HARNESS,
        {"id": 4, "input": "Q: Name a prime.\nA:", "output": "Seven", "reference": "7"},
    ),
    "harness of arguments": (
        {**HARNESS, "arguments": {"gen_args_0": {"arg_0": "Q: Why?", "arg_1": {}}}},
        {"id": 4, "input": "Q: Why?", "output": "Seven", "reference": "7"},
    ),
    "answers": (
        {"question_id": 1, "answer_id": "x", "model_id": "m", "choices": [{"turns": ["Seven."]}]},
        {"id": "x", "output": "Seven."},
    ),
    "answers of arena": (
        {"question_id": 1, "model_id": "m", "choices": [{"turns": [{"content": "Seven."}]}]},
        {"id": 1, "output": "Seven."},
    ),
    "studio": (
        STUDIO,
        {"id": 3, "input": "Name a prime.", "output": "Seven.", "label_1": "Good"},
    ),
    "runs": (
        {"inputs": {"question": "Why?"}, "outputs": {"answer": "So."}},
        {"input": "Why?", "output": "So."},
    ),
    "runs with references": (
        {
            "inputs": {"topic": "Why?"},
            "outputs": {"text": "So."},
            "reference_outputs": {"answer": "Thus."},
        },
        {"input": "Why?", "output": "So.", "reference": "Thus."},
    ),
    "observations": (
        {"projectId": "p", "input": {"question": "Why?"}, "output": {"content": "So."}},
        {"input": "Why?", "output": "So."},
    ),
    "dataset items": (
        {"projectId": "p", "input": "Why?", "expectedOutput": "So."},
        {"input": "Why?", "reference": "So."},
    ),
}


def read(tmp_path, row, **options):
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps(row) + "\n")
    return next(read_rows(str(file), "case", is_text_column, **options))[1]


@pytest.mark.parametrize("name", EXPORTS)
def test_known_exports_are_mapped(tmp_path, name):
    row, columns = EXPORTS[name]
    assert columns.items() <= read(tmp_path, row).items()


def test_a_map_precedes_the_table(tmp_path):
    renamed = {"output": "outputs.score", "input": "inputs.question"}
    row = {"inputs": {"question": "Why?"}, "outputs": {"answer": "So.", "score": "9"}}
    assert read(tmp_path, row, renamed=renamed) == {"input": "Why?", "output": "9"}


def test_paths_name_nested_values(tmp_path):
    row = {"q": {"text": "Why?"}, "a": [{"say": "So."}], "rest": 1}
    renamed = {"input": "q.text", "output": "a.0.say"}
    assert read(tmp_path, row, renamed=renamed) == {"rest": 1, "input": "Why?", "output": "So."}


def test_names_with_points_stay_names(tmp_path):
    row = {"input.n": "Why?", "input": {"n": "not this"}}
    assert read(tmp_path, row, renamed={"question": "input.n"})["question"] == "Why?"


@pytest.mark.parametrize("cell", ['{""text"": [""a"", ""b""]}', "{'text': ['a', 'b']}"])
def test_cells_have_nested_values(tmp_path, cell):
    file = tmp_path / "rows.csv"
    file.write_text(f'input,output,answers\nWhy?,a,"{cell}"\n')
    rows = read_rows(str(file), "case", is_text_column, {"reference": "answers.text"})
    assert next(rows)[1]["reference"] == ["a", "b"]


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("q.txt", "no row has a column 'q.txt'; 'q' has text, id"),
        ("a.5.say", "no row has a column 'a.5.say'; 'a' is a list of 1"),
        ("z.text", "no row has a column 'z.text'; saw q, a"),
    ],
)
def test_wrong_paths_name_the_fields(tmp_path, path, sentence):
    row = {"q": {"text": "Why?", "id": 3}, "a": [{"say": "So."}]}
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps(row))
    with pytest.raises(InputError, match=sentence):
        list(read_rows(str(file), "case", is_text_column, {"input": path}))


def test_unknown_files_name_their_fields(tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps({"q": {"text": "Why?"}, "a": 1}))
    with pytest.raises(InputError, match=r"saw q\.text, a; name the column with"):
        list(read_cases(str(file)))


def test_checks_of_tests_are_gathered(tmp_path):
    file = tmp_path / "tests.csv"
    file.write_text("language,__expected,__expected2\nFrench,Bonjour,contains:jour\nLatin,,\n")
    rows = [row for _, row in read_rows(str(file), "case", is_text_column)]
    assert rows == [
        {
            "language": "French",
            "checks": [{"__expected": "Bonjour"}, {"__expected": "contains:jour"}],
        },
        {"language": "Latin"},
    ]


def test_rows_of_programs_are_exports():
    (case,) = take_cases([EXPORTS["studio"][0]])
    assert (case.input, case.candidates) == ("Name a prime.", ("Seven.",))
