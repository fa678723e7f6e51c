"""How canaries are planted, and how the doors are looked at through which they could get out.

A *canary* is a word that begins with `kanari`, ends in `zz` and stands at one place only: in a
column of labels, in an environment variable, in the chat of another user. What a command sends,
prints and writes is its *evidence*: for each door the canaries that passed it. A door is the body
that a model reads (`body for judge`), a header or an address at a host, what is printed, the log,
the store's files, and each other file that was written.
"""

import base64
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from laws.studies import World, answer
from textevolve.llm.testing import Answer, ScriptedServer

CANARY = re.compile(r"kanari[a-y]+zz")
ROW = re.compile(r"kanarirow[a-y]zz")
WRITTEN = (
    *("report.json", "report.html", "report.md"),
    *("table.csv", "table.jsonl", "table.parquet", "spans.jsonl"),
)
"""The files that a watched run writes."""

OWN_KEY = "sk-kanariownkeyzz-0123456789abcdef"
OWN_HEADER = "kanariownheaderzz-0123456789"
VARIABLES: Mapping[str, str] = {
    "OWN_KEY": OWN_KEY,
    "OWN_HEADER": OWN_HEADER,
    "OTHER_KEY": "sk-kanariotherkeyzz-0123456789abcdef",
    "OTHER_HEADER": "kanariotherheaderzz-0123456789",
    "OPENAI_API_KEY": "sk-kanariopenaizz-0123456789abcdef",
    "ANTHROPIC_API_KEY": "sk-kanarianthropiczz-0123456789abcdef",
    "TEXTEVOLVE_API_KEY": "sk-kanariaddresskeyzz-0123456789abcdef",
    "TEXTEVOLVE_TARGET_KEY": "sk-kanaritargetkeyzz-0123456789abcdef",
    "TEXTEVOLVE_MEMORY_KEY": "sk-kanarimemorykeyzz-0123456789abcdef",
    "TEXTEVOLVE_SERVER_KEY": "te-kanariserverkeyzz-0123456789abcdef",
    "SHOP_PASSWORD": "kanarivariablezz",
}
"""The environment of each watched run. Only the first two belong to the host that it asks."""

SETTINGS = """\
traces = "spans.jsonl"

[providers.own]
base_url = "{own}"
key_env = "OWN_KEY"
headers = {{ x-own = "env:OWN_HEADER" }}

[providers.other]
base_url = "{other}"
key_env = "OTHER_KEY"
headers = {{ x-other = "env:OTHER_HEADER" }}

[retries]
attempts = 2
first = 0.01
longest = 0.01
"""


def canary(secret: str) -> str:
    """Return the word of a secret: `kanarilabelzz` for `label`."""
    letters = re.sub(r"[^a-y]", "", secret.lower())
    return f"kanari{letters}zz"


def row_canary(number: int) -> str:
    """Return the word of a row, which no request about another row may hold."""
    return f"kanarirow{chr(ord('a') + number)}zz"


def find_canaries(text: str) -> set[str]:
    """Return the canaries of a text, in any case."""
    return set(CANARY.findall(text.lower()))


@dataclass(frozen=True)
class Heard:
    """A request, as a host received it."""

    host: str
    path: str
    headers: Mapping[str, str]
    body: str

    @property
    def reader(self) -> str:
        """Who reads the body: a model by its name, or the path of an application."""
        path = self.path.partition("?")[0]
        try:
            document = json.loads(self.body)
        except ValueError:
            return path
        return str(document.get("model", path)) if isinstance(document, dict) else path

    def doors(self) -> Iterable[tuple[str, str]]:
        """Yield each door that the request passed, with the text that passed it."""
        yield f"body for {self.reader}", self.body
        yield f"address at {self.host}", self.path
        for name, value in self.headers.items():
            yield f"header {name} at {self.host}", value + _decode_basic(value)


def _decode_basic(value: str) -> str:
    """Return the user and the password of a header of basic authorization, else nothing."""
    scheme, _, code = value.partition(" ")
    return base64.b64decode(code).decode() if scheme == "Basic" else ""


class Host(ScriptedServer):
    """A scripted server that keeps each request whole. `replies` has paths that it answers in
    another way: as an application, a memory system, or with an error."""

    name = "own"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.heard: list[Heard] = []
        self.replies: dict[str, Callable[[str], Answer]] = {}

    def answer(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """Keep the request; answer by `replies` where its path begins so, else as a model."""
        self.heard.append(Heard(self.name, path, dict(headers), body.decode()))
        for beginning, reply in self.replies.items():
            if path.startswith(beginning):
                return reply(body.decode())
        return super().answer(method, path, headers, body)

    @property
    def root(self) -> str:
        """The address without the path of models."""
        return self.url.removesuffix("/v1")


@dataclass
class Evidence:
    """What came out of a command.

    Attributes:
        code: Its exit code.
        printed: What it printed.
        passed: The canaries that passed each door.
        requests: The reader and the canaries of each request, one by one.
    """

    code: int = 0
    printed: str = ""
    passed: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    requests: list[tuple[str, set[str]]] = field(default_factory=list)

    def add(self, door: str, text: str) -> None:
        """Note the canaries in what passed a door."""
        self.passed[door] |= find_canaries(text)

    def add_file(self, door: str, path: Path) -> None:
        """Note the canaries in the bytes of a file, if it is there."""
        if path.is_file():
            self.add(door, path.read_bytes().decode("latin-1"))

    def add_requests(self, *hosts: Host) -> None:
        """Note what hosts have heard."""
        for host in hosts:
            for heard in host.heard:
                self.requests.append((heard.reader, find_canaries(heard.body)))
                for door, text in heard.doors():
                    self.add(door, text)

    def add_folder(self, home: Path) -> None:
        """Note what the store's files and the other written files hold."""
        for path in sorted(home.glob("store.db*")):
            self.add_file("store", path)
        for name in WRITTEN:
            self.add_file(f"file {name}", home / name)

    def doors_of(self, word: str) -> set[str]:
        """Return the doors that a canary passed."""
        return {door for door, words in self.passed.items() if word in words}

    def bodies_of(self, word: str) -> set[str]:
        """Return who read a canary in the body of a request."""
        bodies = {door for door in self.doors_of(word) if door.startswith("body for ")}
        return {door.removeprefix("body for ") for door in bodies}


class Watched(World):
    """A world whose models are those of a provider in the settings, which has a key and a header
    of its own; a second provider is never asked."""

    other: Host

    @property
    def model(self) -> str:
        """The provider's model."""
        return "own/scripted"

    def watch(self, *commands: Iterable[str], log: str = "") -> Evidence:
        """Run commands; return the evidence of all. Its exit code is that of the first."""
        evidence = Evidence()
        for command in commands:
            outcome = self.cli(*command)
            evidence.code = evidence.code or outcome.code
            evidence.printed += outcome.out + outcome.err
        self.collect(evidence, log)
        return evidence

    def collect(self, evidence: Evidence, log: str = "") -> None:
        """Add what all doors show now."""
        evidence.add("printed", evidence.printed)
        evidence.add("log", log)
        evidence.add_requests(self.server, self.other)
        evidence.add_folder(self.home)


@contextmanager
def open_world(home: Path, cli: Callable[..., Any], environment: Any):
    """Serve two hosts, with settings that name both and an environment full of keys.
    `environment`: pytest's `monkeypatch`."""
    for name, value in VARIABLES.items():
        environment.setenv(name, value)
    own_host, other = Host(answer), Host(answer)
    own_host.tokenizes = True
    other.name = "other"
    with own_host, other:
        settings = SETTINGS.format(own=own_host.url, other=other.url)
        (home / "settings.toml").write_text(settings, encoding="utf-8")
        environment.setenv("TEXTEVOLVE_CONFIG", str(home / "settings.toml"))
        world = Watched(home, own_host, cli)
        world.other = other
        yield world


def think(body: Mapping[str, Any], number: int) -> Any:
    """Answer as the recipes want it, after a thought that nobody else may read."""
    reply = answer(body, number)
    if isinstance(reply, str):
        reply = Answer(text=reply)
    if reply is None or reply.status != 200 or body.get("logprobs"):
        return reply
    form = ("reasoning_content", "reasoning", "text")[number % 3]
    return replace(reply, reasoning=f"A thought: {canary('thought')}.", reasoning_field=form)
