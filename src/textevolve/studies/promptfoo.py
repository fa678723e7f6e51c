"""Convert a configuration of promptfoo to a study of `compare` and its rows.

Prompts, providers, variables and assertions are carried over; a test becomes a row for each
combination of its variables. Whatever a study cannot have is recorded as left out, with its name
and the reason.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from textevolve.errors import InputError, SettingsError
from textevolve.json_texts import as_array, as_object, is_array
from textevolve.ledger import leave_out
from textevolve.llm.providers import PROVIDERS
from textevolve.loops.rules import find_named
from textevolve.mappings import drop_empty, map_values, omit
from textevolve.rows import DATA_ENDINGS, is_row_file, read_rows, read_text
from textevolve.rows.columns import TITLES, column_text, is_text_column
from textevolve.texts.placeholders import fill
from textevolve.texts.yaml_lines import parse_yaml

FILE = "file://"
PROVIDER_NAMES = {
    **{name: name for name in PROVIDERS},
    "google": "gemini",
    "mistralai": "mistral",
    "togetherai": "together",
}
"""Our names of providers by those of promptfoo."""
FORMS = ("chat", "completion", "responses", "messages")
"""The forms of requests that promptfoo puts between a provider and a model."""
CODE = (".js", ".cjs", ".mjs", ".ts", ".py")
SETTINGS = {"temperature": "temperature", "max_tokens": "max_output_tokens"}
"""The fields of a study by those of a provider's configuration."""
READ = ("prompts", "providers", "targets", "tests", "defaultTest")
READ_OF_TESTS = ("vars", "assert", "description", "threshold")
_EXPRESSION = re.compile(r"\{%|\{\{[^{}]*[|(\[+?.][^{}]*\}\}")
"""An expression of a template that is more than the name of a variable."""


def convert_config(path: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the fields of a study, and the rows of its data.

    Raises:
        InputError: the file is no configuration of promptfoo, or one that it names cannot be read.
    """
    config = as_object(parse_yaml(read_text(path), path)[1])
    if "prompts" not in config:
        raise InputError(f"{path}: is no configuration of promptfoo: it has no prompts")
    folder = Path(path).parent
    others = omit(config, READ)
    leave_out("field", f"{path}: a study takes no {', '.join(others)}", len(others))

    default = as_object(_open_reference(config.get("defaultTest"), folder))
    checks = _keep_checks(as_array(default.get("assert")), "defaultTest", folder)
    rows: list[dict[str, Any]] = []
    for number, test in enumerate(_list_tests(config.get("tests"), folder), 1):
        rows += _list_rows(test, default, f"test {number}", folder)
    rows = rows or _list_rows({}, default, "defaultTest", folder)
    models, settings = _read_providers(config.get("providers", config.get("targets")))
    columns = {name for row in rows for name in row}

    return drop_empty(
        {
            "kind": "compare",
            "prompts": _read_prompts(config["prompts"], folder),
            "models": models,
            "judge": "checks" if checks or "checks" in columns else "",
            "check": checks,
            "context": "context" if "context" in columns else "",
            **settings,
        }
    ), rows


def _open_reference(value: Any, folder: Path) -> Any:
    """Return the content of the file that a value names, as data if it is YAML or JSON; any other
    value unchanged."""
    if not isinstance(value, str) or not value.startswith(FILE):
        return value
    file = str(folder / value.removeprefix(FILE))
    if Path(file).suffix.lower() in CODE:
        leave_out("value", f"{value}: is made by code; write it as text")
        return None
    text = read_text(file)
    return parse_yaml(text, file)[1] if Path(file).suffix.lower() in DATA_ENDINGS else text


def _read_prompts(prompts: Any, folder: Path) -> dict[str, Any]:
    """Return the templates by their names. A text file may have several, with lines of --- between
    them."""
    named: dict[str, Any] = {}
    listed = [{"id": id, "label": label} for id, label in as_object(prompts).items()]
    listed = listed or ([prompts] if isinstance(prompts, str) else as_array(prompts))
    for number, prompt in enumerate(listed, 1):
        fields = as_object(prompt)
        source = str(fields.get("raw") or fields.get("id") or fields.get("file") or prompt)
        file = folder / source.removeprefix(FILE)
        # A prompt with a space or a brace is a text, not the name of a file.
        is_name = bool(file.suffix) and not re.search(r"[\s{}]", source)
        is_file = source.startswith(FILE) or is_name
        name = str(fields.get("label") or (file.stem if is_file else f"prompt {number}"))
        name = f"{name} ({number})" if name in named else name
        if is_file and file.suffix.lower().partition(":")[0] in CODE:
            leave_out("prompt", f"{source}: is made by code; write its text into a file")
            continue
        if is_file and file.suffix.lower() in DATA_ENDINGS:
            named[name] = {"file": str(file)}
            continue

        text = read_text(str(file)) if is_file else source
        parts = list(filter(str.strip, re.split(r"^---\s*$", text, flags=re.MULTILINE)))
        if len(parts) == 1:
            parts = [text]
        for place, part in enumerate(map(str.strip, parts), 1):
            if expression := _EXPRESSION.search(part):
                leave_out(
                    "expression",
                    f"{name}: {expression[0]} stays as it is; only names are filled in",
                )
            named[name if len(parts) == 1 else f"{name} {place}"] = part

    return named


def _read_providers(providers: Any) -> tuple[list[str], dict[str, Any]]:
    """Return the models by our names, and the settings that all of them have."""
    models: list[str] = []
    settings: list[dict[str, Any]] = []
    for provider in [providers] if isinstance(providers, str) else as_array(providers):
        fields = as_object(provider)
        id = str(fields.get("id") or (next(iter(fields)) if fields else provider))
        fields = as_object(fields.get(id)) or fields
        # The name of a model may have variables of the environment.
        id = os.path.expandvars(re.sub(r"\{\{\s*env\.(\w+)\s*\}\}", r"${\1}", id))
        name, *parts = id.split(":")
        parts = parts[1:] if len(parts) > 1 and parts[0] in FORMS else parts
        if name not in PROVIDER_NAMES or not parts or "${" in id:
            leave_out(
                "provider", f"{id}: name its model with --model, or its program with --target"
            )
            continue
        models.append(f"{PROVIDER_NAMES[name]}/{':'.join(parts)}")
        config = as_object(fields.get("config"))
        settings.append({SETTINGS[name]: config[name] for name in SETTINGS if name in config})
        others = [*omit(config, SETTINGS), *omit(fields, ("id", "config", "label"))]
        leave_out("field", f"{id}: a study takes no {', '.join(others)}", len(others))

    first_settings = settings[0] if settings else {}
    if any(other != first_settings for other in settings):
        leave_out(
            "setting", "providers differ in temperature or max_tokens, and models of a study do not"
        )
        first_settings = {}

    return list(dict.fromkeys(models)), first_settings


def _list_tests(tests: Any, folder: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the tests of a list, or of the files that it names. The columns of a table are
    variables."""
    if not tests:
        return
    listed = tests if is_array(tests) else [tests]

    for test in listed:
        if not isinstance(test, str):
            yield as_object(test)
            continue
        file = folder / test.removeprefix(FILE)
        if file.suffix.lower() in CODE or "://" in str(test.removeprefix(FILE)):
            leave_out("file of tests", f"{test}: is no file of data; write its tests as JSON lines")
        elif is_row_file(str(file)) and file.suffix.lower() not in DATA_ENDINGS:
            for _, row in read_rows(str(file), "test", is_text_column):
                checks = row.get("checks", [])
                row_checks = as_object(checks) or {"assert": checks}
                yield dict(row) if "vars" in row else {"vars": omit(row, ["checks"]), **row_checks}
        else:
            yield from _list_tests(
                as_array(_open_reference(f"{FILE}{file.name}", file.parent)), folder
            )


def _list_rows(
    test: Mapping[str, Any], default: Mapping[str, Any], name: str, folder: Path
) -> list[dict[str, Any]]:
    """Return a row for each combination of a test's variables."""
    own = _open_reference(test.get("vars"), folder)
    values = {**as_object(_open_reference(default.get("vars"), folder)), **as_object(own)}
    # A test has what `defaultTest` has, unless it has its own.
    fields = {**default, **test}
    options = as_object(default.get("options")) | as_object(test.get("options"))
    others = omit(fields, READ_OF_TESTS)
    leave_out("field", f"{name}: a row takes no {', '.join(others)}", len(others))

    checks: Any = _keep_checks(as_array(test.get("assert")), name, folder, of_row=True)
    if "threshold" in fields:
        checks = {"threshold": fields["threshold"], "assert": checks}
    extra = {"checks": checks} if checks else {}
    if test.get("description") and not any(column in values for column in TITLES):
        extra["name"] = test["description"]

    # A list means one row for each of its values, unless the test switches that off.
    is_split = options.get("disableVarExpansion") is not True
    lists = [value if is_array(value) and is_split else [value] for value in values.values()]
    rows: list[dict[str, Any]] = []
    for combination in itertools.product(*lists):
        texts = [_open_reference(value, folder) for value in combination]
        row = dict(zip(values, texts, strict=True))
        # As promptfoo does: a variable may show those before it, which are filled in already.
        for name, text in row.items():
            if isinstance(text, str):
                row[name] = fill(text, map_values(column_text, row))
        rows.append({**row, **extra})

    return rows


def _keep_checks(
    checks: Sequence[Any], where: str, folder: Path, *, of_row: bool = False
) -> list[Any]:
    """Return the checks that a study or a row can have, with the content of files of data and text
    instead of their names."""
    kept: list[Any] = []
    for check in checks:
        value = str(as_object(check).get("value"))
        if value.startswith(FILE) and value.endswith((*DATA_ENDINGS, ".txt", ".md")):
            check = {**as_object(check), "value": _open_reference(value, folder)}
        try:
            named = find_named([check])
        except (InputError, SettingsError) as error:
            leave_out("check", f"{where}: {str(error).removeprefix('rules.0: ')}")
            continue
        if named and of_row:
            leave_out("check", f"{where}: {named}: only the study can name files, code or judges")
            continue
        kept.append(check)

    return kept
