"""The doors of the law *meter*, by which paid calls begin: tables of what is run, asked and read at
each, and a client of our server."""

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

from laws.meter_world import Bill
from laws.studies import WITHOUT_FILE

ASKS_NOTHING = {"rates": "it computes with labels that are there"}
"""Kinds that call no model, each with the reason."""


# Where results state a usage

Path = Sequence[str]
ALL = "*"
TOTALS: Mapping[str, Sequence[Path]] = {
    "evaluate": [(ALL, "usage")],
    "compare": [("variants", ALL, "usage"), ("judging",)],
    "compare-quants": [("variants", ALL, "usage"), ("judging",)],
    "calibrate": [("usage",)],
    "chain": [("usage",)],
    "agreement": [("summary", "judges", ALL, "usage")],
    "robustness": [("usage",)],
    "nodes": [(ALL, "results", "probe", "metadata", "usage")],
    "memory-eval": [("usage",)],
    "optimize": [("usage",)],
    "innovate": [("usage",)],
    "guide": [("usage",)],
    "create-memories": [("usage",)],
    "integrate-memories": [("gathered", "usage"), ("questions", ALL, "usage")],
    "read-corpus": [("documents", ALL, "usage")],
    "evolve-persona": [("made", "usage"), ("batches", ALL, "usage")],
}
"""Where the results of a kind state the usage of the whole run, as JSON."""
WITHOUT_TOTAL = {
    **ASKS_NOTHING,
    **WITHOUT_FILE,
    "ablation": "calls that several judges share count for each of them",
    "escalation": "calls that both judges share count for each of them",
    "fit": "its results are those of a formula",
    "profile": "its results are a profile",
    "summarize": "its results state calls alone",
}
"""Kinds whose results state no usage of the whole run, each with the reason."""


def read_results(text: str) -> Any:
    """Read results, which are one value or a value in each line."""
    try:
        return json.loads(text)
    except ValueError:
        return [json.loads(line) for line in text.splitlines()]


def find_values(value: Any, path: Path) -> list[Any]:
    """Return the values at a path, in which `ALL` stands for each item of a list."""
    values = [value]
    for name in path:
        if name == ALL:
            values = [item for items in values for item in items]
        else:
            values = [fields[name] for fields in values]
    return values


def read_usage(usage: Mapping[str, Any]) -> Bill:
    """Read a usage, whose tokens may be one sum."""
    prompt = usage.get("prompt_tokens", usage.get("tokens", 0))
    completion = usage.get("completion_tokens", 0)
    return Bill(usage["calls"], prompt, usage.get("cached_tokens", 0), completion, usage["cost"])


# Runs that ask two models

SECOND_MODELS: Mapping[str, Mapping[str, Any]] = {
    "evaluate": {"judge": "probe@MODEL-small"},
    "compare": {"judge": "probe@MODEL-small"},
    "compare-quants": {},
    "calibrate": {"editor": "MODEL-small"},
    "memory-eval": {"answer_model": "MODEL-small"},
    "optimize": {"judge_model": "MODEL-small"},
    "innovate": {"judge_model": "MODEL-small"},
    "agreement": {"judge": ["probe", "probe@MODEL-small"]},
    "robustness": {"judge": "cascade:0.9:probe,single@MODEL-small"},
    "nodes": {"judge": "probe@MODEL-small"},
    "escalation": {"then": "single+readout=verbalized@MODEL-small"},
    "fit": {"signals": "probe@MODEL-small,length"},
}
"""Fields that have a run ask two models."""

# Commands that ask models outside of runs

TEA = "FACT: Ann likes green tea."
NOTES = '{"text": "Ann drinks tea."}\n{"text": "Ben is tall."}\n'
COMMANDS: Mapping[str, Sequence[Sequence[str]]] = {
    "chat": [("chat", "ada", "--once", TEA, "-m", "MODEL")],
    "memories add": [("memories", "add", "chats", "Ann drinks tea.")],
    "memories search": [("memories", "search", "chats", "What does Ann drink?")],
    "memories import": [("memories", "import", "chats", "notes.jsonl")],
    "memories re-embed": [("memories", "re-embed", "chats", "--embedder", "MODEL-small")],
    "doctor": [("doctor", "MODEL")],
}
"""The commands that a cell runs, after a memory was added."""

# Batches

BATCHES = """\
[batches]
quiet = 0.01
poll = [0.01, 0.02]
[providers.metered]
base_url = "{url}"
keyless = true
batch_discount = 0.5
[prices."metered/scripted"]
input = 0.95367431640625
output = 1.9073486328125
"""
"""A provider whose batches cost half of the price."""

# Routes of the server

HELLO = [{"role": "user", "content": "FACT: Ann likes green tea."}]
JUDGED = [
    {"role": "user", "content": "What is the capital of Norway?"},
    {"role": "assistant", "content": "Oslo."},
]
QUESTIONS = {
    "state": {"input": "What is the capital of Norway?", "output": "Oslo."},
    "questions": {"right": {"type": "noul", "instructions": "Is it right?"}},
}
STUDY = {
    "kind": "evaluate",
    "cases": ["c.jsonl"],
    "judge": "probe",
    "run": {"namespace": "acme", "files": {"c.jsonl": '{"input": "q", "candidates": ["a"]}\n'}},
}
COMPLETIONS = "/v1/chat/completions"
MEMORIES = "/v1/namespaces/acme/collections/chats/memories"
STREAM = {"stream": True, "stream_options": {"include_usage": True}}


@dataclass(frozen=True)
class Request:
    """A request to our server. MODEL in its body stands for the model that is served."""

    path: str
    body: Mapping[str, Any] | bytes | None

    @property
    def remembers(self) -> bool:
        """Whether it asks an agent or works on memories of the namespace `acme`."""
        return "acme/" in f"{self.path} {self.body}"


ROUTES: Mapping[str, Request] = {
    "chat of a model": Request(COMPLETIONS, {"model": "MODEL", "messages": HELLO}),
    "stream of a model": Request(COMPLETIONS, {"model": "MODEL", "messages": HELLO} | STREAM),
    "stream without usage of a model": Request(
        COMPLETIONS, {"model": "MODEL", "messages": HELLO, "stream": True}
    ),
    "chat of a judge": Request(COMPLETIONS, {"model": "judge/probe", "messages": JUDGED}),
    "chat of an agent": Request(COMPLETIONS, {"model": "acme/plain", "messages": HELLO}),
    "stream of an agent": Request(COMPLETIONS, {"model": "acme/plain", "messages": HELLO} | STREAM),
    "chat of an agent that learns": Request(COMPLETIONS, {"model": "acme/ada", "messages": HELLO}),
    "response of a model": Request("/v1/responses", {"model": "MODEL", "input": "Hello"}),
    "response of an agent": Request("/v1/responses", {"model": "acme/plain", "input": "Hello"}),
    "embeddings": Request("/v1/embeddings", {"model": "MODEL", "input": ["a b", "c d"]}),
    "decisions of a judge": Request("/v1/systemone", {"model": "judge/probe"} | QUESTIONS),
    "decisions of a model": Request("/v1/systemone", {"model": "MODEL"} | QUESTIONS),
    "a memory is added": Request(MEMORIES, {"text": "Ann drinks tea."}),
    "memories are searched": Request(f"{MEMORIES}/search", {"query": "What does Ann drink?"}),
    "memories are imported": Request(f"{MEMORIES}/import", NOTES.encode()),
    "a page searches memories": Request("/memories/acme/chats?q=tea", None),
    "a study": Request("/v1/studies", STUDY),
}
FREE_ROUTES = (
    "/v1/namespaces",
    "/v1/namespaces/{namespace}/agents",
    "/v1/namespaces/{namespace}/agents/{name}/revert",
    "/v1/namespaces/{namespace}/collections",
    "/v1/namespaces/{namespace}/collections/{name}/revert",
    "/v1/namespaces/{namespace}/jobs/{name}/{action}",
    "/v1/namespaces/{namespace}/users",
    "/v1/namespaces/{namespace}/users/{name}/revert",
    "/v1/namespaces/{name}/revert",
    "/v1/studies/{run_id}/cancel",
    "/v1/studies/{run_id}/resume",
)
"""Routes that take a POST and ask no model by themselves: they change resources, or have a run
begin that is charged as each study is."""


@dataclass
class Tenant:
    """A server of ours with a namespace, and a key that may use this namespace alone."""

    url: str
    key: str
    model: str
    end: Callable[[], None]

    def send(self, request: Request) -> tuple[int, bytes]:
        """Send a request; return the status and the body of the answer."""
        with suppress(urllib.error.HTTPError), self.open(request) as answered:
            return answered.status, answered.read()
        return 400, b"{}"

    def open(self, request: Request) -> Any:
        """Open the answer to a request."""
        body, headers = self.write(request)
        sent = urllib.request.Request(f"{self.url}{request.path}", body, headers)
        return urllib.request.urlopen(sent, timeout=60)

    def write(self, request: Request) -> tuple[bytes | None, dict[str, str]]:
        """Return the body and the headers of a request."""
        headers = {"Authorization": f"Bearer {self.key}"}
        body = request.body
        if body is None:
            return None, headers
        if isinstance(body, bytes):
            return body, {**headers, "Content-Type": "application/x-ndjson"}
        text = json.dumps(body).replace("MODEL", self.model)
        return text.encode(), {**headers, "Content-Type": "application/json"}

    @contextmanager
    def hang_up(self, request: Request) -> Generator[None]:
        """Send a request within the block, and close the connection at its end."""
        body, headers = self.write(request)
        with closing(HTTPConnection(urlsplit(self.url).netloc, timeout=60)) as connection:
            method = "GET" if body is None else "POST"
            connection.request(method, request.path, body, headers)
            yield

    def wait_for_study(self, started: bytes) -> None:
        """Read the events of a study to its end."""
        run = json.loads(started).get("id", "none")
        self.send(Request(f"/v1/studies/{run}/events", None))


HANGS_UP = (
    "chat of a model",
    "stream of a model",
    "chat of a judge",
    "stream of an agent",
    "response of an agent",
    "embeddings",
    "decisions of a judge",
    "memories are searched",
    "a page searches memories",
)
"""One route of each kind of answer. A study goes on without its client."""
