"""Files row by row: what is wrong with one is named with its line, and what can be read is kept."""

import io
import json
import sys
import zipfile

import pyarrow as pa
import pytest
from pyarrow import parquet

from textevolve.bench.items import load_items
from textevolve.errors import InputError
from textevolve.rows import (
    Renaming,
    mend_halves,
    names_rows,
    place_rows,
    read_argument,
    read_lines,
    read_rows,
)
from textevolve.rows.images import choose_converted, folder_of, parse_name
from textevolve.rows.spreadsheets import defuse
from textevolve.rows.tables import read_results, read_tool_result
from textevolve.studies.rows import read_cases

HALF, PAIR = r"\ud800", r"\ud83d\ude00"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.jsonl", f'{{"a": "1"}}\n{{"a": "x {HALF} {PAIR}"}}\n{{"a": "{HALF}"}}\n'),
        ("a.json", f'[{{"a": "1"}}, {{"a": "x {HALF} {PAIR}"}}, {{"a": "{HALF}"}}]'),
        ("a.csv", f'a\n1\n"""x {HALF} {PAIR}"""\n"""{HALF}"""\n'),
    ],
)
def test_half_surrogates_are_replaced(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text)
    rows = [row["a"] for _, row in read_rows(str(path), "row", lambda _: False)]
    assert rows[1:] == ["x \ufffd \U0001f600", "\ufffd"]


def test_cases_and_items_are_kept(tmp_path):
    path = tmp_path / "cases.jsonl"
    path.write_text(f'{{"input": "Why?", "candidates": ["a {HALF}", "b"], "winner": 1}}\n')
    (case,) = read_cases(str(path))
    assert case.candidates == ("a \ufffd", "b")
    (item,) = load_items(path)
    assert item.candidates == case.candidates


@pytest.mark.parametrize(
    "line", ['{"input": "a", "input": "b"}', '{"input": "a", "parameters": {"x": 1, "x": 2}}']
)
def test_double_keys_are_refused(tmp_path, line):
    path = tmp_path / "cases.jsonl"
    path.write_text('{"input": "q", "candidates": ["a"]}\n' + line)
    with pytest.raises(InputError, match=r"cases\.jsonl:2: the key '(input|x)' is there twice"):
        list(read_rows(str(path), "case", lambda _: True))


def test_escaped_backslashes_begin_nothing():
    text = r'{"a": "\\ud800 \" \\\\ud800 \n"}'
    assert mend_halves(text) == text
    assert mend_halves(r'"\\\ud800"') == r'"\\\ufffd"'
    assert mend_halves(r'"\ud800\ud83d\ude00"') == r'"\ufffd\ud83d\ude00"'


def read(tmp_path, text):
    file = tmp_path / "rows.csv"
    file.write_text(text, newline="")
    rows = read_rows(str(file), "row", lambda _: True)
    return [(where.split(":")[-1], row) for where, row in rows]


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("lines", "opened"),
    [
        (["a,b", 'x,"open', "y,z"], 2),
        (["a,b", "x,y", '"two', 'lines",y', 'x,"open ""still""', "y,z", "", "w,v"], 5),
    ],
)
def test_open_quotes_name_their_line(tmp_path, lines, opened, newline):
    with pytest.raises(InputError, match=rf"rows.csv:{opened}: a quote opens in this row and is"):
        read(tmp_path, newline.join(lines) + newline)


@pytest.mark.parametrize("end", ["", "\n\n"])
def test_closed_quotes_are_fine(tmp_path, end):
    text = 'a,b\n"x, ""y""\nz",5" pipe\n"",""\n\nlast,"one"'
    assert read(tmp_path, text + end) == [
        ("3", {"a": 'x, "y"\nz', "b": '5" pipe'}),
        ("4", {}),
        ("6", {"a": "last", "b": "one"}),
    ]


def test_double_columns_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"rows.csv:1: two columns have the name 'a'"):
        read(tmp_path, "a,b,a\n1,2,3\n")


def test_deeply_nested_cells_stay_text(tmp_path):
    file = tmp_path / "rows.csv"
    file.write_text("a\n" + "[" * 100_000 + "\n")
    ((_, row),) = read_rows(str(file), "row", lambda _: False)
    assert row["a"] == "[" * 100_000


# Paths


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rows.jsonl", True),
        ("rows.TSV", True),
        ("run.eval", True),
        ("notes.txt", False),
        ("Why?", False),
        ("hf:openai/gsm8k", True),
        ("hf: is that a name?", False),
        (".", True),
    ],
)
def test_names_of_rows_are_known(text, expected):
    assert names_rows(text) == expected


def write(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text)
    return str(path)


def rows_of(path, is_text=lambda _: False, **more):
    return list(read_rows(path, "row", is_text, **more))


def message_of(path):
    with pytest.raises(InputError) as caught:
        rows_of(path)
    return str(caught.value).removeprefix(path)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.jsonl", '{"a": 1}\n\n[1]\n', ":3: must be an object with the fields of a row"),
        ("a.jsonl", '{"a": 1}\n{"a" 1}', ":2: not valid JSON: Expecting ':' delimiter at column 6"),
        ("a.ndjson", f'{{"a": {"1" * 5000}}}', ":1: not valid JSON: Exceeds the limit"),
        ("a.jsonl", "[" * 100_000, ":1: not a row: nested too deeply"),
        ("a.json", '{"a": 1}', ": must be a list of rows"),
        ("a.json", '[{"a": 1}, 2]', ": row 2: must be an object with the fields of a row"),
        ("a.csv", "a,b\n1,2,3\n", ":2: more cells than the header has columns"),
        ("a.txt", "a", ": rows are read from .jsonl, .ndjson, .json, .traj, .csv, .tsv, .parquet"),
        ("a.parquet", "a", ": not a Parquet file ("),
        ("a.eval", "a", ": cannot be read as a log of Inspect ("),
    ],
)
def test_broken_files_name_their_place(tmp_path, name, text, message):
    assert message_of(write(tmp_path, name, text)).startswith(message)


def test_files_are_utf_8(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a": 1}\n{"a": "\xff"}\n')
    message = message_of(str(path))
    assert message.startswith(":2: not UTF-8 text (column 8, byte 16); convert it first: iconv -f")
    (_, valid), (where, broken) = read_lines(str(path))  # only its own line is invalid
    assert (valid, where, broken) == ('{"a": 1}\n', f"{path}:2", '{"a": "\udcff"}\n')
    assert message_of(str(tmp_path / "b.csv")) == ": cannot be read (No such file or directory)"


def test_standard_input_has_json_lines(monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO('{"a": "ä"}\n'.encode()), encoding="latin-1")
    monkeypatch.setattr(sys, "stdin", stream)
    assert rows_of("-") == [("standard input:1", {"a": "ä"})]
    monkeypatch.setattr(sys, "stdin", io.StringIO('{"a": 1}'))
    assert rows_of("-") == [("standard input:1", {"a": 1})]
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(InputError, match="standard input: is closed"):
        rows_of("-")


def test_arguments_are_texts_or_files(tmp_path, monkeypatch):
    path = write(tmp_path, "a.txt", "text")
    monkeypatch.setattr(sys, "stdin", io.StringIO("typed"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plain").write_text("x")
    texts = {f"@{path}": "text", "@@a": "@a", "-": "typed", "Why?": "Why?", "plain": "plain"}
    assert {text: read_argument(text) for text in texts} == texts
    for file in (path, "a.txt", "./plain"):
        with pytest.raises(InputError, match="is a file: write '@"):
            read_argument(file)


def test_images_lie_beside_their_rows():
    folders = {"data/rows.csv": "data", "rows.csv": "", "-": "", "hf:owner/name": ""}
    assert {path: folder_of(path) for path in folders} == folders


# Columns with new names


def test_renamed_columns_must_be_there(tmp_path):
    path = write(tmp_path, "a.csv", "a,b\n1,2\n")
    assert rows_of(path, renamed={"b": "a"}) == [(f"{path}:2", {"b": 1, "b (as it was)": 2})]
    with pytest.raises(InputError, match="--map x=c: no row has a column 'c'; saw a, b"):
        rows_of(path, renamed={"x": "c"})
    with pytest.raises(InputError, match="the column 'a' is given two new names; choose one"):
        Renaming({"x": "a", "y": "a", "z": "b"})
    with pytest.raises(InputError, match="saw no columns"):
        Renaming({"x": "a"}).refuse_unused()


def test_one_file_may_lack_columns(tmp_path):
    write(tmp_path, "a.csv", "a\n1\n")
    write(tmp_path, "b.csv", "b\n2\n")
    rows = rows_of(str(tmp_path), renamed={"x": "b"})
    assert [row for _, row in rows] == [{"a": 1}, {"x": 2}]


def test_rows_of_programs_are_placed():
    rows = [{"a": float("nan"), "b": 0.5}, {"a": 1}]
    assert list(place_rows(rows)) == [("row 1", {"a": None, "b": 0.5}), ("row 2", {"a": 1})]
    with pytest.raises(InputError, match="row 2: must be a mapping of columns to values, not str"):
        list(place_rows([{}, "a"]))


# Tables


def test_headers_come_before_rows(tmp_path):
    headers = []
    path = write(tmp_path, "a.csv", "a;b;\n1;;x\n")
    rows = rows_of(path, lambda name: name == "a", header=headers.append)
    assert headers == [["a", "b", ""]]
    assert rows == [(f"{path}:2", {"a": "1", "": "x"})]
    assert rows_of(write(tmp_path, "b.csv", "")) == []
    assert rows_of(write(tmp_path, "c.csv", "a,,\n1,2,3\n"))[0][1] == {"a": 1, "": 3}


def test_parquet_rows_are_numbered(tmp_path):
    path = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"a": list(range(401))}), path)
    headers = []
    rows = rows_of(str(path), header=headers.append)
    assert headers == [["a"]]
    assert [row["a"] for _, row in rows] == list(range(401))
    assert (rows[0][0], rows[-1][0]) == (f"{path}: row 1", f"{path}: row 401")


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("=1+1", "'=1+1"),
        ("-5,3 %", "-5,3 %"),
        ("+1e5", "+1e5"),
        ("-x", "'-x"),
        ("'=a", "''=a"),
        ("'a", "'a"),
        ("a=1", "a=1"),
    ],
)
def test_exported_cells_come_back(tmp_path, text, cell):
    """No spreadsheet runs a text of ours as a formula; tables of others stay as they are."""
    assert defuse(text) == cell
    for columns, restored in (("output,status,reason", text), ("output,status,x", cell)):
        path = write(tmp_path, "a.csv", f'{columns}\n"{cell}",scored,x\n')
        assert rows_of(path, lambda _: True)[0][1]["output"] == restored


# Results of other tools


def test_promptfoo_results_are_rows(tmp_path):
    result = {
        "promptIdx": 0,
        "testIdx": 3,
        "provider": {"id": "openai:gpt"},
        "prompt": {"raw": "Name the {{thing}}."},
        "vars": {"thing": "port", "n": 7},
        "response": {"output": {"port": 80}},
        "testCase": {
            "assert": [
                {"type": "javascript", "value": "no"},
                {"type": "equals", "value": 7},
                {"type": "contains", "value": "{{ thing }} {{n}} {{other}}"},
            ]
        },
    }
    row = {
        "id": "3-0-openai:gpt",
        "input": "Name the {{thing}}.",
        "output": '{"port": 80}',
        "reference": "port 7 {{other}}",
        "group": '{"n": 7, "thing": "port"}',
    }
    for document in ({"results": {"results": [result]}}, {"results": [result]}):
        path = write(tmp_path, "a.json", json.dumps(document))
        assert rows_of(path) == [(f"{path}: row 1", row)]
    path = write(tmp_path, "a.jsonl", json.dumps(result))
    assert rows_of(path) == [(f"{path}:1", row)]
    silent = {**result, "response": None, "vars": None, "testCase": {}}
    assert read_tool_result(silent) == {"id": row["id"], "input": row["input"]}
    plain = {"promptIdx": 0, "testIdx": 3}
    assert read_tool_result(plain) is plain
    with pytest.raises(InputError, match="not a result as Inspect or promptfoo writes it"):
        read_tool_result({**result, "response": "text"})


def test_promptfoo_tables_have_several_outputs(tmp_path):
    text = (
        "topic,[openai:gpt] Say {{topic}}.,[local] {{ topic }}?,[local] {{ topic }}?\n"
        "tides,[PASS] (1.0) The moon. Pass Reason: it is,[a] plain,\n"
    )
    path = write(tmp_path, "a.csv", text.replace(",[local] {{ topic }}?\n", ",[local] {{x}}\n"))
    assert [row for _, row in rows_of(path, lambda _: True)] == [
        {"input": "Say tides.", "output": "The moon.", "group": '{"topic": "tides"}'},
        {"input": "tides?", "output": "[a] plain", "group": '{"topic": "tides"}'},
        {"input": "{{x}}", "output": "", "group": '{"topic": "tides"}'},
    ]
    other = write(tmp_path, "b.csv", text)  # its columns are no columns of rows
    renamed = rows_of(other, lambda _: True, renamed={"question": "input"})
    assert [row["question"] for _, row in renamed] == ["Say tides.", "tides?"]


SAMPLE = {
    "id": 5,
    "epoch": 1,
    "input": "Which?",
    "choices": ["red", "blue"],
    "target": ["A", "B"],
    "output": {"completion": "A"},
    "messages": [{"role": "user", "content": "Which?"}],
}


def test_inspect_logs_are_rows(tmp_path):
    call = {"function": "find", "arguments": {}}
    messages = [{"role": "assistant", "content": "", "tool_calls": [call]}]
    chat = [{"role": "system", "content": "Rules."}, {"role": "user", "content": "Which?"}]
    samples = [
        SAMPLE,
        {**SAMPLE, "epoch": 2, "choices": None, "target": "A", "input": chat, "output": None},
        {"input": "Why?", "messages": messages},
    ]
    rows = [
        {"id": "5", "input": "Which?\nA) red\nB) blue", "output": "A", "reference": ["A", "B"]},
        {"id": "5", "epoch": 2, "input": "System: Rules.\nUser: Which?", "reference": "A"},
        {"input": "Why?", "tool_calls": messages},
    ]
    assert read_results({"eval": {}, "samples": samples}) == rows
    assert read_results({"samples": samples}) is None
    assert read_results({"eval": {}, "samples": 3}) is None
    path = tmp_path / "a.eval"
    with zipfile.ZipFile(path, "w") as log:
        for name, sample in (("samples/b", samples[1]), ("samples/a", samples[0])):
            log.writestr(f"{name}.json", json.dumps(sample))
        log.writestr("header.json", "{}")
    assert rows_of(str(path)) == [
        (f"{path}: samples/a.json", rows[0]),
        (f"{path}: samples/b.json", rows[1]),
    ]


# Data sets of the hub


def test_hub_names_have_parts():
    names = ("hf:a/b", "hf:a", "hf:a/b/main", "hf:a/b:test", "hf:a/b/main:test[1]")
    assert [str(parse_name(name)) for name in names] == list(names)
    assert (parse_name("hf:a/b/c:d").config, parse_name("hf:a/b").split) == ("c", "")
    with pytest.raises(InputError, match="write a data set of the hub as hf:OWNER/NAME"):
        parse_name("hf:a/b:c:d")


@pytest.mark.parametrize(
    ("name", "files", "expected"),
    [
        ("hf:a/b", ["x/train/0.parquet"], ["x/train/0.parquet"]),
        ("hf:a/b", ["x/train/0.parquet", "default/t/0.parquet"], ["default/t/0.parquet"]),
        ("hf:a/b/x", ["x/train/0.parquet", "default/t/0.parquet"], ["x/train/0.parquet"]),
        ("hf:a/b", ["x/t/1.parquet", "x/t/0.parquet"], ["x/t/0.parquet", "x/t/1.parquet"]),
    ],
)
def test_hub_files_are_chosen(name, files, expected):
    assert choose_converted(parse_name(name), files) == expected


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("hf:a/b", "several, so name one configuration; there are: x, y; write hf:NAME/CONFIG:SP"),
        ("hf:a/b/z", "has no configuration 'z'; there are: x, y; write hf:NAME/CONFIG:SPLIT"),
        ("hf:a/b/x", "several, so name one split; there are: s, t; write hf:NAME:SPLIT"),
    ],
)
def test_hub_choices_are_named(name, message):
    files = ["x/s/0.parquet", "x/t/0.parquet", "y/t/0.parquet"]
    with pytest.raises(InputError, match=message):
        choose_converted(parse_name(name), files)
