"""What the plugin costs a session that judges nothing, and sessions in several processes."""

import json
import re
from pathlib import Path

import pytest

from textevolve.llm.testing import Answer

HEAVY = ("numpy", "sqlalchemy", "aiohttp", "pydantic", "jinja2", "rich", "typer", "yaml")


def test_a_session_that_judges_nothing_loads_and_makes_nothing(session, home, pytester):
    pytester.makeconftest(
        f"""
        import json, sys

        def pytest_unconfigure(config):
            roots = {{name.partition(".")[0] for name in sys.modules}}
            heavy = sorted(roots & set({HEAVY!r}))
            (config.rootpath / "loaded.json").write_text(json.dumps(heavy))
        """
    )
    text = """
        from textevolve.testing import assert_text, assert_texts

        def test_nothing():
            pass
    """
    ran = session(text, "-p", "no:xdist", apart=True)
    ran.assert_outcomes(passed=1)
    assert json.loads((pytester.path / "loaded.json").read_text()) == []
    assert not (home / "store.db").exists()


MANY = """
    import os
    import pytest
    from textevolve.testing import assert_text

    @pytest.mark.parametrize("number", range(8))
    def test_text(number):
        judge = (lambda case: 0.75) if number % 2 else None
        assert_text("Q", f"text {number}", judge=judge, min_score=0)
        if number == 3:
            os._exit(1)
"""


@pytest.mark.slow
def test_workers_of_xdist_make_one_run_and_a_crash_of_one_loses_nothing(session, server, kept):
    arguments = ("-n", "2")
    ran = session(MANY, *arguments, apart=True)
    ran.assert_outcomes(passed=7, failed=1)
    ((run, found),) = kept()
    expected = [f"test_answers.py::test_text[{number}]" for number in range(8)]
    assert sorted(one.case.id for one in found) == expected
    assert (run.status, run.n_cases) == ("finished", 8)
    assert server.calls == 4 * 3
    ran.stdout.fnmatch_lines(["8 assertions, 8 passed, mean score *", "12 calls asked, 0 from *"])


def test_each_worker_may_spend_its_share_and_every_option_is_described(pytester):
    from textevolve.testing.plugin import _read_options

    config = pytester.parseconfig(
        "-pno:langsmith_plugin", "-pno:schemathesis", "--textevolve-max-cost=3"
    )
    assert _read_options(config, 4).max_cost == 0.75
    (ours,) = [group for group in config._parser._groups if group.name == "textevolve"]
    names = [name for option in ours.options for name in option.names()]
    assert len(names) == 5
    assert [name for name in names if f"| `{name}" not in PAGE] == []


ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
EXAMPLE = (ROOT / "examples" / "test_answers.py").read_text(encoding="utf-8")


@pytest.mark.slow
def test_what_the_docs_show_passes(session, server):
    server.script = lambda body, _: None if "response_format" in body else Answer(yes=0.8)
    ran = session("\n".join([*BLOCKS, EXAMPLE]))
    assert ran.ret == pytest.ExitCode.OK


def test_a_store_that_is_a_folder_is_one_line(session, pytester):
    (pytester.path / "folder.db").mkdir()
    text = """
        from textevolve.testing import assert_text

        def test_one():
            assert_text("q", "a", judge="look:length", min_score=0)
    """
    ran = session(text, "--textevolve-store", "folder.db")
    ran.assert_outcomes(failed=1)
    shown = ran.stdout.str()
    assert "is a folder; name a file in it" in shown
    assert "contextlib.py" not in shown
    assert "sqlite.py" not in shown
