"""Tests marked `guard` come in by public doors alone, so that rooms can be rebuilt behind them.

What a guard imports of the tests' own modules is held to the same, and so are scripts that it runs
in other processes.
"""

import ast
from importlib import import_module
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
DOORS = ("textevolve", "textevolve.cli", "textevolve.testing", "textevolve.llm.testing")
ENTRY = {"textevolve.cli": {"main"}}
"""What stands for `__all__`: the function of the command `textevolve`."""
WATCHING = "documented in `docs/node-eval.md`; nothing else watches code"
BEHIND = {
    "conftest.py": {
        "textevolve.store.repository.Store": "what other tests find stored; no guard takes it"
    },
    "guards/surfaces.py": {
        "textevolve.cli.app.app": "the tree of commands, whose help is walked",
        "textevolve.settings.ENVIRONMENT": "which variable stands for which setting",
        "textevolve.server.errors.as_api_error": "the status of errors that no request can cause",
    },
    "laws/test_meter.py": {
        "textevolve.server.identity.FLUSH_SECONDS": "what is spent is written at the end, so"
        " that no cell meets the server in between",
    },
    "laws/test_transparency.py": {"textevolve.node_eval.Monitor": WATCHING},
    "laws/transparency_world.py": dict.fromkeys(
        (
            "textevolve.node_eval.GENERATE",
            "textevolve.node_eval.Monitor",
            "textevolve.node_eval.NodeEvaluator",
            "textevolve.node_eval.SnapshotLimits",
            "textevolve.node_eval.arbiteros.ArbiterOSAlpha",
        ),
        WATCHING,
    ),
    "laws/transparency_clients.py": dict.fromkeys(
        (
            "textevolve.node_eval.GENERATE",
            "textevolve.node_eval.JudgeEvaluator",
            "textevolve.node_eval.Monitor",
        ),
        WATCHING,
    ),
    "laws/transparency_scripts.py": dict.fromkeys(
        (
            "textevolve.node_eval.ConsistencyEvaluator",
            "textevolve.node_eval.GENERATE",
            "textevolve.node_eval.Monitor",
        ),
        WATCHING,
    ),
    "postgres_server.py": {
        "textevolve.settings.StoreAddress": "the type of an address, which tests of the store use",
        "textevolve.settings.StoreLocation": "the type of an address, which tests of the store use",
        "textevolve.store.database.open_database": "the empty database that each test gets copied",
    },
    "test_resume.py": {
        "textevolve.settings.allow_file": "a settings file of the folder names the server",
    },
    "server/conftest.py": {
        "textevolve.server.app.create_app": "a server in a thread starts twenty times as fast",
        "textevolve.server.app.bind": "the same",
        "textevolve.server.app.make_server": "the same",
        "textevolve.server.app.run": "the same",
        "textevolve.server.app.url_of": "the same",
        "textevolve.server.options.ServerOptions": "the same",
        "textevolve.server.identity": "keys and budgets are remembered for a second, here less",
        "textevolve.jobs.scheduler": "it looks for due jobs every 5 seconds, a test for less long",
    },
}
"""What else is reached, with the reason why nothing else can."""


def modules_of_tests():
    return sorted(TESTS.rglob("*.py"))


def is_guard(path):
    """Whether any test of a module is marked as one."""
    return "mark.guard" in path.read_text("utf-8")


def names_behind(tree):
    """All names of the package that a module uses and that are behind its public doors."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                yield from behind(node.module, alias.name)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield from behind(alias.name, "")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from names_in_script(node.value)
        elif is_replacement(node):
            yield from behind(*ast.literal_eval(node.args[0]).rpartition(".")[::2])


def is_replacement(node):
    """`monkeypatch.setattr` with the name of what it replaces."""
    call = isinstance(node, ast.Call) and ast.unparse(node.func) == "monkeypatch.setattr"
    return call and len(node.args) == 2


def behind(module, name):
    if module.partition(".")[0] != "textevolve":
        return
    if module not in DOORS:
        yield f"{module}.{name}".rstrip(".")
    elif name and name not in public_names(module) and f"{module}.{name}" not in DOORS:
        yield f"{module}.{name}"


def public_names(module):
    return ENTRY.get(module) or set(import_module(module).__all__)


def names_in_script(text):
    """Those of a script for another process."""
    if "import" in text and "textevolve" in text and "\n" in text:
        try:
            yield from names_behind(ast.parse(text))
        except SyntaxError:
            return


def helpers_of(tree, path):
    """The tests' own modules that a module imports; pytest finds conftest files."""
    names = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    for name in filter(None, names):
        for folder in (path.parent, TESTS, TESTS / "memory", TESTS / "server"):
            if (found := folder.joinpath(*name.split(".")).with_suffix(".py")).exists():
                yield found
                break
    yield from (f / "conftest.py" for f in path.parents if (f / "conftest.py").exists())


GUARDS = [path for path in modules_of_tests() if is_guard(path)]


@pytest.mark.guard
def test_there_are_guards():
    assert {TESTS / "test_resume.py", TESTS / "guards" / "test_verbs.py"} <= set(GUARDS)
    script = "monkeypatch.setattr('textevolve.b.C', 1); 'import os\\nimport textevolve.a'"
    assert set(names_behind(ast.parse(script))) == {"textevolve.a", "textevolve.b.C"}


@pytest.mark.guard
def test_guards_come_in_by_public_doors_alone():
    waiting, seen = list(GUARDS), set()
    while waiting:
        module = waiting.pop()
        if module in seen:
            continue
        seen.add(module)
        tree = ast.parse(module.read_text("utf-8"))
        waiting.extend(helpers_of(tree, module))
        where = module.relative_to(TESTS).as_posix()
        assert set(names_behind(tree)) - BEHIND.get(where, {}).keys() == set(), where


@pytest.mark.guard
def test_no_reason_stands_for_what_nobody_reaches():
    for where, reasons in BEHIND.items():
        used = set(names_behind(ast.parse((TESTS / where).read_text("utf-8"))))
        assert reasons.keys() <= used, where
