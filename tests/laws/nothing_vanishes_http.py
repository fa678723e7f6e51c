"""Requests to our own server, with a word in each part of a history and in each field."""

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from laws.nothing_vanishes_chats import CHATS, Message, say
from laws.nothing_vanishes_world import Evidence, Place, word
from textevolve.llm.testing import ScriptedServer

AGENT = "acme/ada"


@dataclass
class Service:
    """Our server, and the scripted server that it asks."""

    url: str
    server: ScriptedServer

    def post(self, path: str, body: Any) -> Evidence:
        """Send a request. A status from 400 on is a refusal, as exit code 2 is."""
        self.server.requests.clear()
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        kind = "application/x-ndjson" if isinstance(body, str) else "application/json"
        request = urllib.request.Request(self.url + path, data, {"Content-Type": kind})
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                text = response.read().decode()
                code = 0
        except urllib.error.HTTPError as error:
            with error:
                text = error.read().decode()
                code = 2 if error.code < 500 else 1
        requests = json.dumps(list(self.server.requests), ensure_ascii=False)
        # What an answer says beside its texts is what its client is told.
        message = text if code else json.dumps(list_notes(json.loads(text)), ensure_ascii=False)
        return Evidence(code, text, message, requests)

    def prepare(self) -> None:
        """Make a namespace with an agent and a collection."""
        embedder = f"{self.server.url}#scripted-embeddings"
        bodies = {
            "/v1/namespaces": {"name": "acme"},
            "/v1/namespaces/acme/agents": {"name": "ada", "persona": "You are Ada."},
            "/v1/namespaces/acme/collections": {"name": "docs", "embedder": embedder},
        }
        for path, body in bodies.items():
            created = self.post(path, body)
            assert created.code == 0, created.out


def list_notes(answer: Any) -> list[Any]:
    """Return what an answer says about itself: its metadata and its warnings."""
    if not isinstance(answer, dict):
        return []
    # The answers of decisions may have further fields after x_ alone.
    return [answer.get(name) for name in ("metadata", "x_left_out", "warnings", "warning")]


@contextmanager
def serve(folder: Path) -> Iterator[Service]:
    """Serve a model, a judge and an agent from a process of their own."""
    home = {name: str(folder) for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME")}
    environment = {name: value for name, value in os.environ.items() if "TEXTEVOLVE" not in name}
    environment |= {**home, "TEXTEVOLVE_STORE": str(folder / "s.db")}
    with ScriptedServer() as server:
        command = [sys.executable, "-m", "textevolve", "serve", "--port", "0", "--no-jobs"]
        command += ["--judge", "probe"]
        for model in ("scripted", "scripted-embeddings"):
            command += ["--model", f"{server.url}#{model}"]
        with subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        ) as process:
            try:
                service = Service(read_address(process), server)
                service.prepare()
                yield service
            finally:
                process.terminate()
                process.communicate()


def read_address(process: subprocess.Popen[bytes]) -> str:
    """Return the address that a server prints when it is ready."""
    lines = []
    for line in process.stdout or ():
        lines.append(line.decode())
        start = lines[-1].find("http://")
        if start >= 0:
            return lines[-1][start:].split()[0].rstrip("/.,;")
    raise AssertionError("".join(lines))


@dataclass(frozen=True)
class Request:
    """A request, and the places of its parts. MODEL in it stands for the scripted model."""

    path: str
    body: Any
    places: Mapping[str, Place]

    def send(self, service: Service) -> Evidence:
        """Send the request to our server."""
        body = json.dumps(self.body).replace("MODEL", f"{service.server.url}#scripted")
        return service.post(
            self.path, self.body if isinstance(self.body, str) else json.loads(body)
        )


LAST = say("user", f"Is it {word('last question')}?")
SERVED = {"an agent": AGENT, "a judge": "judge/probe", "a model": "MODEL"}
"""Whom a client of the server may ask."""
HISTORIES = (
    *("OpenAI", "OpenAI with function_call", "OpenAI with two speakers", "OpenAI with a picture"),
    *("OpenAI with audio", "OpenAI with a file", "OpenAI with a refusal"),
    *("OpenAI with reasoning_content",),
)
"""The chats that a client of OpenAI's wire sends as a history."""
FIELDS: Mapping[str, Any] = {
    "surprise": word("surprise"),
    "reasoning_effort": "low",
    "verbosity": "low",
    "logit_bias": {"50256": -100},
    "prediction": {"type": "content", "content": word("prediction")},
    "parallel_tool_calls": False,
    "modalities": ["text", "audio"],
    "functions": [{"name": "look_up", "parameters": {"type": "object"}}],
    "logprobs": True,
    "audio": {"voice": "alloy", "format": "wav"},
    "web_search_options": {},
    "n": 2,
}
"""Fields of OpenAI's requests, and one that nobody knows. Left out are `top_p`, penalties and
`store`, of which the page of the server says that agents ignore them."""
USED: Mapping[str, tuple[Any, str]] = {
    "temperature": (0.37, '"temperature": 0.37'),
    "seed": (4711, '"seed": 4711'),
    "max_tokens": (77, '"max_tokens": 77'),
    "max_completion_tokens": (78, '"max_tokens": 78'),
    "tools": (
        [{"type": "function", "function": {"name": word("tool"), "description": word("does")}}],
        word("does"),
    ),
    "response_format": (
        {
            "type": "json_schema",
            "json_schema": {
                "name": "a",
                "schema": {"type": "object", "properties": {word("field"): {"type": "string"}}},
            },
        },
        word("field"),
    ),
    "user": ("zz_user_zz", "zz_user_zz"),
}
"""Fields that an agent passes to its model, and what stands in the request then."""
MEMORY = {"text": "Ann has a boat."}
EVALUATE = {"kind": "evaluate", "cases": ["c.jsonl"], "judge": "probe"}
CASE = json.dumps({"input": "Why?", "output": "So."})
SURPRISE = {"surprise": word("surprise")}
UNKNOWN = {"an unknown field": Place(word("surprise"), ("surprise",))}
IN_ACME = "/v1/namespaces/acme"
BODIES: Mapping[str, tuple[str, Any]] = {
    "a study": ("/v1/studies", {**EVALUATE, **SURPRISE, "run": {"files": {"c.jsonl": CASE}}}),
    "the run of a study": ("/v1/studies", {**EVALUATE, "run": {"files": {}, **SURPRISE}}),
    "the limits of a study": ("/v1/studies", {**EVALUATE, "run": {"limits": {**SURPRISE}}}),
    "a namespace": ("/v1/namespaces", {"name": "beta", **SURPRISE}),
    "an agent": (f"{IN_ACME}/agents", {"name": "bo", "persona": "You are Bo.", **SURPRISE}),
    "the memory of an agent": (
        f"{IN_ACME}/agents",
        {"name": "bo", "persona": "You are Bo.", "memory": {"collections": ["docs"], **SURPRISE}},
    ),
    "a user": (f"{IN_ACME}/users", {"name": "ann", **SURPRISE}),
    "a collection": (
        f"{IN_ACME}/collections",
        {"name": "notes", "embedder": "MODEL-embeddings", **SURPRISE},
    ),
    "a memory": (f"{IN_ACME}/collections/docs/memories", {**MEMORY, **SURPRISE}),
    "an imported memory": (
        f"{IN_ACME}/collections/docs/memories/import",
        json.dumps({**MEMORY, **SURPRISE}) + "\n",
    ),
    "a search": (f"{IN_ACME}/collections/docs/memories/search", {"query": "boat", **SURPRISE}),
    "embeddings": ("/v1/embeddings", {"model": "MODEL", "input": "a", **SURPRISE}),
    "decisions": (
        "/v1/systemone",
        {
            "model": "judge/probe",
            "state": "Four.",
            **SURPRISE,
            "questions": {"right": {"type": "noul", "instructions": "Is it right?"}},
        },
    ),
    "responses of an agent": ("/v1/responses", {"model": AGENT, "input": "Hi.", **SURPRISE}),
}
"""Bodies with a field that nobody knows, for each route that takes one."""


def ask(model: str, messages: Any, **fields: Any) -> dict[str, Any]:
    """Return a chat completion's request that learns nothing."""
    # A model gets its request as it is, and would refuse the metadata of our agents.
    metadata = {"metadata": {"memory": "off"}} if model == AGENT else {}
    return {"model": model, "messages": messages, **metadata, **fields}


def list_requests() -> dict[str, Request]:
    """Return each request by its name."""
    path = "/v1/chat/completions"
    requests = {}
    for name, (route, body) in BODIES.items():
        requests[name] = Request(route, body, UNKNOWN)
    for served, model in SERVED.items():
        for chat in HISTORIES:
            messages: list[Message] = [*CHATS[chat].messages, LAST]
            places = {**CHATS[chat].places, "last question": Place(word("last question"))}
            # The refusal of one message refuses the request: nothing of it is lost.
            refusable = {name: part.also_named("messages.") for name, part in places.items()}
            requests[f"{served} / {chat}"] = Request(path, ask(model, messages), refusable)
    for served in ("an agent", "a judge"):
        for field, value in FIELDS.items():
            body = ask(SERVED[served], EXCHANGE, **{field: value})
            places = {"field": Place(f'"{field}": {json.dumps(value)}', (field,))}
            requests[f"{served} / {field}"] = Request(path, body, places)
    for field, (value, output) in USED.items():
        body = ask(AGENT, EXCHANGE, **{field: value})
        requests[f"an agent / {field}"] = Request(path, body, {"field": Place(output)})
    requests["an agent / a long history"] = list_long_history()
    requests["responses of an agent / items"] = list_items()
    return requests


EXCHANGE = [say("user", "Why?"), say("assistant", "So."), say("user", "And?")]


def list_long_history() -> Request:
    """Return a history that does not fit into a model's window."""
    turns = []
    for number in range(60):
        turns.append(say("user", f"{word(f'turn {number}')} {'and so on ' * 120}"))
        turns.append(say("assistant", "I see."))
    places = {
        "the first turn": Place(word("turn 0"), ("left out", "shortened", "cut")),
        "the last turn": Place(word("turn 59")),
    }
    return Request("/v1/chat/completions", ask(AGENT, [*turns, LAST]), places)


def list_items() -> Request:
    """Return a request of the Responses API with items of each kind."""
    items = [*CHATS["Responses"].messages, {"role": "user", "content": word("last question")}]
    places = {
        **CHATS["Responses"].places,
        "last question": Place(word("last question")),
        "instructions": Place(word("instructions")),
    }
    body = {"model": AGENT, "input": items, "instructions": word("instructions")}
    return Request("/v1/responses", {**body, "metadata": {"memory": "off"}}, places)
