"""Texts of files with their encodings, JSON parsed from them, and the result files of Inspect and
promptfoo. Tables are read in `spreadsheets.py`.
"""

from __future__ import annotations

import codecs
import io
import json
import re
import sys
import zipfile
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from itertools import takewhile
from pathlib import Path
from typing import IO, Any, TypeAlias, cast

from textevolve.errors import InputError, SettingsError
from textevolve.json_texts import as_array, as_object, find_path, is_array, is_object, write_text
from textevolve.ledger import leave_out
from textevolve.mappings import drop_empty, map_values, omit
from textevolve.messages import is_message, read_message
from textevolve.reach import allowed_path, check_stdin
from textevolve.rows.chats import read_chat, write_chat
from textevolve.rows.exports import read_session
from textevolve.rows.trajectories import is_trajectory, list_objects, read_trajectory_row

# The text of files and standard input, and JSON parsed from text.

Row: TypeAlias = Mapping[str, Any]  # a row: the values of its columns by name
Placed: TypeAlias = tuple[str, Row]
"""The position of a row for messages, such as "cases.jsonl:3", and the row."""

STANDARD_INPUT = "-"  # the path that stands for standard input


# An escape of JSON from its backslash on. Of surrogates only one without its other half is a group.
_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    r"|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)


def mend_halves(text: str) -> str:
    """Return JSON in which half a surrogate pair, which JSON can escape but no valid text contains,
    is replaced by U+FFFD. It is applied to all JSON from outside."""
    if not re.search(r"\\u[dD][89a-fA-F]", text):
        return text
    return _ESCAPE.sub(lambda found: "\\ufffd" if found[1] else found[0], text)


def import_pyarrow(module: str, purpose: str) -> Any:
    """Import a module of pyarrow, which is optional. `purpose`: what needs it, for the message.

    Raises:
        SettingsError: pyarrow is not installed.
    """
    return import_optional(module, purpose, "parquet")


def import_optional(module: str, purpose: str, extra: str) -> Any:
    """Import a module of an optional package. `extra`: the extra that installs it.

    Raises:
        SettingsError: it is not installed; names `purpose`, which needs it.
    """
    try:
        return import_module(module)
    except ImportError:
        package = cast("re.Match[str]", re.match(r"(?:backports\.)?\w+", module))[0]
        raise SettingsError(
            f'{purpose} needs {package}: pip install "textevolve[{extra}]"'
        ) from None


def name_of(path: str) -> str:
    return "standard input" if path == STANDARD_INPUT else path


@contextmanager
def open_text(path: str, errors: str = "strict") -> Generator[IO[str]]:
    """Open a text file, or standard input, whose encoding is UTF-8 or told by a byte order mark."""
    with name_faults(path):
        if path == STANDARD_INPUT:
            yield _standard_input(errors)
            return
        with open(allowed_path(path), "rb") as file, open_decoded(file, errors) as text:
            yield text


@contextmanager
def open_decoded(file: IO[bytes], errors: str = "strict") -> Generator[IO[str]]:
    """Read a file as text within the block: in the encoding of its byte order mark, or in UTF-8.
    The file stays open."""
    encoding = _find_encoding(file.read(4))
    file.seek(0)
    text = io.TextIOWrapper(file, encoding, errors, newline="")
    try:
        yield text
    finally:
        text.detach()


@contextmanager
def name_faults(path: str) -> Generator[None]:
    """Convert errors of reading a file within the block into InputErrors that name it.

    Raises:
        InputError: the file cannot be opened, or is no text; names the line and what converts it.
    """
    try:
        yield
    except UnicodeDecodeError as error:
        raise InputError(_describe_encoding(path, error)) from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"{name_of(path)}: cannot be read ({reason})") from None


_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # which begins as the mark of UTF-16 does
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def _find_encoding(start: bytes) -> str:
    """Return the encoding of a text by its first four bytes: that of its byte order mark, or else
    UTF-8.

    Raises:
        UnicodeDecodeError: every second byte is 0, as in UTF-16.
    """
    for mark, encoding in _MARKS:
        if start.startswith(mark):
            return encoding
    if start[:4:2] == b"\0\0" or start[1:4:2] == b"\0\0":
        raise UnicodeDecodeError("utf-16", start, 0, 4, "without a byte order mark")

    return "utf-8"


def _describe_encoding(path: str, error: UnicodeDecodeError) -> str:
    """Describe where a file is no UTF-8, as an editor counts, and how to convert it."""
    name = name_of(path)
    if path == STANDARD_INPUT:
        return f"{name}: not UTF-8 text (byte {error.start}); convert it first"

    convert = f"-t UTF-8 '{name}' > converted{Path(name).suffix}"
    if error.encoding != "utf-8":
        order = "BE" if error.object[:1] == b"\0" else "LE"
        return f"{name}: UTF-16 {error.reason}; convert it first: iconv -f UTF-16{order} {convert}"

    # The error counts from the block that was decoded last, not from the start of the file.
    before = 0
    with open(allowed_path(path), "rb") as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode()
            except UnicodeDecodeError as fault:
                column = len(line[: fault.start].decode()) + 1
                place = f"column {column}, byte {before + fault.start}"
                encoding = _guess_encoding(line + file.read(2**16))
                return (
                    f"{name}:{number}: not UTF-8 text ({place}); convert it first: iconv"
                    f" -f {encoding} {convert} (if letters are then wrong, write the encoding of"
                    f" their language instead of {encoding})"
                )
            before += len(line)

    return f"{name}: not UTF-8 text within its compression; unpack and convert it first"


_HAN = r"[\u3000-\u303f\u4e00-\u9fff\uff01-\uff5e]"
_LETTERS = (
    ("WINDOWS-1251", r"[\u0430-\u045f]", 0.6),
    ("CP932", r"[\u3041-\u30ff]", 0.3),
    ("CP949", r"[\uac00-\ud7a3]", 0.9),
    ("GB18030", _HAN, 0.7),
    ("BIG5", _HAN, 0.7),
)
"""The encodings that Excel writes, with the letters of their languages and the least share of them.
The order is that of guesses: bytes of an earlier one are often letters in a later one, too."""


def _guess_encoding(sample: bytes) -> str:
    """Return the encoding that a text other than UTF-8 probably has, by its letters."""
    runs = re.findall(rb"[\x80-\xff]+", sample)
    # Letters of western Europe beyond ASCII stand alone between others.
    if 2 * sum(len(run) == 1 for run in runs) < len(b"".join(runs)):
        for encoding, letters, share in _LETTERS:
            text = sample.decode(encoding, "replace")
            if len(re.findall(letters, text)) > share * len(re.findall(r"[^\x00-\x7f]", text)):
                return encoding

    return "WINDOWS-1252"


def _standard_input(errors: str) -> IO[str]:
    """Read standard input like files, by its byte order mark or as UTF-8, and ignore the terminal's
    encoding."""
    check_stdin()
    if sys.stdin is None:  # pyright: ignore[reportUnnecessaryComparison]  closed from the start
        raise InputError("standard input: is closed")
    stdin: Any = sys.stdin
    with suppress(AttributeError):  # another stream in its place is read as it stands
        # What is looked at stays in the buffer; a stream in memory cannot be looked at.
        peek = getattr(stdin.buffer, "peek", None)
        beginning = b"" if peek is None else peek(4)[:4]
        stdin.reconfigure(encoding=_find_encoding(beginning), errors=errors)
    return stdin


def parse_json(text: str, where: str, noun: str) -> Any:
    """Parse a text as JSON and return the value. `where`: its position for messages, to which a
    text of several lines adds the line; `noun`: the word for it.

    Raises:
        InputError: it is not JSON, or an object has the same key twice (JSON would silently drop
            the first); names `where`.
    """

    def take_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        row = dict(pairs)
        if len(row) < len(pairs):
            names = [name for name, _ in pairs]
            double = next(name for name in names if names.count(name) > 1)
            raise InputError(
                f"{where}: the key '{double:.60}' is there twice in one object; keep one"
            )

        return row

    try:
        # Without the end of the line, after which a text that was cut would go on in column 1.
        return json.loads(text.rstrip(), object_pairs_hook=take_pairs)
    except json.JSONDecodeError as error:
        line = f":{error.lineno}" if "\n" in text.rstrip() else ""
        raise InputError(
            f"{where}{line}: not valid JSON: {error.msg} at column {error.colno}"
        ) from None
    except ValueError as error:  # a number of thousands of digits
        raise InputError(f"{where}: not valid JSON: {str(error).split(';')[0]}") from None
    except RecursionError:
        raise InputError(f"{where}: not a {noun}: nested too deeply") from None


def take_object(row: Any, where: str, noun: str) -> Row:
    if not is_object(row):
        raise InputError(f"{where}: must be an object with the fields of a {noun}")
    return row


# Result files of Inspect and promptfoo, read as rows with an input, an output and a reference.

_PROVIDER = re.compile(r"\[([^\]]+)\] (.+)", re.DOTALL)
"""The name of a column with outputs in promptfoo's tables: the provider and the prompt."""
_CELL = re.compile(
    r"\s*\[(?:PASS|FAIL|ERROR)\] \([^)]*\)\s*(.*?)(?:\s*(?:Pass|Fail) Reason: .*)?", re.DOTALL
)
"""An output in older tables of promptfoo, which stands between its verdict and the reason."""
_EQUALITY = ("equals", "contains", "icontains", "similar", "factuality")
"""The assertions of promptfoo whose value is a reference answer."""
_ANEW = "are not read; a judge scores the outputs anew"
_HEADER = "header.json"
_ZSTANDARD = 93
"""The number of a method of compression in ZIP archives."""


def read_log(file: IO[bytes], name: str) -> Iterator[Placed]:
    """Yield the samples of an `.eval` log of Inspect, which is an archive with a file for each
    sample."""
    try:
        with _find_archives(file, name).ZipFile(file) as log:
            # A member that was written again stands there twice; the later one is read.
            names = sorted({*log.namelist()})
            for member in names:
                if member.startswith("samples/"):
                    text = mend_halves(log.read(member).decode())
                    yield f"{name}: {member}", _read_sample(json.loads(text))
            ids = [name[len("samples/") :].rpartition("_epoch_")[0] for name in names]
            if _HEADER in names:
                _name_lost(json.loads(log.read(_HEADER)), ids)
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise InputError(f"{name}: cannot be read as a log of Inspect ({error})") from None


def _name_lost(log: Row, ids: Iterable[object]) -> None:
    """Record the samples that a log of Inspect lacks because its run did not succeed. `ids`: those
    of the samples that it has."""
    expected = map(str, as_array(find_path(log, "eval.dataset.sample_ids")))
    lost = sorted({*expected} - {*map(str, ids)})
    if log.get("status") != "success":
        leave_out("sample", f"{', '.join(lost[:10])}: the log of Inspect ends before", len(lost))


def _find_archives(file: IO[bytes], name: str) -> Any:
    """Return the module that reads an archive. Inspect compresses with Zstandard, which `zipfile`
    reads from Python 3.14 on."""
    with zipfile.ZipFile(file) as log:
        is_packed = any(info.compress_type == _ZSTANDARD for info in log.infolist())
    if not is_packed or sys.version_info >= (3, 14):
        return zipfile
    purpose = f"{name}: reading logs of Inspect before Python 3.14"
    return import_optional("backports.zstd.zipfile", purpose, "inspect")


def read_results(document: Mapping[str, Any]) -> list[Row] | None:
    """Return the rows of an Inspect log (a list under `samples`), or those of a list under
    `results`, where promptfoo has its results; a session or a trajectory alone; None if it is
    none of these."""
    if (session := read_session(document)) is not None:
        return [session]
    if is_trajectory(document):
        return [document]
    if isinstance(document.get("samples"), list) and "eval" in document:
        rows = list(map(_read_sample, document["samples"]))
        _name_lost(document, [row.get("id") for row in rows])
        return rows
    results = document.get("results")
    results = results.get("results") if is_object(results) else results

    return list(map(read_tool_result, results)) if is_array(results) else None


def _checked(read: Callable[[Row], Row]) -> Callable[[Row], Row]:
    """Return the reader with errors caused by an unexpected form of a record converted to
    InputError."""

    def checked(row: Row) -> Row:
        try:
            return read(row)
        except (AttributeError, KeyError, TypeError) as error:
            raise InputError(f"not a result as Inspect or promptfoo writes it: {error}") from None

    return checked


@_checked
def _read_sample(sample: Row) -> Row:
    output: Any = sample.get("output") or {}
    chat = read_chat(sample.get("input"))
    messages: Any = sample.get("messages") or ()
    has_calls = any(message.get("tool_calls") for message in messages)
    epoch = sample.get("epoch", 1)
    scores = as_object(sample.get("scores"))
    leave_out("score", f"{', '.join(scores)}: those of Inspect's scorers {_ANEW}", len(scores))
    options = [f"{chr(65 + n)}) {text}" for n, text in enumerate(sample.get("choices") or ())]
    row: dict[str, Any] = {
        # The epochs of a sample are repeats of one item, by whose id intervals are clustered.
        "id": str(sample.get("id", "")),
        "epoch": epoch if epoch > 1 else None,
        "input": "\n".join([write_chat(chat) if chat else sample["input"], *options]),
        "output": read_completion(output),
        "reference": sample.get("target"),
        "tool_calls": messages if has_calls else None,
    }

    return drop_empty(row)


def read_completion(output: Mapping[str, Any]) -> str | None:
    """Return the answer in an output of Inspect: that of its first choice, which may have thoughts
    beside it, or else the text `completion`; None without either."""
    choices = as_array(output.get("choices"))
    message = as_object(as_object(next(iter(choices), None)).get("message"))
    answer = read_message(message).text if is_message(message) else ""
    return answer or output.get("completion")


@_checked
def read_tool_result(row: Row) -> Row:
    """Convert a promptfoo result to a row with input, output and reference, a trajectory in ATIF to
    a chat, and an item of OpenAI's evals to its fields; return any other row unchanged."""
    if is_trajectory(row):
        return read_trajectory_row(row)
    if row.keys() >= _EVAL_RESULT or (
        row.keys() <= {"item", "sample"} and is_object(row.get("item"))
    ):
        return _read_eval_item(row)
    if not {"promptIdx", "testIdx", "testCase"} <= row.keys():
        return row
    response, case, prompt, provider, variables = (
        cast("Row", row.get(name) or {})
        for name in ("response", "testCase", "prompt", "provider", "vars")
    )
    output: Any = response.get("output")
    scores = [name for name in ("success", "score", "namedScores") if row.get(name) is not None]
    leave_out("score", f"{', '.join(scores)}: those of promptfoo {_ANEW}", len(scores))
    checks: list[Row] = case.get("assert") or []
    values = (check.get("value") for check in checks if check.get("type") in _EQUALITY)
    result: dict[str, Any] = {
        "id": f"{row['testIdx']}-{row['promptIdx']}-{provider.get('id', '')}",
        "input": prompt.get("raw"),
        "output": None if output is None else write_text(output),
        "reference": _fill(
            next((value for value in values if isinstance(value, str)), ""), variables
        ),
    }
    # Repeats of a test, and the outputs of all prompts for it, have the same variables.
    of_test = omit(variables, ["sessionId"])
    if of_test:
        result["group"] = json.dumps(of_test, sort_keys=True)

    return drop_empty(result)


_EVAL_RESULT = {"datasource_item", "sample"}
"""The fields of a result of OpenAI's evals."""


def _read_eval_item(row: Row) -> Row:
    """Return an item of OpenAI's evals as a row: its fields, and the request and the answer of a
    run. The answer is empty if there is none, since the item may have one as its reference."""
    item = as_object(row.get("datasource_item", row.get("item")))
    item = as_object(item.get("item")) or item
    if "sample" not in row:
        return item
    sample = as_object(row["sample"])
    answers = list_objects(sample, "output")
    texts = [read_message(answer).text for answer in answers if is_message(answer)]
    of_run = {
        "id": row.get("datasource_item_id"),
        "input": sample.get("input"),
        "tool_calls": answers if any(answer.get("tool_calls") for answer in answers) else None,
        "results": row.get("results"),
        "error": sample.get("error"),
    }
    output = sample.get("output_text") or next(filter(None, reversed(texts)), "")

    return {**item, **drop_empty(of_run), "output": output}


def _fill(template: str, variables: Mapping[str, Any]) -> str:
    """Return a template of promptfoo with its variables, such as `{{port}}`, filled in."""
    column_texts = map_values(write_text, variables)
    return re.sub(
        r"\{\{\s*([^{}]+?)\s*\}\}",
        lambda variable: column_texts.get(variable[1], variable[0]),
        template,
    )


def has_outputs(columns: Iterable[str]) -> bool:
    """Tell by its column names whether a table is an export of promptfoo."""
    return any(map(_PROVIDER.fullmatch, columns))


def read_cells(row: Row) -> Iterator[Row]:
    """Yield a row for each output in a row of promptfoo's table; yield any other row unchanged."""
    outputs = {name: match for name in row if (match := _PROVIDER.fullmatch(name))}
    # The variables of a test stand before its outputs, whose verdicts stand behind them.
    variables = dict(takewhile(lambda column: column[0] not in outputs, row.items()))
    group = {"group": write_text(variables)} if variables else {}
    for name, (_, prompt) in ((name, match.groups()) for name, match in outputs.items()):
        text = write_text(row[name])
        verdict = _CELL.fullmatch(text)
        yield {"input": _fill(prompt, row), "output": verdict[1] if verdict else text, **group}

    if not outputs:
        yield row
