"""What importing the package costs, and that its names are those it promises."""

import ast
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import textevolve

HEAVY = {
    *("openai", "numpy", "sqlalchemy", "google", "rich", "typer", "aiohttp", "pydantic"),
    *("jinja2", "yaml", "xllamacpp", "pyarrow", "keyring", "platformdirs"),
    *("fastapi", "starlette", "uvicorn"),
}


def loaded_by(statement):
    """The top-level modules that a fresh Python has loaded after the statement."""
    script = f"import sys, json; {statement}; print(json.dumps(sorted(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return {name.split(".")[0] for name in json.loads(ran.stdout.splitlines()[-1])}


def test_errors_and_nouns_load_nothing_heavy():
    assert loaded_by("from textevolve import Case, InputError, Memory, Usage") & HEAVY == set()


def test_the_command_line_draws_and_computes_only_when_it_has_to():
    heavy = HEAVY - {"rich", "typer"} | {"asyncio", "email", "http", "ssl"}
    assert loaded_by("import textevolve.cli.app") & heavy == set()


def test_the_public_functions_need_neither_the_local_server_nor_an_extra():
    loaded = loaded_by("from textevolve import evaluate")
    later = {"xllamacpp", "pyarrow", "keyring", "aiohttp", "openai", "rich", "sqlalchemy", "numpy"}
    assert loaded & later == set()


def test_a_store_loads_the_dialect_of_its_own_database_alone(tmp_path):
    """That of PostgreSQL has 19 modules, which take 35 ms of processor time."""
    script = f"""
import sys
from textevolve.store.repository import open_store
open_store({str(tmp_path / "one.db")!r}).close()
print([name for name in sys.modules if name.startswith("sqlalchemy.dialects.postgresql")])
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_no_pattern_counts_repetitions_of_all_letters():
    """pydantic's patterns know the letters of all scripts. 200 repetitions of them took 20 ms to
    compile, in each field that had the pattern; `max_length` says the same."""
    counted = re.compile(r"\\[wdsWDS][^]]*\]?\{\d*,?\d{2,}\}")
    found = []
    for file in Path(inspect.getfile(textevolve)).parent.rglob("*.py"):
        source = file.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(source)) if "pattern=" in source else ():
            is_pattern = isinstance(node, ast.keyword) and node.arg == "pattern"
            if is_pattern and isinstance(node.value, ast.Constant):
                found += [(file.name, node.value.value)] * bool(counted.search(node.value.value))
    assert found == []


LOAD_COMMANDS = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name in MISSING:
            raise ModuleNotFoundError(f"No module named {name!r}")

sys.meta_path.insert(0, Missing())
from textevolve.cli.app import load_command
from textevolve.cli.commands import COMMANDS

waiting = [*COMMANDS.items()]
while waiting:
    name, entry = waiting.pop()
    load_command(name, entry)
    waiting += entry.below.items()
"""
EXTRAS = (
    *("cronsim", "fastapi", "starlette", "uvicorn", "ray", "psycopg", "pgvector", "ladybug"),
    *(
        "mem0",
        "dateparser",
        "langgraph",
        "langchain_core",
        "onnxruntime",
        "tokenizers",
        "xllamacpp",
        "pyarrow",
    ),
    *("openpyxl", "keyring", "huggingface_hub", "opentelemetry.sdk", "gguf"),
)


@pytest.mark.slow
def test_every_command_loads_without_extras():
    """In the README's plain installation each command runs, or says which extra it needs."""
    script = f"MISSING = {EXTRAS!r}\n{LOAD_COMMANDS}"
    process = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert process.returncode == 0, process.stderr[-2000:]


@pytest.mark.parametrize(
    ("module", "needs"),
    [
        ("rows.writing", set()),
        ("report.html", {"jinja2"}),
        ("report.terminal", {"rich"}),
    ],
)
def test_a_renderer_loads_what_it_draws_with_and_nothing_else(module, needs):
    assert loaded_by(f"import textevolve.{module}") & HEAVY == needs


def test_the_names_for_type_checkers_are_the_names_that_are_loaded():
    """They stand in three places of the file: the imports, `_HOMES` and `__all__`."""
    tree = ast.parse(Path(textevolve.__file__).read_text(encoding="utf-8"))
    (for_checkers,) = (node for node in tree.body if isinstance(node, ast.If))
    imports = [node for node in for_checkers.body if isinstance(node, ast.ImportFrom)]
    typed = {
        alias.name: node.module.removeprefix("textevolve.")
        for node in imports
        if node.module and node.module.startswith("textevolve.")
        for alias in node.names
    }
    assert typed == textevolve._MODULES
    assert sorted(typed) == sorted(textevolve.__all__)
    assert textevolve.__all__ == sorted(textevolve.__all__)


def test_there_are_few_names_and_verbs_have_few_parameters():
    assert len(textevolve.__all__) <= 65
    names = [name for name in dir(textevolve.Client) if name[0] != "_"]
    verbs = list(filter(callable, [getattr(textevolve.Client, name) for name in names]))
    # `compare` has the most: what is compared, on which rows, and by what.
    assert max(len(inspect.signature(verb).parameters) for verb in verbs) <= 1 + 17
