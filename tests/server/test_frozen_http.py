"""What clients of the server see is as it was frozen: answers, refusals, headers and events, and
the figures of a study to the last digit."""

import json

import pytest
from plain_http import fetch, wait_for, watch

from recorded.playing import lay_out
from recorded.scripted import answer

pytestmark = pytest.mark.guard

HEADERS = (
    *("content-type", "cache-control", "content-security-policy", "x-content-type-options"),
    *("referrer-policy", "x-frame-options", "www-authenticate", "retry-after", "allow", "location"),
    *("content-disposition", "vary", "access-control-allow-origin", "x-accel-buffering"),
)
CASES = "".join(
    json.dumps({"id": f"c{n}", "input": f"Why {n}?", "candidates": ["A good one.", "No."]}) + "\n"
    for n in range(3)
)
STUDY = {
    "kind": "evaluate",
    "cases": ["cases.jsonl"],
    "judge": "probe",
    "run": {"files": {"cases.jsonl": CASES}, "name": "frozen"},
}
CHAT = {"model": "ada", "messages": [{"role": "user", "content": "Hello."}]}
REQUESTS = (
    ("GET", "/health", None),
    ("GET", "/nothing", None),
    ("DELETE", "/health", None),
    ("GET", "/v1/models", None),
    ("GET", "/v1/studies", None),
    ("GET", "/v1/studies/nothing", None),
    ("GET", "/v1/studies/nothing/events", None),
    ("POST", "/v1/studies", {"kind": "nothing"}),
    ("POST", "/v1/studies", {"kind": "evaluate", "cases": ["gone.jsonl"], "judge": "probe"}),
    ("POST", "/v1/studies", {**STUDY, "judge": "nobody"}),
    ("POST", "/v1/studies", b"{"),
    ("POST", "/v1/chat/completions", CHAT),
    ("POST", "/v1/chat/completions", {"model": "nobody"}),
    ("POST", "/v1/responses", {"model": "nobody", "input": "Hello."}),
    ("POST", "/v1/embeddings", {"model": "nobody", "input": "Hello."}),
    ("POST", "/v1/systemone", {"model": "nobody"}),
    ("GET", "/v1/namespaces", None),
    ("GET", "/v1/namespaces/nothing", None),
    ("POST", "/v1/namespaces", {"name": "acme"}),
    ("POST", "/v1/namespaces", {"name": "acme"}),
    ("POST", "/v1/namespaces", {"name": "A B"}),
    ("GET", "/v1/namespaces/acme/agents", None),
    ("GET", "/v1/namespaces/acme/agents/nobody", None),
    ("POST", "/v1/namespaces/acme/agents", {"name": "ada"}),
    ("GET", "/v1/jobs", None),
    ("GET", "/v1/jobs/nothing", None),
    ("GET", "/", None),
    ("GET", "/runs", None),
    ("GET", "/runs/nothing", None),
    ("GET", "/static/nothing.js", None),
)


def describe(reply, usual):
    """The status, the headers that are not the `usual` ones, and of JSON its text."""
    headers = {name: reply.headers[name] for name in HEADERS if name in reply.headers}
    lines = [str(reply.status), *(f"{n}: {v}" for n, v in headers.items() if usual.get(n) != v)]
    lines += [f"no {name}" for name in usual if name not in headers]
    if "json" in reply.headers.get("content-type", ""):
        lines.append(lay_out(steady(reply.json)))
    return "\n".join(f"  {line}" for line in "\n".join(lines).splitlines())


@pytest.mark.parametrize("key", [None, "te-" + "k" * 40], ids=["open", "with_a_key"])
def test_answers_and_refusals_are_as_frozen(serve, server, frozen, key):
    """With a key nothing is said to a client that has none."""
    server.script = answer
    url = serve(key)
    usual, lines = dict[str, str](), []
    for method, path, body in REQUESTS:
        reply = fetch(url + path, method, body)
        output = describe(reply, usual).replace(url, "URL").replace(server.url, "UPSTREAM")
        text = body.decode() if isinstance(body, bytes) else lay_out(body) if body else ""
        lines.append(f"{method} {path} {text}".rstrip() + f"\n{output}\n")
        usual = usual or {name: reply.headers[name] for name in HEADERS if name in reply.headers}
    frozen(f"http_{'key' if key else 'open'}.txt", "".join(lines))


UNSTABLE = frozenset(
    (
        *("id", "created", "started", "finished", "seconds", "url", "at", "updated", "timestamp"),
        *("revision", "release_date"),
    )
)


def steady(data):
    """Without what differs from run to run."""
    if isinstance(data, dict):
        return {k: steady(v) for k, v in data.items() if k not in UNSTABLE}
    return [steady(value) for value in data] if isinstance(data, list) else data


def test_a_study_over_http_is_as_frozen(serve, server, frozen):
    server.script = answer
    url = serve()
    begun = fetch(f"{url}/v1/studies", "POST", STUDY)
    assert begun.status == 201
    run = f"{url}/v1/studies/{begun.json['id']}"
    detail = wait_for(lambda: fetch(run).json, lambda found: found["status"] == "finished")
    events = {name: steady(data) for _, name, data in watch(url, begun.json["id"])}  # the last
    parts = {
        "begun": {**steady(begun.json), "status": "queued or running"},
        "detail": steady(detail),
        "records": steady(fetch(f"{run}/records").json),
        "events": events,
    }
    text = "".join(f"{name}\n{lay_out(part)}\n" for name, part in parts.items())
    frozen("http_study.txt", text.replace(begun.json["id"], "RUN").replace(server.url, "UPSTREAM"))
