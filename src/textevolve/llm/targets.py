"""The description of an application under test: a service over HTTP, a function, or a program.

`target_calls` calls it; `studies.targeted` writes its requests and reads its answers.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeAlias, cast

from pydantic import Field, WithJsonSchema, model_validator

from textevolve.errors import InputError
from textevolve.llm.providers import split_address
from textevolve.reach import is_confined
from textevolve.rows import read_text
from textevolve.spec import Frozen
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
JOURNALED = "target:"
"""The beginning of the model names under which the journal stores calls of targets."""
_SECRET = re.compile("authorization|cookie|token|secret|key|password", re.IGNORECASE)


class Target(Frozen):
    """An application under test, which answers rows of data.

    Attributes:
        target: The address, function or program.
        name: The name in reports; empty: the value of `target`.
        body: A template of the JSON that is sent, with columns in braces; None: the whole row.
        headers: Additional headers; `env:NAME` stands for an environment variable.
        key_env: The environment variable with the key, which is sent as a bearer token.
        answer: The path of the output in the application's answer, such as `data.0.text`; empty: it
            is found by its usual names.
        contexts: The path of the retrieved passages.
        tool_calls: The path of the tool calls.
        steps: The path of the steps.
        usage: The path of the usage.
        concurrency: The most calls in flight; None: the default.
        timeout: The most seconds of one call; None: the default.
    """

    target: str = Field(min_length=1)
    name: str = ""
    body: dict[str, Any] | list[Any] | None = None
    headers: Mapping[str, str] = {}
    key_env: str = KEY
    answer: str = ""
    contexts: str = "contexts"
    tool_calls: str = "tool_calls"
    steps: str = "steps"
    usage: str = "usage"
    concurrency: int | None = Field(default=None, ge=1, le=4096)
    requests_per_minute: float | None = Field(default=None, gt=0)
    timeout: float | None = Field(default=None, gt=0)

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
        if not isinstance(fields, dict):
            raise InputError(f"{value}:1: must be a mapping with target and other fields")

        return {"name": Path(value).stem, **cast("dict[str, Any]", fields)}

    @model_validator(mode="after")
    def _usable(self) -> Target:
        form, _, command = self.target.partition(":")
        if form.lower() in ("http", "https"):
            parts = split_address(self.target.partition("?")[0])
            if parts is None:
                raise InputError(
                    f"target {self.target:.200}: is not an address of the form http(s)://HOST/PATH"
                )

            if parts.username is not None or parts.password is not None:
                raise InputError(
                    f"the address of {parts.hostname} has a user name or password; remove it, and"
                    f" set a key in {KEY}, or a header as env:NAME"
                )
        elif form not in ("python", "cmd") or not shlex.split(command):
            raise InputError(f"target {self.target:.200}: write {FORMS}")

        for header, value in self.headers.items():
            if _SECRET.search(header) and not value.startswith("env:"):
                raise InputError(
                    f"the value of the header {header} would be stored with the run: put it into"
                    " an environment variable NAME, and write env:NAME"
                )

        return self

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
