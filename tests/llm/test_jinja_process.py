"""A template is code of a stranger: whatever it tries, it ends with an error and harms nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from textevolve.errors import InputError
from textevolve.llm.chat_formats import sources
from textevolve.llm.chat_formats.sources import JinjaTemplate, TemplateLimits

pytestmark = pytest.mark.slow

USER = [{"role": "user", "content": "hello"}]
TIGHT = TemplateLimits(seconds=0.3, memory=96 << 20, text=1_000_000)


def render(source: str, limits: TemplateLimits = TIGHT) -> str:
    return JinjaTemplate(source, limits=limits).render(USER)


NESTED = "".join(f"{{% for {name} in range(100000) %}}" for name in "abcd") + 4 * "{% endfor %}"
HOSTILE = {
    "recursion": "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
    "deep brackets": "{{ " + "(" * 50_000 + "1" + ")" * 50_000 + " }}",
    "a slow pattern": "{{ ('<' * 250000) | striptags }}{{ ('a@' * 99999) | urlize }}" * 20,
    "the class by format": "{{ '{0.__class__.__base__.__subclasses__}'.format('') }}",
    "globals of lipsum": "{{ lipsum.__globals__['os'].popen('id').read() }}",
    "a change of the messages": "{{ messages.clear() }}",
    "a file": "{% include '/etc/passwd' %}",
}


@pytest.mark.parametrize("source", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_template_ends_with_an_error(source: str) -> None:
    with pytest.raises(InputError, match=r"^the chat template"):
        render(source)
    assert render("{{ messages[0].content }}") == "hello"


def test_limits_say_which_they_are() -> None:
    with pytest.raises(InputError, match=r"more than 0\.3 s of processor time"):
        render(NESTED)
    with pytest.raises(InputError, match="more than 96 MiB of memory"):
        render("{{ 'a' * 10**9 }}")
    with pytest.raises(InputError, match="more than 1,000,000 characters"):
        render("{% for i in range(99999) %}{{ 'a' * 100 }}{% endfor %}")
    with pytest.raises(InputError, match="has 300,000 characters, and at most 262,144"):
        render("a" * 300_000)
    with pytest.raises(InputError, match=r"refuses these messages: a+\.\.\.$") as exception_info:
        render("{{ raise_exception('a' * 10**6) }}")
    assert len(str(exception_info.value)) < 600


def test_the_process_has_no_environment_and_cannot_open_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SECRET_KEY", "sk-1234")
    render("x", TemplateLimits(seconds=7))  # other limits: another process
    running = sources._running
    assert running is not None
    process = Path(f"/proc/{running.process.pid}")
    if not process.exists():
        pytest.skip("this system shows no processes")
    assert b"sk-1234" not in (process / "environ").read_bytes()
    limits = (process / "limits").read_text().splitlines()
    assert any(line.split()[:5] == ["Max", "open", "files", "3", "3"] for line in limits)


def test_a_process_that_was_killed_is_started_anew() -> None:
    render("x")
    first = sources._running
    assert first is not None
    os.kill(first.process.pid, signal.SIGKILL)
    first.process.wait()
    assert render("y") == "y"


def test_it_ends_with_us_and_a_fork_has_its_own() -> None:
    program = """
import os
from textevolve.llm.chat_formats import sources
from textevolve.llm.chat_formats.sources import JinjaTemplate
def render(): return JinjaTemplate("{{ messages[0].content }}").render([{"content": "hello"}])
render()
first = sources._running.process.pid
child = os.fork()
if child == 0:
    assert render() == "hello" and sources._running.process.pid != first
    raise SystemExit(0)
assert os.waitpid(child, 0)[1] == 0
assert render() == "hello" and sources._running.process.pid == first
print(first)
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, check=False, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    with pytest.raises(ProcessLookupError):
        os.kill(int(done.stdout), 0)
