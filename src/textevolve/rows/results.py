"""Result files of Inspect and promptfoo, read as rows with an input, an output and a reference."""

from __future__ import annotations

import json
import re
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, cast

from textevolve.errors import InputError
from textevolve.json_texts import write_text
from textevolve.mappings import drop_empty, map_values
from textevolve.reach import allowed_path
from textevolve.rows.chats import read_chat, write_chat
from textevolve.rows.content import Placed, Row, import_pyarrow, mend_halves

_PROVIDER = re.compile(r"\[([^\]]+)\] (.+)", re.DOTALL)
"""The name of a column with outputs in promptfoo's tables: the provider and the prompt."""
_CELL = re.compile(
    r"\s*\[(?:PASS|FAIL|ERROR)\] \([^)]*\)\s*(.*?)(?:\s*(?:Pass|Fail) Reason: .*)?", re.DOTALL
)
"""An output in older tables of promptfoo, which stands between its verdict and the reason."""
_VARIABLE = re.compile(r"\{\{\s*([^{}]+?)\s*\}\}")
"""A variable in a template of promptfoo."""
_EQUALITY = ("equals", "contains", "icontains", "similar", "factuality")
"""The assertions of promptfoo whose value is a reference answer."""
_ZSTANDARD = 93
"""The number of a method of compression in ZIP archives."""


def read_log(path: str, name: str) -> Iterator[Placed]:
    """Yield the samples of an `.eval` log of Inspect, which is an archive with a file for each
    sample."""
    try:
        with zipfile.ZipFile(allowed_path(path)) as log:
            for member in sorted(log.namelist()):
                if member.startswith("samples/"):
                    text = mend_halves(_read_member(log, member, name).decode())
                    yield f"{name}: {member}", _read_sample(json.loads(text))
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise InputError(f"{name}: cannot be read as a log of Inspect ({error})") from None


def _read_member(log: zipfile.ZipFile, member: str, name: str) -> bytes:
    """Return the content of a file in a log. Inspect compresses with Zstandard, which `zipfile`
    reads from Python 3.14 on."""
    info = log.getinfo(member)
    if info.compress_type != _ZSTANDARD or sys.version_info >= (3, 14):
        return log.read(info)
    pyarrow = import_pyarrow("pyarrow", f"{name}: reading logs of Inspect before Python 3.14")
    # The compressed bytes are read as a file of their own, for which the checksum does not hold.
    size, info.file_size, info.compress_type = info.file_size, info.compress_size, 0
    del info.CRC
    return pyarrow.decompress(log.read(info), size, "zstd", asbytes=True)


def read_results(document: Mapping[str, Any]) -> list[Row] | None:
    """Return the rows of an Inspect log (a list under `samples`), or those of a list under
    `results`, where promptfoo has its results; None if the document has neither list."""
    if isinstance(document.get("samples"), list) and "eval" in document:
        return list(map(_read_sample, document["samples"]))
    results = document.get("results")
    results = cast("Row", results).get("results") if isinstance(results, dict) else results
    return (
        list(map(read_tool_result, cast("list[Row]", results)))
        if isinstance(results, list)
        else None
    )


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
    target: Any = sample.get("target")
    chat = read_chat(sample.get("input"))
    messages: Any = sample.get("messages") or ()
    options = (f"{chr(65 + n)}) {text}" for n, text in enumerate(sample.get("choices") or ()))
    epoch = f"-{sample['epoch']}" if sample.get("epoch", 1) > 1 else ""
    row: dict[str, Any] = {
        "id": f"{sample.get('id', '')}{epoch}",
        "input": "\n".join([write_chat(chat) if chat else sample["input"], *options]),
        "output": output.get("completion"),
        "reference": "\n".join(cast("list[str]", target)) if isinstance(target, list) else target,
        "tool_calls": messages if any(message.get("tool_calls") for message in messages) else None,
    }
    return drop_empty(row)


@_checked
def read_tool_result(row: Row) -> Row:
    """Convert a promptfoo result to a row with input, output and reference; return any other row
    unchanged."""
    if not {"promptIdx", "testIdx", "testCase"} <= row.keys():
        return row
    response, case, prompt, provider, variables = (
        cast("Row", row.get(name) or {})
        for name in ("response", "testCase", "prompt", "provider", "vars")
    )
    output: Any = response.get("output")
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
    return drop_empty(result)


def _fill(template: str, variables: Mapping[str, Any]) -> str:
    """Return a template of promptfoo with its variables, such as `{{port}}`, filled in."""
    known = map_values(write_text, variables)
    return _VARIABLE.sub(lambda variable: known.get(variable[1], variable[0]), template)


def has_outputs(columns: Iterable[str]) -> bool:
    """Tell by its column names whether a table is an export of promptfoo."""
    return any(map(_PROVIDER.fullmatch, columns))


def read_cells(row: Row) -> Iterator[Row]:
    """Yield a row for each output in a row of promptfoo's table; yield any other row unchanged."""
    outputs = {name: match for name in row if (match := _PROVIDER.fullmatch(name))}
    for name, (_, prompt) in ((name, match.groups()) for name, match in outputs.items()):
        text = write_text(row[name])
        verdict = _CELL.fullmatch(text)
        yield {"input": _fill(prompt, row), "output": verdict[1] if verdict else text}
    if not outputs:
        yield row
