"""The options of a server: the judges and models that it serves, its address, and its limits.

The command line makes its options from these fields. The module does not import the web framework.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import ClassVar

from pydantic import field_validator

from textevolve.addresses import is_loopback
from textevolve.errors import InputError, SettingsError
from textevolve.judges.judge import SeveralJudges
from textevolve.spec import Frozen, NonEmpty, Several, option

SHORTEST_KEY = 24
"""The fewest characters of the operator's own key, if other machines can reach the server."""


class ServerOptions(Frozen):
    """Answer other programs over HTTP: OpenAI's API (chats, responses, embeddings, models),
    studies, the decision API (POST /v1/systemone), and pages for browsers.

    Agents, judges and models are served. Clients name one of them as their model; jev-latest is the
    first judge, or without judges the first model.
    """

    judge: SeveralJudges = option(
        (), "A judge to serve, as the model judge/JUDGE. Repeatable.", metavar="JUDGE"
    )
    model: Several = option(
        (),
        "A model to serve by its name; the first is also the default model of judges. Repeatable.",
        metavar="MODEL",
    )
    alias: Mapping[str, str] = option(
        {},
        "Another name for a served model, such as jev-latest=judge/probe+rules. Repeatable.",
        metavar="NAME=SERVED",
    )
    host: NonEmpty = option("127.0.0.1", "The address to listen on.")
    port: int = option(8400, "The port to listen on; 0 is any free one.", ge=0, le=65535)
    keys: bool = option(
        False,
        "Require a key from clients on this machine, too; clients on other machines always need"
        " one. `textevolve config keys` creates keys.",
    )
    key_env: str | None = option(
        None,
        "The name of an environment variable whose value is a key with all scopes.",
        metavar="NAME",
    )
    allow_host: Several = option(
        (),
        "A host name that browsers may use for this server, such as judge.example. Repeatable.",
        metavar="NAME",
    )
    root_path: str = option(
        "",
        "The path below which a proxy publishes the server, such as /te; links, redirects and"
        " cookies stay below it.",
        metavar="PATH",
    )
    time_limit: float = option(600, "The most seconds that a request may take.", gt=0)
    max_cost: float | None = option(None, "Stop calling models at this cost, in dollars.")
    max_tokens: int | None = option(None, "Stop calling models at this many tokens.")
    max_calls: int | None = option(None, "Stop calling models at this many calls.")
    studies: int = option(
        4, "The most studies of clients that run at the same time.", ge=1, le=1000
    )
    allow_model: Several = option(
        (),
        "A model that clients' studies may use in addition to the served ones, as a name or a"
        " pattern such as openai/*. Repeatable.",
        metavar="MODEL",
    )
    allow_code: Several = option(
        (),
        "Code that clients' studies may name: MODULE:NAME, or a plugin of another package."
        " Repeatable.",
        metavar="NAME",
    )
    allow_address: Several = option(
        (),
        "An address, or a data set of the hub, that clients' studies may name, exactly or as a"
        " pattern such as hf:OWNER/*. Repeatable.",
        metavar="ADDRESS",
    )
    jobs: bool = option(
        True, "Run scheduled jobs when they are due; --no-jobs leaves them to another scheduler."
    )
    store: str | None = option(
        None, "The store: a file or a postgresql:// address.", metavar="FILE"
    )

    @field_validator("root_path")
    @classmethod
    def _check_root(cls, text: str) -> str:
        root = read_root(text)
        if root is None:
            raise ValueError(
                "root_path: write a path of letters, digits and -._~ in ASCII, such as /te or"
                " /tools/te"
            )
        first = root[1:].partition("/")[0]
        if first in OWN_PATHS:
            raise ValueError(f"root_path: the server has paths below /{first}; choose another one")
        return root

    serves: ClassVar[bool] = True
    """True if the server answers with models and judges; False if it only shows pages."""

    @property
    def resumes(self) -> bool:
        """Return whether unfinished runs of other servers on the store are resumed, and jobs run.
        A server that a client starts and stops works only on the runs of that client."""
        return True


class McpOptions(ServerOptions):
    """Answer MCP clients, such as coding agents: judge texts, run and read studies, search
    memories, as tools.

    The client starts this command and talks to it over standard input and output. Its rights are
    those of an HTTP client on this machine: it reads no files, and names no code and no addresses
    that the options do not allow.
    """

    http: bool = option(
        False,
        "Listen at http://HOST:PORT/v1/mcp (streamable HTTP) instead, with all other paths of"
        " `textevolve serve`.",
    )

    @property
    def resumes(self) -> bool:
        return self.http


class ViewOptions(ServerOptions):
    """Look at what a store keeps, in a browser on this machine; no model is needed."""

    serves: ClassVar[bool] = False


OWN_PATHS = (
    *("agents", "chat", "compare", "health", "jobs", "labelling", "login", "logout", "memories"),
    *("openapi.json", "runs", "static", "v1"),
)
"""The first parts of the server's own paths. A proxy may remove the path below which it publishes
the server, or keep it, so that path must differ from all of these."""
_ROOT = re.compile(r"(/[A-Za-z0-9._~-]+)*", re.ASCII)


def read_root(text: str) -> str | None:
    """Return the path below which a proxy publishes the server, without a slash at the end; empty
    for the root of the host, None if it is no path. Proxies one behind another write theirs one
    after another, the outermost first, with commas."""
    root = "".join(f"/{part.strip().strip('/')}" for part in text.split(",")).rstrip("/")
    is_path = _ROOT.fullmatch(root) and not {".", ".."} & set(root.split("/"))
    return root if is_path else None


def find_client_key(options: ServerOptions) -> str | None:
    """Return the key from the environment variable of --key-env; None without --key-env.

    Raises:
        SettingsError: the variable is empty, or other machines can reach the server and its value
            is short enough to be guessed.
    """
    if options.key_env is None:
        return None
    key = os.environ.get(options.key_env, "").strip()
    if not key:
        raise SettingsError(f"--key-env: the environment variable {options.key_env} is empty")
    if len(key) < SHORTEST_KEY and not is_here(options.host):
        raise SettingsError(
            f"--key-env {options.key_env}: a key of fewer than {SHORTEST_KEY} characters could be"
            " guessed from other machines; take a longer one, such as `openssl rand -hex 32` makes"
        )

    return key


def is_here(host: str) -> bool:
    """Check whether an address, with or without a port, is a loopback address."""
    try:
        bracketed = f"[{host}]" if host.count(":") > 1 and "[" not in host else host
        return is_loopback(f"//{bracketed}", listening=True)
    except ValueError:
        return False


def check_aliases(aliases: Mapping[str, str], served: Mapping[str, object]) -> None:
    """Check that each alias stands for a served name and is no served name itself.

    Raises:
        InputError: an alias stands for no served name, or is itself the name of a model or judge.
    """
    for alias, name in aliases.items():
        if name not in served:
            raise InputError(
                f"--alias {alias}={name}: the server has no such model; there are:"
                f" {', '.join(served) or 'none'}"
            )

        if alias in served:
            raise InputError(
                f"--alias {alias}={name}: {alias} is already the name of a served model"
            )
