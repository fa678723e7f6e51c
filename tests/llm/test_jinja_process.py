"""A template is code of a stranger: whatever it tries, it ends with an error and harms nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from parameter_sets import slow_but_first
from textevolve.errors import InputError
from textevolve.llm.chat_formats import sources
from textevolve.llm.chat_formats.sources import JinjaTemplate, TemplateLimits

USER = [{"role": "user", "content": "hello"}]
TIGHT = TemplateLimits(seconds=0.3, memory=96 << 20, text=1_000_000)


def render(source: str, limits: TemplateLimits = TIGHT) -> str:
    return JinjaTemplate(source, limits=limits).render(USER)


NESTED = "".join(f"{{% for {name} in range(100000) %}}" for name in "abcd") + 4 * "{% endfor %}"
HOSTILE = {
    "a large range": "{{ range(10**9) | list }}",
    "a large string": "{{ 'a' * 10**9 }}",
    "a large string, in two steps": "{% set n = 10**9 %}{{ ('a' * n) | length }}",
    "a large list": "{{ ([0] * 10**9) | length }}",
    "a large number": "{{ 10 ** (10 ** 10) }}",
    "a large number that is folded": "{{ 9**(9**(9**9)) }}",
    "nested loops": NESTED,
    "nested loops that write": NESTED.replace("{% endfor %}", "{{ a }}{% endfor %}", 1),
    "a loop that doubles": "{% set ns = namespace(x='ab') %}{% for i in range(60) %}"
    "{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x | length }}",
    "a list that doubles": "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}"
    "{% set ns.x = ns.x + ns.x %}{% endfor %}",
    "recursion": "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
    "recursion that branches": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}"
    "{% endmacro %}{{ f(90) }}",
    "a recursive loop": "{% for x in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}",
    "a deep value": "{% set ns = namespace(x=[]) %}{% for i in range(99999) %}"
    "{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}",
    "a deep value as JSON": "{% set ns = namespace(x=[]) %}{% for i in range(99999) %}"
    "{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x | tojson }}",
    "deep brackets": "{{ " + "(" * 50_000 + "1" + ")" * 50_000 + " }}",
    "deep branches": "{% if a %}" + "{% elif a %}" * 20_000 + "{% endif %}",
    "deep blocks": "{% for a in [1] %}" * 90 + "x" + "{% endfor %}" * 90,
    "much text": "{% for i in range(99999) %}{{ 'a' * 1000 }}{% endfor %}",
    "center": "{{ 'a' | center(10**9) }}",
    "ljust": "{{ 'a'.ljust(10**9) }}",
    "zfill": "{{ 'a'.zfill(10**9) }}",
    "expandtabs": "{{ '\t'.expandtabs(10**9) }}",
    "percent format": "{{ '%1000000000d' % 1 }}",
    "percent format with a star": "{{ '%*d' % (10**9, 1) }}",
    "the format filter": "{{ '%1000000000s' | format('a') }}",
    "format with a width": "{{ '{:>1000000000}'.format('a') }}",
    "format with a nested width": "{{ '{:>{}}'.format('a', 10**9) }}",
    "indent": "{{ ('a\n' * 1000) | indent(10**6) }}",
    "tojson indent": "{{ [[1]] | tojson(indent=10**9) }}",
    "replace": "{{ ('a' * 10**5).replace('a', 'b' * 10**5) }}",
    "join": "{{ ('a' * 10**5) | join('b' * 10**5) }}",
    "batch": "{{ [1] | batch(10**9, 0) | list }}",
    "slice": "{{ [1] | slice(10**9) | list }}",
    "lipsum": "{{ lipsum(n=10**9) }}",
    "a slow pattern": "{{ ('<' * 250000) | striptags }}{{ ('a@' * 99999) | urlize }}" * 20,
    "a sum of lists": "{{ ([[1] * 999] * 9999) | sum(start=[]) | length }}",
    "sorting": "{% for i in range(9999) %}{{ (range(99999) | list | sort)[:0] }}{% endfor %}",
    "the class": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "the class by a filter": "{{ (''|attr('__class__')).mro() }}",
    "the class by an item": "{{ ''['__class__']['__base__'] }}",
    "the class by a map": "{{ [''] | map(attribute='__class__') | map('attr', 'mro') | list }}",
    "the class by format": "{{ '{0.__class__.__base__.__subclasses__}'.format('') }}",
    "the class by format_map": "{{ '{x.__class__.__base__}'.format_map({'x': ''}) }}",
    "format by a filter": "{{ ('{0.__class__.__base__}' | attr('format'))('') }}",
    "globals of a function": "{{ raise_exception.__globals__['json'] }}",
    "globals of lipsum": "{{ lipsum.__globals__['os'].popen('id').read() }}",
    "globals of a cycler": "{{ cycler.__init__.__globals__ }}",
    "the namespace's class": "{{ namespace.__init__.__globals__ }}",
    "a private name": "{% set ns = namespace(__class__=1) %}",
    "dict's class": "{{ dict.__class__.__base__.__subclasses__() }}",
    "the moment's class": "{{ strftime_now.__self__.year }}",
    "a width for strftime": "{{ 'x' if strftime_now('%1000000000d' * 5) else nothing.here }}",
    "a macro's code": "{% macro m() %}{% endmacro %}{{ m._func.__code__ }}",
    "the frame of a generator": "{{ (messages | map('upper')).gi_frame.f_back.f_globals }}",
    "the template itself": "{{ self._TemplateReference__context.environment }}",
    "a change of the messages": "{{ messages.clear() }}",
    "an import": "{% import 'os' as os %}{{ os }}",
    "a file": "{% include '/etc/passwd' %}",
    "an extension": "{% extends '/etc/passwd' %}",
}


@pytest.mark.parametrize("source", slow_but_first(HOSTILE.values(), 15), ids=HOSTILE.keys())
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
    with pytest.raises(InputError, match=r"refuses these messages: a+\.\.\.$") as found:
        render("{{ raise_exception('a' * 10**6) }}")
    assert len(str(found.value)) < 600


def test_filters_that_import_modules_work() -> None:
    assert render("{{ 'a b' | wordwrap(1) }} {{ '<b>c</b>' | striptags }}") == "a\nb c"


def test_a_refusal_cannot_write_to_the_terminal() -> None:
    with pytest.raises(InputError) as refused:
        render("{{ raise_exception('a\\x1b]0;b\\x07 \\x1b[2J') }}")
    assert str(refused.value).isprintable()


def test_what_is_within_the_limits_is_rendered() -> None:
    assert len(render("{{ 'a' * 1000000 }}")) == 1_000_000
    assert len(render("{% for i in range(100000) %}{% endfor %}x" * 3)) == 3


def test_one_template_leaves_nothing_for_the_next() -> None:
    render("{% set x = 1 %}{% set ns = namespace(y=2) %}{{ x }}")
    assert render("{{ x is defined }}{{ ns is defined }}") == "FalseFalse"


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


@pytest.mark.slow
def test_a_process_that_gets_no_processor_is_given_up() -> None:
    impatient = TemplateLimits(patience=2)
    render("x", impatient)
    running = sources._running
    assert running is not None
    os.kill(running.process.pid, signal.SIGSTOP)
    with pytest.raises(InputError, match=r"has not ended after 2 s"):
        render("x", impatient)
    assert render("y", TIGHT) == "y"


def test_threads_share_the_process() -> None:
    found: dict[int, str] = {}

    def work(number: int) -> None:
        found[number] = render(f"{{{{ {number} }}}}" * 100)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: str(number) * 100 for number in range(20)}


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
