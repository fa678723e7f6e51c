"""The description of an application under test: a service over HTTP, a function, or a program.

`target_calls` calls it; `studies.targeted` writes its requests and reads its answers.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeAlias
from urllib.parse import parse_qsl, urlsplit

from pydantic import PositiveFloat, WithJsonSchema, model_validator

from textevolve.addresses import KEY_FORM
from textevolve.errors import InputError
from textevolve.json_texts import is_object
from textevolve.ledger import log
from textevolve.llm.providers import refuse_login, split_address
from textevolve.loading import late_re
from textevolve.reach import is_confined
from textevolve.rows import read_text
from textevolve.spec import Concurrency, Frozen, NonEmpty
from textevolve.texts.yaml_lines import parse_yaml
from textevolve.user_code import ENDINGS, OWN

COMMAND = "cmd:"
FORMS = "http(s)://HOST/PATH, python:MODULE.FUNCTION, cmd:PROGRAM, or a FILE.yaml of its fields"
VERSION_HELP = (
    "The version of your application, as any text; with another text its calls are repeated instead"
    " of reused. Default: empty."
)
KEY = "TEXTEVOLVE_TARGET_KEY"
"""The environment variable with the key for targets, which is sent to nothing else."""
EVENTS = "events"
"""The finish reason of an answer that came as server-sent events; its text is the list of
events."""
EVENT = "$event"
DATA = "$data"
"""The fields of an event that has a name, in the text of an answer: the name and the data."""
COOKIES = "$cookies"
"""The field with the cookies of a conversation, in a request and beside the data of an answer that
changes them."""
JOURNALED = "target:"
"""The beginning of the model names under which the journal stores calls of targets."""
_SECRET = late_re("authorization|cookie|token|secret|key|password", re.IGNORECASE)
_SECRET_WORDS = (
    *("token", "secret", "key", "apikey", "password", "passwd", "pwd", "passphrase", "auth"),
    *("authorization", "bearer", "credential", "credentials", "signature", "sig", "cookie"),
)
"""The last words of names of parameters, options and fields that hold a secret. Words such as
`tokens` or `keys` hold none: `max_tokens`, `--keys`."""
_OF_KEYS = frozenset(
    {"api", "access", "private", "service", "subscription", "functions", "account"}
)
"""Words in the name of a key that is secret."""
_KEY = late_re(rf"{KEY_FORM.pattern}|://[^\s/@:]+:[^\s/@]+@|\s(-u|--user)\s+[^\s:$]+:[^\s$]")
"""The forms of the keys of some providers, of tokens, and of a user's password, under any name."""
_ASSIGNED = late_re(
    r"(?:^|[\s?&;'\"])-{0,2}([A-Za-z][\w.-]*)(?:=|:\s*|\s+)(?:(?:Bearer|Basic)\s+)?([^\s&;'\"]+)"
)
"""A name and its value in a command, as an option, a variable or a header."""
_FIELD = late_re(r'"([\w.-]+)": "([^"{]+)"')
"""A name and its text in JSON, without placeholders."""


class Target(Frozen):
    """An application under test, which answers rows of data.

    Attributes:
        target: The address, function or program.
        name: The name in reports; empty: the value of `target`.
        body: A template of the JSON that is sent, with columns in braces; None: the whole row.
        headers: Additional headers; `env:NAME` stands for an environment variable.
        key_env: The environment variable with the key, which is sent as a bearer token; empty: no
            key.
        answer: The path of the output in the application's answer, such as `data.0.text`; empty: it
            is found by its usual names.
        contexts: The path of the retrieved passages.
        tool_calls: The path of the tool calls.
        steps: The path of the steps.
        session: The path of the id of a conversation, which the next turn gets as the column
            `session`; empty: there is none.
        usage: The path of the usage.
        concurrency: The most calls in flight, and the most conversations at once; None: the
            default.
        timeout: The most seconds of one call; None: the default.
    """

    target: NonEmpty
    name: str = ""
    body: dict[str, Any] | list[Any] | None = None
    headers: Mapping[str, str] = {}
    key_env: str = KEY
    answer: str = ""
    contexts: str = "contexts"
    tool_calls: str = "tool_calls"
    steps: str = "steps"
    session: str = ""
    usage: str = "usage"
    concurrency: Concurrency | None = None
    requests_per_minute: PositiveFloat | None = None
    timeout: PositiveFloat | None = None

    @model_validator(mode="before")
    @classmethod
    def _read(cls, value: Any) -> Any:
        """Convert an address, a function, a program or the name of a YAML file into the fields of a
        target."""
        if not isinstance(value, str):
            return value
        if not value.lower().endswith(ENDINGS) or value.startswith((COMMAND, OWN)):
            return {"target": value}
        _, fields = parse_yaml(read_text(value), value)
        if not is_object(fields):
            raise InputError(f"{value}:1: must be a mapping with target and other fields")

        return {"name": Path(value).stem, **fields}

    @model_validator(mode="after")
    def _usable(self) -> Target:
        form, _, command = self.target.partition(":")
        if form.lower() in ("http", "https"):
            parts = split_address(self.target.partition("?")[0])
            if parts is None:
                raise InputError(
                    f"target {self.target:.200}: is not an address of the form http(s)://HOST/PATH"
                )

            refuse_login(parts, f"set a key in {KEY}, or a header as env:NAME")
        elif form not in ("python", "cmd") or not shlex.split(command):
            raise InputError(f"target {self.target:.200}: write {FORMS}")

        for header, value in self.headers.items():
            is_secret = _SECRET.search(header) or _KEY.search(value)
            if is_secret and not value.startswith("env:"):
                raise InputError(
                    f"the value of the header {header} would be stored with the run: put it into"
                    " an environment variable NAME, and write env:NAME"
                )

        self._check_secrets()

        return self

    def _check_secrets(self) -> None:
        """Check that no key is written into the address, the command or the body.

        Raises:
            InputError: one is, so that reports and the store would show it.
        """
        if self.target.startswith(COMMAND):
            if secret := _find_secret(_ASSIGNED.findall(self.target), self.target):
                raise InputError(
                    f"the command of {self.name or 'the target'} has {secret}, which would be"
                    " stored with the run: let the program read it from an environment variable,"
                    " which it inherits"
                )
        elif secret := _find_secret(self.parameters, self.target):
            raise InputError(
                f"the address of {self.name or 'the target'} has {secret}, which would be stored"
                " with the run: put it into an environment variable NAME, and write env:NAME"
            )
        body = json.dumps(self.body)
        if secret := _find_secret(_FIELD.findall(body), body):
            raise InputError(
                f"the body of {self.label} has {secret}, which would be stored with the run: send"
                " it as a header env:NAME"
            )

    @property
    def parameters(self) -> list[tuple[str, str]]:
        """The names and values in the query of an address."""
        return parse_qsl(urlsplit(self.target).query, keep_blank_values=True)

    @property
    def label(self) -> str:
        """Return the name of the target in reports."""
        return self.name or self.target.removeprefix(OWN)

    @property
    def journal_name(self) -> str:
        """Return the model name under which the journal stores calls of this target."""
        return f"{JOURNALED}{self.target}"


NamedTarget: TypeAlias = Annotated[Target, WithJsonSchema({"type": ["string", "object"]})]
"""A target, or the address, function, program or file that names one."""


def _find_secret(values: Iterable[tuple[str, str]], text: str) -> str:
    """Return which of the named values is a secret, or that the text has a key; "" without any."""
    for name, value in values:
        words = re.split(r"[\W_]+", re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", name).lower())
        is_written = not re.match(r"env:|\$|\{", value)
        if is_written and words[-1] in _SECRET_WORDS and _may_be_secret(words, value):
            return f"the value of {name}"

    return "a key" if _KEY.search(text) else ""


def _may_be_secret(words: Sequence[str], value: str) -> bool:
    """Return whether a value may be a secret, by the words of its name. Keys that sort or group are
    words, as names of methods are; keys of an API have digits, or a name that says so."""
    if words[-1] not in ("key", "auth", "cookie"):
        return not value.isdecimal() or len(value) > 3
    is_named = not _OF_KEYS.isdisjoint(words)
    return len(value) >= 8 and (is_named or any(map(str.isdigit, value)))


def keep_common_key(targets: Sequence[Target]) -> tuple[Target, ...]:
    """Return the targets of a command; the common key goes to the first address alone, since a key
    belongs to one address. The others name a variable of their own with `key_env`."""
    hosts = [urlsplit(target.target).netloc for target in targets]
    shares = [host for host, target in zip(hosts, targets, strict=True) if target.key_env == KEY]
    owner = next(filter(None, shares), "")
    keyed_targets: list[Target] = []

    for host, target in zip(hosts, targets, strict=True):
        if target.key_env == KEY and host not in ("", owner):
            if os.environ.get(KEY, "").strip():
                log.warning(
                    "%s is sent to %s alone; for %s name a variable with key_env in a file of the"
                    " target",
                    KEY,
                    owner,
                    host,
                )
            target = target.model_copy(update={"key_env": ""})
        keyed_targets.append(target)

    return tuple(keyed_targets)


def check_targets(targets: Iterable[Target]) -> None:
    """Check that there are no targets if the current call serves a client of a server
    (`is_confined`).

    Raises:
        InputError: a client of a server names a target, which would make the server call addresses,
            load code or run programs.
    """
    for target in targets if is_confined() else ():
        raise InputError(
            f"target {target.label:.200}: a server calls no targets for its clients; run the study"
            " from the command line or Python"
        )
