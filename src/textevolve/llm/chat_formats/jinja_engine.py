"""Jinja as chat templates use it, and the process that renders templates under limits.

The environment is the same as in transformers' `apply_chat_template`: the same sandbox, tags,
globals and filters, so the text is the same byte for byte. `sources` starts the process (`serve`),
which renders the requests from its standard input. The process runs this file alone, so the file
imports nothing else of this package.
"""

from __future__ import annotations

import contextlib
import json
import os
import pprint
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache, lru_cache
from multiprocessing.connection import Connection
from typing import Any

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
import jinja2.runtime
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace, generate_lorem_ipsum

try:
    import resource
except ImportError:  # Windows, where `sources` starts no such process
    resource = None

DONE = b"d"
REFUSED = b"r"
FAILED = b"f"
TOO_LONG = b"l"
NO_MEMORY = b"m"
"""The first byte of the process's reply, which tells the outcome: done, refused by the template,
failed, text too long, or out of memory. The rest is the rendered text or the error's message."""
LONGEST_REASON = 500


class TooLong(Exception):
    """The error that the rendered text is longer than the limit."""


class _GenerationTag(jinja2.ext.Extension):
    """The tag `{% generation %} ... {% endgeneration %}` around text that a model wrote; the tag is
    ignored and its content rendered."""

    tags = {"generation"}  # noqa: RUF012  a plain set, as jinja declares it

    def parse(self, parser: jinja2.parser.Parser) -> jinja2.nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        call = jinja2.nodes.CallBlock(self.call_method("_inside"), [], [], body)
        return call.set_lineno(line)

    def _inside(self, caller: jinja2.runtime.Macro) -> str:
        return caller()


class _DictGlobal:
    """A replacement for `dict` in templates: `dict(...)` and `dict.fromkeys(...)` work, but the
    type itself cannot be reached."""

    def __call__(self, *given: Any, **named: Any) -> dict[Any, Any]:
        return dict(*given, **named)

    def fromkeys(self, *given: Any) -> dict[Any, Any]:
        return dict.fromkeys(*given)


class _Namespace(Namespace):
    """A replacement for `namespace(...)` in templates, without names that begin with an
    underscore."""

    def __init__(*args: Any, **named: Any) -> None:  # `self` may be among the names
        values = dict(*args[1:], **named)
        for name in values:
            _check_attribute(name)
        Namespace.__init__(args[0], values)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_attribute(name)
        super().__setitem__(name, value)


def _check_attribute(name: Any) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.exceptions.SecurityError(f"a namespace cannot have the attribute {name!r}")


class _Refusal(jinja2.TemplateError):
    """An error that a template raises on purpose, by `raise_exception`."""


def _raise_exception(message: Any) -> None:
    raise _Refusal(str(message))


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


@cache
def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[_GenerationTag, jinja2.ext.loopcontrols],
    )
    environment.filters["tojson"] = _to_json
    names: dict[str, Any] = environment.globals
    names |= {
        "raise_exception": _raise_exception,
        "dict": _DictGlobal(),
        "namespace": _Namespace,
    }

    return environment


@lru_cache(maxsize=64)
def _compile(source: str) -> jinja2.Template:
    return _environment().from_string(source)


def render_source(
    source: str, values: Mapping[str, Any], messages: Sequence[Any], now: datetime, longest: int
) -> str:
    """Render a conversation by a template's source, and return the text. `longest`: the most
    characters.

    Raises:
        TooLong: the text would be longer than that.
        Exception: any error of a template that does not compile, fails or refuses the conversation.
    """
    template = _compile(source)
    context = template.new_context({"strftime_now": now.strftime, **values, "messages": messages})
    parts: list[str] = []

    for part in template.root_render_func(context):
        longest -= len(part)
        if longest < 0:
            raise TooLong
        parts.append(part)

    return "".join(parts)


def serve() -> None:
    """Render requests until standard input ends. The first message holds the limits. Each further
    one is JSON with the time, the source, the values and the messages. Each reply is the outcome's
    byte with a text."""
    assert sys.platform != "win32"
    requests = Connection(0, writable=False)
    answers = Connection(1, readable=False)
    limits = json.loads(requests.recv_bytes())
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # it may be ignored where this was started
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGPROF})
    _warm_up()
    _confine(limits["memory"])
    answers.send_bytes(DONE)

    while True:
        try:
            request = requests.recv_bytes()
        except EOFError:
            return

        signal.setitimer(signal.ITIMER_PROF, limits["seconds"])  # at its end the kernel kills
        kind, text = _answer(request, limits["text"])
        signal.setitimer(signal.ITIMER_PROF, 0)
        answers.send_bytes(kind + text.encode("utf-8", "surrogatepass"))


def _answer(request: bytes, longest: int) -> tuple[bytes, str]:
    try:
        now, source, values, messages = json.loads(request)
        return DONE, render_source(source, values, messages, datetime.fromisoformat(now), longest)
    except TooLong:
        return TOO_LONG, ""
    except MemoryError:
        return NO_MEMORY, ""
    except _Refusal as error:
        return REFUSED, _shorten(str(error))
    except Exception as error:  # noqa: BLE001  code of strangers runs here, and may raise anything
        return FAILED, _describe(error)


def _describe(error: Exception) -> str:
    line = error.lineno if isinstance(error, jinja2.TemplateSyntaxError) else None
    try:
        message = str(error)
    except Exception:  # noqa: BLE001  a number of too many digits has no text
        message = ""

    where = f"line {line}: " if line else ""
    return _shorten(f"{where}{type(error).__name__}: {message}")


def _shorten(text: str) -> str:
    words = " ".join(text[: 4 * LONGEST_REASON].split())
    plain = "".join(c if c.isprintable() else "\ufffd" for c in words)  # no codes for terminals
    if len(plain) > LONGEST_REASON:
        plain = plain[: LONGEST_REASON - 3] + "..."

    return plain


def _warm_up() -> None:
    """Load everything that would otherwise be read from files later, when opening files is
    forbidden."""
    time.localtime()
    pprint.pformat([generate_lorem_ipsum(1)])
    filters = "{{ 'a b' | wordwrap(1) | striptags }}"
    for source in (filters, "{{ 'a' | tojson(indent=1) }}{{ none.x.y }}", "{% if %}"):
        with contextlib.suppress(jinja2.TemplateError):
            render_source(source, {}, [], datetime.now(), 10)


def _confine(memory: int) -> None:
    """Forbid this process to create files, open sockets, write files and dump core, and allow it
    `memory` more bytes."""
    assert sys.platform != "win32"
    assert resource is not None
    kernel = "/proc/self/statm"
    if os.path.exists(kernel):
        with open(kernel, "rb") as statm:
            most = int(statm.read().split()[0]) * resource.getpagesize() + memory
        resource.setrlimit(resource.RLIMIT_AS, (most, most))

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))


if __name__ == "__main__":
    serve()
