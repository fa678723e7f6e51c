"""The plugin of pytest: options, fixtures, and what is said at the end of a session.

pytest loads it wherever TextEvolve is installed, so it loads nothing itself, and makes nothing
before a text is judged. With pytest-xdist each worker judges, and keeps what it finds in the store;
the controller hears with the reports of tests in which run that is, and tells of it as a whole.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from textevolve import testing
from textevolve.errors import TextEvolveError
from textevolve.testing.session import JudgingSession, SessionOptions, activate, find_session

ENDINGS = (".html", ".md", ".json", ".jsonl", ".csv", ".parquet")

OPTIONS = {
    "judge": "The judge of texts where a test names none, such as probe+rules.",
    "model": "The model that judges ask, such as openai/gpt-6-luna.",
    "min-score": "From which score a text passes where a test does not say it, from 0 to 1.",
    "max-cost": "Most US dollars that the judges of the session may spend.",
    "store": "The file, or the postgresql:// address, that keeps what was asked and answered.",
    "unjudged": "What becomes of a test whose text could not be judged: error or skip.",
}

_SESSION = pytest.StashKey[JudgingSession]()
_STACK = pytest.StashKey[ExitStack]()
_PLACES = pytest.StashKey[dict[str, int]]()
_TESTS = pytest.StashKey[pytest.Session]()
_CONCLUDED = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("textevolve", "texts judged by models (textevolve)")
    for name, help in OPTIONS.items():
        group.addoption(f"--textevolve-{name}", metavar=name.split("-")[-1].upper(), help=help)
        parser.addini(f"textevolve_{name.replace('-', '_')}", help, default=None)
    group.addoption(
        "--textevolve-report",
        action="append",
        default=[],
        metavar="FILE",
        help="Write what was judged to this file, by its ending: "
        + ", ".join(ENDINGS)
        + ". Repeatable.",
    )
    group.addoption(
        "--textevolve-no-network",
        action="store_true",
        help="Answer from the journal alone: what it does not know could not be judged.",
    )


def pytest_configure(config: pytest.Config) -> None:
    worker: dict[str, Any] | None = getattr(config, "workerinput", None)
    key = str(worker["testrunuid"]) if worker else os.urandom(16).hex()
    session = JudgingSession(
        key, _read_options(config, int(worker["workercount"]) if worker else 1)
    )
    for report in _reports(config):
        _check_report(report)
    stack = ExitStack()
    stack.enter_context(activate(session))
    config.stash[_SESSION], config.stash[_STACK] = session, stack


def _read_options(config: pytest.Config, workers: int) -> SessionOptions:
    """Each of `workers` processes may spend its share."""

    def read(name: str) -> str | None:
        given = config.getoption(f"--textevolve-{name}")
        return given or config.getini(f"textevolve_{name.replace('-', '_')}") or None

    cost, store, unjudged = _number(read, "max-cost"), read("store"), read("unjudged") or "error"
    if unjudged not in ("error", "skip"):
        raise pytest.UsageError(f"textevolve: unjudged must be error or skip, not '{unjudged}'")
    start = config.invocation_params.dir
    base = start if config.getoption("--textevolve-store") else config.rootpath
    return SessionOptions(
        start=start,
        judge=read("judge"),
        model=read("model"),
        min_score=_number(read, "min-score", 1.0),
        max_cost=None if cost is None else cost / workers,
        store=store if store is None or "://" in store else str(base / Path(store).expanduser()),
        offline=bool(config.getoption("--textevolve-no-network")),
        unjudged="skip" if unjudged == "skip" else "error",
    )


def _number(read: Any, name: str, most: float = float("inf")) -> float | None:
    text = read(name)
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= most or value == float("inf"):
        wanted = "0 or more" if most > 1 else "from 0 to 1"
        raise pytest.UsageError(f"textevolve: {name} must be a number, {wanted}, not '{text}'")
    return value


def _reports(config: pytest.Config) -> list[Path]:
    named: list[str] = config.getoption("--textevolve-report") or []
    return [Path(config.invocation_params.dir, name) for name in named]


def _check_report(path: Path) -> None:
    if path.suffix.lower() not in ENDINGS:
        raise pytest.UsageError(f"--textevolve-report: {path} must end in {', '.join(ENDINGS)}")
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise pytest.UsageError(f"--textevolve-report: {path} cannot be written")


def pytest_collection_finish(session: pytest.Session) -> None:
    places = {item.nodeid: place for place, item in enumerate(session.items)}
    session.config.stash[_PLACES] = places


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    place = item.config.stash[_PLACES].get(item.nodeid, 0)
    item.config.stash[_SESSION].begin_test(item.nodeid, place)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    report = yield
    if run := item.config.stash[_SESSION].run_id:
        report.textevolve_run = run
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if run := getattr(report, "textevolve_run", ""):
        find_session().run_id = run


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    session.config.stash[_TESTS] = session
    if hasattr(session.config, "workerinput"):
        session.config.stash[_SESSION].close()


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    lines, failure = _conclude(config)
    if lines or failure:
        terminalreporter.write_sep("=", "texts judged (textevolve)")
    for line in lines:
        terminalreporter.write_line(line)
    if failure:
        terminalreporter.write_line(f"error: {failure}", red=True)


def pytest_unconfigure(config: pytest.Config) -> None:
    try:
        _conclude(config)
    finally:
        config.stash.get(_STACK, ExitStack()).close()


def _conclude(config: pytest.Config) -> tuple[list[str], str]:
    """Close the session's run, once, and write its reports: what is to be said of it, and what went
    wrong, which the session's exit status tells too."""
    session = config.stash.get(_SESSION, None)
    if session is None or config.stash.get(_CONCLUDED, False) or hasattr(config, "workerinput"):
        return [], ""
    config.stash[_CONCLUDED] = True
    reports = [str(path) for path in _reports(config)]
    try:
        session.close()
        if not session.run_id:
            return [f"{name}: not written, for no text was judged" for name in reports], ""
        from textevolve.testing.messages import end_session

        return end_session(session, reports), ""
    except TextEvolveError as error:
        tests = config.stash.get(_TESTS, None)
        if tests is not None and tests.exitstatus == pytest.ExitCode.OK:
            tests.exitstatus = pytest.ExitCode.TESTS_FAILED
        return [], str(error)


@pytest.fixture(scope="session", name="judge_text")
def _judge_text() -> Any:
    """What a judge makes of a text: `judge_text(input, output, judge=..., rubric=...)`."""
    return testing.judge_text


@pytest.fixture(scope="session", name="assert_text")
def _assert_text() -> Any:
    """Assert that a text is good enough: `assert_text(input, output, min_score=0.7)`."""
    return testing.assert_text


@pytest.fixture(scope="session", name="assert_texts")
def _assert_texts() -> Any:
    """The same of many texts at once: `assert_texts([(input, output), ...], min_score=0.7)`."""
    return testing.assert_texts


@pytest.fixture(scope="session", name="ajudge_text")
def _ajudge_text() -> Any:
    """`judge_text` for async tests."""
    return testing.ajudge_text


@pytest.fixture(scope="session", name="aassert_text")
def _aassert_text() -> Any:
    """`assert_text` for async tests."""
    return testing.aassert_text


@pytest.fixture(scope="session", name="aassert_texts")
def _aassert_texts() -> Any:
    """`assert_texts` for async tests."""
    return testing.aassert_texts
