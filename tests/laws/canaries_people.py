"""Whose words are whose: tenants of a server, users of an agent, and what was deleted.

Two namespaces, `acme` and `beta`, hold the same things. What acme's hold has canaries, and beta's
key asks for all of it. Users talk with one agent, each in a chat of his own. What is deleted is
planted, seen, deleted and looked for.
"""

import json
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from laws.canaries_world import Evidence, Host, Watched, canary, find_canaries
from laws.studies import write_rows

Cli = Callable[..., Any]
QUESTION = canary("question")


def remember(body: Mapping[str, Any], number: int) -> Any:
    """Answer as a model that remembers the last canary that it reads."""
    messages = body.get("messages") or [{"content": ""}]
    last = str(messages[-1]["content"])
    if "facts" in str(body.get("response_format", "")):
        return json.dumps({"facts": _facts(re.findall(r"Kanari[a-y]+zz", last))})
    return None if body.get("response_format") or body.get("logprobs") else "I hear you."


def _facts(names: list[str]) -> list[dict[str, Any]]:
    fact = {"turn": 1, "status": "true", "importance": 8, "since": ""}
    return [{**fact, "fact": f"Ann has met {name}."} for name in names[-1:]]


def name_of(secret: str) -> str:
    """Return the canary of a secret as a name, with a capital."""
    return canary(secret).capitalize()


# Tenants

SPACES = ("acme", "beta")
THINGS = ("namespace", "collection", "persona", "user", "memory", "job", "study", "case", "chat")
"""What a namespace holds that has a canary."""


def word_of(thing: str, space: str = "acme") -> str:
    """Return the canary in a thing of a namespace."""
    return canary(f"{space} {thing}")


@dataclass(frozen=True)
class Route:
    """A request for something of acme's.

    Attributes:
        path: The path, with the names of acme's things.
        thing: What acme's own key must see there, or nothing.
        body: The body of a change.
    """

    path: str
    thing: str = ""
    body: Mapping[str, Any] | None = None


def chat_body(model: str, text: str = "Whom have I met?") -> dict[str, Any]:
    """Return the body of a chat with one message."""
    return {"model": model, "messages": [{"role": "user", "content": text}]}


def put_ids(path: str, ids: Mapping[str, str]) -> str:
    """Put ids into a path in the place of their names."""
    for name, value in ids.items():
        path = path.replace(name, value)
    return path


def id_of_task(listed: str) -> str:
    """Return the id of the task that `labels list --json` shows."""
    return json.loads(listed.splitlines()[0])["id"]


SPACE = "/v1/namespaces/acme"
MEMORIES = f"{SPACE}/collections/notes/memories"
SLASHED = "daily/first"
"""The name of a run of acme's, which the page of runs reads as a path."""
ROUTES: Mapping[str, Route] = {
    "GET /v1/studies": Route("/v1/studies", "study"),
    "GET /v1/studies/{run_id}": Route("/v1/studies/RUN", "study"),
    "GET /v1/studies/{run_id}/records": Route("/v1/studies/RUN/records", "case"),
    "GET /v1/studies/{run_id}/report": Route("/v1/studies/RUN/report?format=jsonl", "case"),
    "GET /v1/studies/{run_id}/events": Route("/v1/studies/RUN/events", "case"),
    "POST /v1/studies/{run_id}/cancel": Route("/v1/studies/RUN/cancel", body={}),
    "POST /v1/studies/{run_id}/resume": Route("/v1/studies/RUN/resume", body={}),
    "DELETE /v1/studies/{run_id}": Route("/v1/studies/RUN"),
    "GET /v1/models": Route("/v1/models"),
    "GET /v1/models/{name:path}": Route("/v1/models/acme/bot"),
    "POST /v1/chat/completions": Route("/v1/chat/completions", body=chat_body("acme/bot")),
    "POST /v1/responses": Route("/v1/responses", body={"model": "acme/bot", "input": "Whom?"}),
    "GET /v1/namespaces": Route("/v1/namespaces", "namespace"),
    "GET /v1/namespaces/{name}": Route(SPACE, "namespace"),
    "PATCH /v1/namespaces/{name}": Route(SPACE, body={"description": "Mine."}),
    "DELETE /v1/namespaces/{name}": Route(SPACE),
    "GET /v1/namespaces/{name}/versions": Route(f"{SPACE}/versions", "namespace"),
    "POST /v1/namespaces/{name}/revert": Route(f"{SPACE}/revert", body={"version": 1}),
    "GET /v1/namespaces/{namespace}/jobs": Route(f"{SPACE}/jobs", "job"),
    "GET /v1/namespaces/{namespace}/jobs/{name}": Route(f"{SPACE}/jobs/nightly", "job"),
    "DELETE /v1/namespaces/{namespace}/jobs/{name}": Route(f"{SPACE}/jobs/nightly"),
    "POST /v1/namespaces/{namespace}/jobs/{name}/{action}": Route(
        f"{SPACE}/jobs/nightly/run", body={}
    ),
    **{
        f"{method} /v1/namespaces/{{namespace}}/{kind}{end}": Route(
            f"{SPACE}/{kind}{end.replace('{name}', name)}", thing, body
        )
        for kind, name, seen in (
            ("agents", "bot", "persona"),
            ("collections", "notes", "collection"),
            ("users", "eve", "user"),
        )
        for method, end, thing, body in (
            ("GET", "", seen, None),
            ("POST", "", "", {"name": "mine"}),
            ("GET", "/{name}", seen, None),
            ("PATCH", "/{name}", "", {"description": "Mine."}),
            ("DELETE", "/{name}", "", None),
            ("GET", "/{name}/versions", seen, None),
            ("POST", "/{name}/revert", "", {"version": 1}),
        )
    },
    **{
        f"{method} /v1/namespaces/{{namespace}}/collections/{{collection}}/memories{end}": Route(
            f"{MEMORIES}{end.replace('{id}', 'MEMORY')}", thing, body
        )
        for method, end, thing, body in (
            ("GET", "", "memory", None),
            ("POST", "", "", {"text": "Ann has met nobody."}),
            ("POST", "/search", "memory", {"query": "Whom has Ann met?"}),
            ("POST", "/import", "", {}),
            ("GET", "/audit", "", None),
            ("GET", "/{id}", "memory", None),
            ("GET", "/{id}/history", "memory", None),
            ("DELETE", "/{id}", "", None),
        )
    },
    "GET /runs": Route("/runs", "study"),
    "GET /runs/spending": Route("/runs/spending?run=RUN"),
    "GET /runs/{run_ref}": Route("/runs/RUN", "case"),
    "GET /runs/{run_name:path}": Route(f"/runs/{SLASHED}", "case"),
    "GET /runs/{run_ref}/rows": Route("/runs/RUN/rows", "case"),
    "GET /runs/{run_ref}/row": Route("/runs/RUN/row"),
    "GET /runs/{run_ref}/cases/{number}": Route("/runs/RUN/cases/1", "case"),
    "GET /runs/{run_ref}/standing": Route("/runs/RUN/standing"),
    "GET /runs/{run_ref}/results": Route("/runs/RUN/results"),
    "GET /runs/{run_ref}/history": Route("/runs/RUN/history"),
    "GET /runs/{run_ref}/totals": Route("/runs/RUN/totals"),
    "GET /runs/{run_ref}/calls": Route("/runs/RUN/calls", "study"),
    "GET /runs/{run_ref}/report": Route("/runs/RUN/report", "case"),
    "GET /compare": Route("/compare?first=RUN&second=RUN"),
    "GET /agents": Route("/agents", "persona"),
    "GET /agents/{namespace}/collections/counts": Route("/agents/acme/collections/counts"),
    "GET /agents/{namespace}/{name}": Route("/agents/acme/bot", "persona"),
    "GET /chat/{namespace}/{name}": Route("/chat/acme/bot", "chat"),
    "GET /memories/{namespace}/{collection}": Route("/memories/acme/notes", "memory"),
    "GET /memories/{namespace}/{collection}/{id}": Route("/memories/acme/notes/MEMORY", "memory"),
    "GET /jobs": Route("/jobs"),
    "GET /jobs/{namespace}/{name}": Route("/jobs/acme/nightly", "job"),
    "GET /labelling": Route("/labelling"),
    "GET /labelling/{id}": Route("/labelling/TASK", "task"),
}
"""What a key limited to another namespace asks for, by the methods and paths of the server."""
COMMON_ROUTES: Mapping[str, str] = {
    "GET /openapi.json": "the same for all",
    "GET /v1/kinds": "the same for all",
    "GET /health": "the same for all",
    "GET /": "leads to the runs",
    "GET /login": "the same for all",
    "POST /login": "takes a key",
    "POST /logout": "ends the caller's own session",
    "POST /v1/namespaces": "makes a new one",
    "POST /v1/studies": "names no thing of a namespace in its path",
    "POST /v1/embeddings": "asks a served model",
    "POST /v1/systemone": "asks a served judge",
    "POST /labelling/name": "is the caller's own name",
    "POST /labelling/{id}": "is a form of the page that is asked for",
}
"""Routes that hold nothing of a namespace, each with the reason."""


@dataclass(frozen=True)
class Reply:
    """What a caller got for a request."""

    status: int
    text: str

    @property
    def canaries(self) -> set[str]:
        """The canaries in it."""
        return find_canaries(self.text)


def request(
    url: str, key: str, body: Mapping[str, Any] | None = None, method: str | None = None
) -> Reply:
    """Send a request with a bearer key."""
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    message = urllib.request.Request(url, data, headers, method=method)
    try:
        with urllib.request.urlopen(message, timeout=30) as response:
            return Reply(response.status, response.read().decode("utf-8", "replace"))
    except urllib.error.HTTPError as error:
        with error:
            return Reply(error.code, error.read().decode("utf-8", "replace"))


def make_key(cli: Cli, name: str, *options: str) -> str:
    """Return a new key for a server."""
    scopes = ("--scope", "read", "--scope", "run", "--scope", "label", "--scope", "admin")
    outcome = cli("config", "keys", "add", name, *scopes, *options)
    return re.search(r"te-[\w-]+", outcome.out)[0]


def furnish(cli: Cli, host: Host, space: str) -> str:
    """Make a namespace with one of each thing; return the id of its memory."""
    outcomes = [
        cli("agents", "namespaces", "create", space, "--description", word_of("namespace", space)),
        cli(
            *("memories", "collections", "create", f"{space}/notes"),
            *("--embedder", f"{host.url}#e", "--description", word_of("collection", space)),
        ),
        cli(
            *("agents", "create", f"{space}/bot", "--collection", "notes", "--memories", "notes"),
            *("--persona", f"You are {word_of('persona', space)}.", "--model", f"{host.url}#m"),
        ),
        cli(
            *("agents", "users", "create", f"{space}/eve"),
            *("--description", f"She is {word_of('user', space)}."),
        ),
        cli("memories", "add", f"{space}/notes", f"Ann has met {word_of('memory', space)}."),
    ]
    assert [outcome.err for outcome in outcomes if outcome.code] == []
    return re.search(r"me_\w+", outcomes[-1].out)[0]


# Users

USER_SECRET = "what a user said"
TELLS = f"I have met {name_of(USER_SECRET)} at home."
ASKS = "Whom have I met at home?"
BOT = ("--persona", "You are Bot, a nurse. You speak calmly. You like long answers.")
AGENT: tuple[tuple[str, ...], ...] = (
    ("memories", "collections", "create", "notes", "--embedder", "own/e"),
    ("memories", "collections", "create", "insights", "--kind", "insight", "--embedder", "own/e"),
    (
        *("agents", "create", "bot", *BOT, "--collection", "notes", "--memories", "notes"),
        *("--insights", "insights", "--model", "own/m"),
    ),
)
"""An agent that remembers what it is told."""
ANN_TELLS = ("chat", "bot", "--user", "ann", "--once", TELLS)
LISTENERS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "the same user": (("chat", "bot", "--user", "ann", "--once", ASKS),),
    "another user": (("chat", "bot", "--user", "bob", "--once", ASKS),),
    "another user with a description": (
        ("agents", "users", "create", "bob", "--description", "Bob is a friend."),
        ("chat", "bot", "--user", "bob", "--once", ASKS),
    ),
    "a chat without a user": (("chat", "bot", "--once", ASKS),),
    "another user of another agent": (
        ("agents", "create", "other", *BOT, "--model", "own/m"),
        ("chat", "other", "--user", "bob", "--once", ASKS),
    ),
    "another user without memories": (
        ("chat", "bot", "--user", "bob", "--no-memory", "--once", ASKS),
    ),
    "another user in the chat of the first": (
        ("chat", "bot", "--user", "bob", "--session", "SESSION", "--once", ASKS),
    ),
    "the same user in another namespace": (
        ("agents", "namespaces", "create", "acme"),
        ("memories", "collections", "create", "acme/notes", "--embedder", "own/e"),
        (
            *("agents", "create", "acme/bot", *BOT, "--collection", "notes"),
            *("--memories", "notes", "--model", "own/m"),
        ),
        ("chat", "acme/bot", "--user", "ann", "--once", ASKS),
    ),
    "insights for all": (("memories", "integrate", "bot", "--always", "-m", "own/m"),),
    "a persona for all": (("agents", "evolve", "bot", "--propose", "-m", "own/m"),),
}
"""Commands after Ann has told the agent something, by who listens."""


# What was deleted


@dataclass(frozen=True)
class Deletion:
    """Something with a canary that is deleted.

    Attributes:
        before: The commands that make it.
        shows: The command that shows the canary before, so that its absence means something; none
            where only the store's files show it.
        deletes: The commands that delete it. MEMORY and SESSION stand for ids.
        after: Commands that must not show it any more.
        erased: Whether the store's files must not hold it either.
    """

    before: tuple[tuple[str, ...], ...]
    shows: tuple[tuple[str, ...], ...]
    deletes: tuple[tuple[str, ...], ...]
    after: tuple[tuple[str, ...], ...]
    erased: bool = False


WORD = name_of("deleted")
"""The canary of what is deleted."""
VACUUM = ("config", "store", "vacuum")
ADDED = (*AGENT, ("memories", "add", "notes", f"Ann has met {WORD}.", "--entity", WORD))
FORGET = ("memories", "forget", "MEMORY")
ERASE = ("memories", "forget", "MEMORY", "--erase", "--yes")
LIST = ("memories", "list", "notes", "--json")
DEBATE = ("evaluate", "cases.jsonl", "--agents", "bot,bot2", "--rounds", "1", "-m", "own/m")
MET = {"id": "c", "messages": [{"role": "user", "content": f"I have met {WORD}."}]}
DELETED_FILES: Mapping[str, str] = {
    "cases.jsonl": write_rows(
        [{"id": "x", "input": "Whom has Ann met?", "candidates": ["Bob.", "Ben."]}]
    ),
    "judged.jsonl": write_rows(
        [{"id": "x", "input": f"Who is {WORD}?", "output": WORD, "reference": WORD}]
    ),
    "chats.jsonl": write_rows([MET]),
    "told.jsonl": write_rows(
        [{"id": "c", "messages": [{"role": "user", "content": f"Ann has met {WORD}."}]}]
    ),
    "book.md": f"# Book\n\n{WORD} is in the book.\n",
    "job.yaml": f"kind: guide\nquestion: Who is {WORD}?\n",
}
SECOND_AGENT = ("agents", "create", "bot2", *BOT, "--collection", "notes", "--model", "own/m")
TENANT: tuple[tuple[str, ...], ...] = (
    ("agents", "namespaces", "create", "acme"),
    ("memories", "collections", "create", "acme/notes", "--embedder", "own/e"),
)
DELETIONS: Mapping[str, Deletion] = {
    "forgotten memory": Deletion(
        (*ADDED, SECOND_AGENT),
        (LIST,),
        (FORGET,),
        (
            LIST,
            ("memories", "search", "notes", "Whom has Ann met?"),
            ("memories", "search", "notes", "Whom has Ann met?", "--as-of", "2099-01-01"),
            ("memories", "export", "notes", "-"),
            ("chat", "bot", "--user", "ann", "--once", ASKS),
            ("memories", "integrate", "bot", "--always", "-m", "own/m"),
            DEBATE,
        ),
    ),
    "erased memory": Deletion(
        ADDED,
        (LIST,),
        (ERASE,),
        (
            ("memories", "list", "notes", "--closed", "--json"),
            ("memories", "export", "notes", "-", "--closed"),
            ("memories", "graph", "notes"),
            ("memories", "collections", "export", "notes"),
        ),
        erased=True,
    ),
    "erased memory that was recalled": Deletion(
        (
            *(*ADDED, SECOND_AGENT, DEBATE),
            ("chat", "bot", "--user", "ann", "--no-memory", "--once", "Hello."),
            ("chat", "bot2", "--user", "ann", "--once", ASKS),
        ),
        (("runs", "show", "last", "--json"),),
        (ERASE,),
        (
            ("runs", "list", "--all"),
            ("runs", "show", "last", "--json"),
            ("agents", "sessions", "show", "last", "--json"),
        ),
        erased=True,
    ),
    "erased memory of a chat": Deletion(
        (
            *AGENT,
            ("memories", "create", "chats.jsonl", "-c", "notes", "-m", "own/m", "--about", "Ann"),
        ),
        (LIST,),
        (("agents", "sessions", "list"), ERASE, VACUUM),
        (("runs", "show", "last", "--json"), ("memories", "graph", "notes")),
    ),
    "names in an erased memory of a chat": Deletion(
        (
            *AGENT,
            ("memories", "create", "told.jsonl", "-c", "notes", "-m", "own/m", "--about", "Ann"),
        ),
        (LIST,),
        (ERASE, VACUUM),
        (),
        erased=True,
    ),
    "deleted collection": Deletion(
        (*TENANT, ("memories", "add", "acme/notes", f"Ann has met {WORD}.")),
        (("memories", "list", "acme/notes"),),
        (("memories", "collections", "delete", "acme/notes", "--yes"),),
        (
            ("agents", "namespaces", "show", "acme"),
            ("memories", "collections", "list", "--namespace", "acme"),
        ),
        erased=True,
    ),
    "deleted namespace": Deletion(
        (
            *TENANT,
            ("memories", "add", "acme/notes", f"Ann has met {WORD}."),
            ("agents", "users", "create", "acme/eve", "--description", f"She knows {WORD}."),
            ("agents", "create", "acme/bot", "--persona", f"You are {WORD}.", "--model", "own/m"),
        ),
        (("agents", "show", "acme/bot"),),
        (("agents", "namespaces", "delete", "acme", "--yes"),),
        (
            ("agents", "namespaces", "list"),
            ("agents", "list", "--namespace", "acme"),
            ("agents", "namespaces", "create", "acme"),
            ("agents", "list", "--namespace", "acme"),
            ("agents", "users", "list", "--namespace", "acme"),
            ("memories", "collections", "list", "--namespace", "acme"),
        ),
        erased=True,
    ),
    "chat of a deleted namespace": Deletion(
        (
            *TENANT,
            ("agents", "create", "acme/bot", *BOT, "--collection", "notes", "--model", "own/m"),
            ("chat", "acme/bot", "--user", "ann", "--once", f"I have met {WORD}."),
        ),
        (("agents", "sessions", "show", "last", "--namespace", "acme"),),
        (("agents", "namespaces", "delete", "acme", "--yes"),),
        (
            ("agents", "namespaces", "create", "acme"),
            ("agents", "create", "acme/bot", *BOT, "--model", "own/m"),
            ("agents", "sessions", "list", "--namespace", "acme"),
            ("chat", "acme/bot", "--user", "ann", "--session", "SESSION", "--once", ASKS),
        ),
    ),
    "deleted agent": Deletion(
        (
            *AGENT,
            ("agents", "update", "bot", "--description", f"Knows {WORD}."),
            ("agents", "update", "bot", "--description", "Knows all."),
        ),
        (("agents", "show", "bot", "--versions"),),
        (("agents", "delete", "bot", "--yes"), AGENT[2]),
        (("agents", "show", "bot", "--versions"), ("agents", "revert", "bot", "1")),
    ),
    "chat of a deleted agent": Deletion(
        (*AGENT, ("chat", "bot", "--user", "ann", "--no-memory", "--once", f"I met {WORD}.")),
        (("agents", "sessions", "show", "last"),),
        (("agents", "delete", "bot", "--yes"), AGENT[2]),
        (
            ("agents", "sessions", "list"),
            ("chat", "bot", "--user", "ann", "--session", "SESSION", "--once", ASKS),
        ),
    ),
    "deleted user": Deletion(
        (*AGENT, ("agents", "users", "create", "ann", "--description", f"Ann met {WORD}.")),
        (("agents", "users", "show", "ann"),),
        (("agents", "users", "delete", "ann", "--yes"),),
        (("agents", "users", "list"), ("chat", "bot", "--user", "ann", "--once", ASKS)),
    ),
    "chat of a deleted user": Deletion(
        (
            *(*AGENT, ("agents", "users", "create", "ann", "--description", "The first.")),
            ("chat", "bot", "--user", "ann", "--no-memory", "--once", f"I met {WORD}."),
        ),
        (("agents", "sessions", "show", "last"),),
        (
            ("agents", "users", "delete", "ann", "--yes"),
            ("agents", "users", "create", "ann", "--description", "The second."),
        ),
        (("chat", "bot", "--user", "ann", "--session", "SESSION", "--once", ASKS),),
    ),
    "deleted chat": Deletion(
        (*AGENT, ("chat", "bot", "--user", "ann", "--no-memory", "--once", f"I met {WORD}.")),
        (("agents", "sessions", "show", "last"),),
        (("agents", "sessions", "delete", "SESSION", "--yes"),),
        (
            ("agents", "sessions", "list"),
            ("agents", "sessions", "show", "SESSION"),
            ("chat", "bot", "--user", "ann", "--once", ASKS),
        ),
    ),
    "deleted run": Deletion(
        (("evaluate", "judged.jsonl", "--judge", "reference", "-m", "own/m", "--name", "first"),),
        (("runs", "show", "first", "--json"),),
        (("runs", "delete", "first", "--yes"), VACUUM),
        (("runs", "list", "--all"), ("runs", "show", "first", "--json")),
        erased=True,
    ),
    "deleted task of labelling": Deletion(
        (("labels", "create", "check", "judged.jsonl"),),
        (),
        (("labels", "delete", "check", "--yes"), VACUUM),
        (("labels", "list"),),
        erased=True,
    ),
    "removed job": Deletion(
        (("jobs", "add", "nightly", "job.yaml", "--cron", "0 3 1 1 *"),),
        (("jobs", "show", "nightly", "--json"),),
        (("jobs", "remove", "nightly", "--yes"), VACUUM),
        (("jobs", "list"),),
        erased=True,
    ),
    "replaced chunk of a document": Deletion(
        (AGENT[0], ("memories", "read", "book.md", "-c", "notes")),
        (LIST,),
        (("REWRITE", "book.md"), ("memories", "read", "book.md", "-c", "notes")),
        (LIST, ("memories", "search", "notes", "Who is in the book?")),
    ),
}


def run_with_ids(world: Watched, commands: tuple[tuple[str, ...], ...], ids: dict[str, str]) -> str:
    """Run commands with ids in the place of their names; return what they printed."""
    printed = ""
    for command in commands:
        if command[0] == "REWRITE":
            (world.home / command[1]).write_text("# Book\n\nBen is in the book.\n")
            continue
        outcome = world.cli(*(ids.get(word, word) for word in command))
        printed += outcome.out + outcome.err
        if command[0] == "chat" and "SESSION" not in ids:
            ids["SESSION"] = _first_session(world, command[1])
        for memory in re.findall(r"me_\w+", outcome.out):
            ids.setdefault("MEMORY", memory)
    return printed


def _first_session(world: Watched, agent: str) -> str:
    space = agent.partition("/")[0] if "/" in agent else "default"
    listed = world.cli("agents", "sessions", "list", "--namespace", space).out
    return next(reversed(re.findall(r"se_\w+", listed)), "none")


def evidence_of(world: Watched, printed: str) -> Evidence:
    """Return what commands printed, sent and stored."""
    evidence = Evidence(printed=printed)
    world.collect(evidence)
    return evidence
