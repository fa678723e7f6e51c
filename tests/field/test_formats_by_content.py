"""A user's file has another format than its name says, is compressed, or has its rows in an object.

Each form has the same two rows, so the right value is known without a reader.
"""

import gzip
import io
import json
import zipfile

import openpyxl
import pytest

from textevolve.errors import InputError
from textevolve.rows import is_row_file, read_rows
from textevolve.rows.columns import is_text_column

ROWS = [{"input": "Name a prime.", "output": "Seven."}, {"input": "Say ä.", "output": 'ä; "ö"'}]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS)
TABLE = 'input,output\nName a prime.,Seven.\nSay ä.,"ä; ""ö"""\n'
TABS = 'input\toutput\nName a prime.\tSeven.\nSay ä.\tä; "ö"\n'
COLUMNS = {name: [row[name] for row in ROWS] for name in ROWS[0]}
BY_NUMBER = {name: dict(enumerate(values)) for name, values in COLUMNS.items()}


def write_zip(files):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return file.getvalue()


def write_workbook(rows, *more):
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    for title, others in more:
        sheet = book.create_sheet(title)
        for row in others:
            sheet.append(row)
    file = io.BytesIO()
    book.save(file)
    return file.getvalue()


def read(tmp_path, name, content):
    file = tmp_path / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return [row for _, row in read_rows(str(file), "case", is_text_column)]


def refusal(tmp_path, name, content):
    with pytest.raises(InputError) as caught:
        read(tmp_path, name, content)
    return str(caught.value).removeprefix(f"{tmp_path}/")


FORMS = {
    "rows.json": LINES,
    "rows.jsonl": json.dumps(ROWS),
    "pretty.jsonl": json.dumps(ROWS, indent=1),
    "objects.json": "\n".join(json.dumps(row, indent=2) for row in ROWS),
    "rows.txt": LINES,
    "table.txt": TABLE,
    "table.json": TABLE,
    "rows.csv": LINES,
    "document.csv": json.dumps(ROWS, indent=1),
    "tabs.csv": TABS,
    "commas.tsv": TABLE,
    "no_ending": LINES,
    "blank_first.jsonl": "\n\n" + LINES,
    "rows.jsonl.gz": gzip.compress(LINES.encode(), mtime=0),
    "unnamed.jsonl": gzip.compress(TABLE.encode(), mtime=0),
    "rows.csv.gz": gzip.compress(TABLE.encode(), mtime=0),
    "twice.gz": gzip.compress(gzip.compress(LINES.encode()), mtime=0),
    "rows.zip": write_zip({"folder/rows.csv": TABLE}),
    "mac.zip": write_zip({"rows.jsonl": LINES, "__MACOSX/._rows.jsonl": "of a Mac"}),
    "data.json": json.dumps({"version": 2, "data": ROWS}),
    "rows_under.json": json.dumps({"rows": ROWS, "total": 2}, indent=2),
    "one_name.json": json.dumps({"helpfulness": ROWS}),
    "columns.json": json.dumps(COLUMNS),
    "by_number.json": json.dumps(BY_NUMBER),
    "split.json": json.dumps(
        {"columns": list(ROWS[0]), "index": [0, 1], "data": [list(row.values()) for row in ROWS]}
    ),
    "mark.csv": TABLE.encode("utf-8-sig"),
    "utf16.csv": TABLE.encode("utf-16"),
    "big_end.csv": b"\xfe\xff" + TABLE.encode("utf-16-be"),
    "utf16.jsonl": LINES.encode("utf-16"),
    "utf16.tsv": TABS.encode("utf-16"),
    "rows.xlsx": write_workbook([list(ROWS[0]), *(list(row.values()) for row in ROWS)]),
    "sheet.csv": write_workbook([list(ROWS[0]), *(list(row.values()) for row in ROWS)]),
}


@pytest.mark.parametrize("name", FORMS)
def test_content_decides_the_format(tmp_path, name):
    assert read(tmp_path, name, FORMS[name]) == ROWS


def test_objects_by_id_have_ids(tmp_path):
    objects = {"q1": ROWS[0], "q2": ROWS[1]}
    rows = [{"id": "q1", **ROWS[0]}, {"id": "q2", **ROWS[1]}]
    assert read(tmp_path, "a.json", json.dumps(objects)) == rows


@pytest.mark.parametrize(
    "row",
    [
        {"input": {"n": "1"}, "output": {"story": "x"}},
        {"messages": [{"role": "user", "content": "a"}]},
        {"input": ["a", "b"], "output": ["c", "d"]},
    ],
)
def test_one_line_is_one_row(tmp_path, row):
    assert read(tmp_path, "a.jsonl", json.dumps(row)) == [row]


def test_single_documents_are_rows(tmp_path):
    assert read(tmp_path, "a.json", json.dumps(ROWS[0], indent=1)) == ROWS[:1]


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.xls", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "a.xls: is an old workbook of Excel; save"),
        (
            "a.zip",
            write_zip({"a": "1", "b": "2"}),
            "a.zip: an archive must have one file of cases, and it",
        ),
        ("a.gz", gzip.compress(LINES.encode(), mtime=0)[:-20], "a.gz: cannot be unpacked"),
        ("a.txt", "just words", "a.txt: cases are read from .jsonl, .ndjson, .json, .traj, .csv"),
        (
            "a.json",
            '{"version": 2}',
            "a.json: must be a list of cases, or an object with one under",
        ),
        # As LlamaIndex writes the queries, the corpus and the passages of a set for retrieval.
        (
            "a.json",
            '{"queries": {"q": "Why?"}, "corpus": {"n": "So."}, "relevant_docs": {"q": ["n"]},'
            ' "mode": "text"}',
            "a.json: must be a list of cases, or an object with one under data, rows, items,"
            " examples, cases, instances, records, memories; saw queries, corpus, relevant_docs,"
            " mode",
        ),
    ],
)
def test_other_files_are_named(tmp_path, name, content, sentence):
    assert refusal(tmp_path, name, content).startswith(sentence)


def test_cut_lines_name_their_column(tmp_path):
    message = refusal(tmp_path, "a.jsonl", LINES + '{"input": "x",\n')
    assert message.startswith("a.jsonl:3: not valid JSON: Expecting property name")
    assert message.endswith("at column 15")


def test_documents_name_their_line(tmp_path):
    message = refusal(tmp_path, "a.json", '[\n {"input": "x"},\n {"input" "y"}\n]')
    assert message == "a.json:3: not valid JSON: Expecting ':' delimiter at column 11"


def test_old_encodings_are_converted(tmp_path):
    table = "input,output\n" + "x,y\n" * 9000 + "Tür,zu\n"
    message = refusal(tmp_path, "a.csv", table.encode("latin-1"))
    assert message.startswith("a.csv:9002: not UTF-8 text (column 2, byte 36014); convert it")
    assert "iconv -f WINDOWS-1252 -t UTF-8" in message


def test_sheets_left_out_are_named(tmp_path, caplog):
    rows = [["input", "output"], ["Why?", 3]]
    content = write_workbook(rows, ("notes", [["x"]]), ("empty", []))
    assert read(tmp_path, "a.xlsx", content) == [{"input": "Why?", "output": 3}]
    assert "reads the sheet 'Sheet', and not 'notes'" in caplog.text


def test_standard_input_has_any_text(cli):
    outcome = cli("evaluate", "-", "--judge", "look:length", "--json", stdin=TABLE.encode())
    assert outcome.code == 0, outcome.err
    assert [json.loads(line)["input"] for line in outcome.out.splitlines()[:2]] != []


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.ZIP", "a.xlsx"])
def test_packed_files_are_rows(name):
    assert is_row_file(name)


def test_blank_lines_count(tmp_path):
    message = refusal(tmp_path, "a.json", '\n[\n\n {"input": "x"},\n {"input" "y"}\n]')
    assert message == "a.json:5: not valid JSON: Expecting ':' delimiter at column 11"
    message = refusal(tmp_path, "a.jsonl", '\n{"input": "x"}\n\n{"input" "y"}\n')
    assert message == "a.jsonl:4: not valid JSON: Expecting ':' delimiter at column 10"


def test_own_lists_of_a_row_stay(tmp_path):
    row = {"name": "x", "items": [{"n": 1}]}
    assert read(tmp_path, "a.jsonl", json.dumps(row)) == [row]


def test_many_objects_are_read_at_once(tmp_path):
    text = "\n".join(json.dumps({"input": str(n)}, indent=1) for n in range(20_000))
    assert len(read(tmp_path, "a.json", text)) == 20_000


@pytest.mark.parametrize(
    ("encoding", "name"), [("utf-16-le", "UTF-16LE"), ("utf-16-be", "UTF-16BE")]
)
def test_missing_marks_name_their_command(tmp_path, encoding, name):
    message = refusal(tmp_path, "a.csv", TABLE.encode(encoding))
    assert message.startswith("a.csv: UTF-16 without a byte order mark; convert it first: iconv")
    assert f"-f {name} -t UTF-8" in message
