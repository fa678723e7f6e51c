"""Chats over HTTP: agents, judges and models that are passed through, as plain clients see them."""

import base64
import json
import struct
import urllib.request

import pytest
from agent_world import make_world
from plain_http import wait_for

from textevolve.agents.resources import AgentSpec
from textevolve.llm.testing import Answer, Fault, ScriptedServer
from textevolve.store import kinds

HELLO = [{"role": "user", "content": "Hello?"}]
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
CALLED = {"role": "assistant", "content": None, "tool_calls": [CALL]}


@pytest.fixture
def agents(home, server):
    """Two namespaces, each with an agent that keeps what it learns; acme has a plain one, too."""
    store = make_world(home / "store.db", f"{server.url}#embeds").resources
    plain = AgentSpec(name="plain", persona="You are plain.")
    store.write(kinds.create, kinds.AGENTS, "acme", plain)
    yield store
    store.close()


def text_of(said):
    return said["choices"][0]["message"]["content"]


# Models that are passed through


def test_a_request_passes_through_with_its_fields(serve, ask, server, model):
    request = {
        "model": model,
        "messages": [
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "d"}}]}
        ],
        "tools": [{"type": "function", "function": {"name": "look"}}],
        "n": 3,
        "logit_bias": {"7": -1},
    }
    status, answer = ask(f"{serve()}/v1/chat/completions", request)
    assert status == 200
    assert answer["object"] == "chat.completion"
    assert server.requests[-1] == {**request, "model": "scripted"}


def test_refusals_have_a_status_that_fits(serve, ask, server, model):
    url = f"{serve()}/v1/chat/completions"
    for answer, status, code, param in (
        (Answer(status=400, body=b'{"error":{"param":"tools"}}'), 400, "invalid_request", "tools"),
        (Answer(status=401, body=b'{"error":{"message":"k"}}'), 502, "upstream_error", None),
        (Answer(status=429, body=b"{}"), 429, "rate_limit_exceeded", None),
        (Fault.RESET, 503, "upstream_unavailable", None),
        (Fault.TOO_LONG_OPENAI, 400, "context_length_exceeded", None),
    ):
        server.script = lambda _body, _n, answer=answer: answer
        request = {"model": model, "messages": HELLO, "stream": answer is not Fault.RESET}
        found, spoken_answer = ask(url, request)
        assert (found, spoken_answer.keys()) == (status, {"error"})
        assert (spoken_answer["error"]["code"], spoken_answer["error"]["param"]) == (code, param)


def test_the_key_of_the_server_is_sent_and_not_shown(serve, ask, monkeypatch):
    key = "sk-a-key-of-the-operator"
    with ScriptedServer(key=key) as upstream:
        monkeypatch.setenv("TEXTEVOLVE_API_KEY", key)
        upstream.script = lambda body, n: f"The key is {key}."
        model = f"{upstream.url}#any"
        url = serve(model=model)
        request = {"model": model, "messages": HELLO}
        bearer = {"Authorization": "Bearer sk-of-a-client"}
        status, answer = ask(f"{url}/v1/chat/completions", request, **bearer)
        assert status == 200
        assert key not in str(answer)
        assert upstream.headers[-1]["authorization"] == f"Bearer {key}"


def test_limits_of_the_server_hold_for_what_is_passed_through(serve, ask, model):
    url = serve(max_calls=2)
    request = {"model": model, "messages": HELLO}
    answers = [ask(f"{url}/v1/chat/completions", request)[0] for _ in range(3)]
    assert answers == [200, 200, 429]


def test_a_client_that_goes_ends_the_call_of_the_model(serve, server, model):
    server.script = lambda body, n: Answer(text="word " * 2000, pace=0.05)
    url = serve()
    data = json.dumps({"model": model, "messages": HELLO, "stream": True}).encode()
    request = urllib.request.Request(
        f"{url}/v1/chat/completions", data, {"Content-Type": "application/json"}
    )
    response = urllib.request.urlopen(request, timeout=60)
    assert response.read(20)
    before = len(server.connections)
    response.close()
    wait_for(lambda: len(server.connections) < before)


# Agents


def test_what_a_client_sends_is_the_history_and_nothing_is_kept(serve, ask, server, agents):
    messages = [
        {"role": "system", "content": "Answer in rhymes."},
        {"role": "user", "content": "I am Bo."},
        {"role": "assistant", "content": [{"type": "text", "text": "Hi, Bo."}]},
        {"role": "user", "content": "Who am I?"},
    ]
    status, _ = ask(f"{serve()}/v1/chat/completions", {"model": "acme/plain", "messages": messages})
    assert status == 200
    sent = server.requests[-1]["messages"]
    assert [one["role"] for one in sent] == ["system", "user", "assistant", "user"]
    assert "You are plain." in sent[0]["content"]
    assert "Answer in rhymes." in sent[0]["content"]
    assert (sent[1]["content"], sent[2]["content"]) == ("I am Bo.", "Hi, Bo.")
    assert agents.sessions("acme").list() == []


def test_an_agent_has_a_name_without_a_slash_and_stops_where_it_is_told(serve, ask, server, agents):
    url = f"{serve()}/v1/chat/completions"
    server.script = lambda body, n: Answer(text="Thought: look. Observation: none. Done.")
    for stop in ("Observation:", ["Done", "Observation:"]):
        requested_request = {"model": "acme:plain", "messages": HELLO, "stop": stop}
        status, answer = ask(url, requested_request)
        assert (status, text_of(answer)) == (200, "Thought: look. ")
        data = json.dumps({**requested_request, "stream": True}).encode()
        request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as response:
            streamed = response.read().decode()
        assert "look. " in streamed
        assert "Observation" not in streamed
    full_fields = {"model": "acme:plain", "messages": HELLO, "stop": ["Never"]}
    assert text_of(ask(url, full_fields)[1]).endswith("Done.")


def test_a_session_is_gone_on_with(serve, ask, server, agents):
    url = f"{serve()}/v1/chat/completions"
    request = {"model": "acme/plain", "user": "ann"}
    first_fields = {**request, "messages": HELLO, "metadata": {"session": "new"}}
    session = ask(url, first_fields)[1]["metadata"]["session"]
    again = {"session": session}
    ignored = [{"role": "user", "content": "Not this."}, {"role": "user", "content": "And now?"}]
    answer = ask(url, {**request, "messages": ignored, "metadata": again})[1]
    assert answer["metadata"] == again
    sent = str(server.requests[-1]["messages"])
    assert "Hello?" in sent
    assert "Not this." not in sent
    assert len(agents.sessions("acme").messages(session)) == 4
    for name, given, user in (
        ("acme/plain", session[:12], "ann"),
        ("acme/plain", "last", "ann"),
        ("acme/plain", session, "bob"),
        ("acme/guide", session, "ann"),
        ("other/guide", session, "ann"),
    ):
        wrong = {"model": name, "messages": HELLO, "user": user, "metadata": {"session": given}}
        status, answer = ask(url, wrong)
        assert (status, answer["error"]["param"]) == (404, "metadata.session")
        assert "ann" not in answer["error"]["message"].replace(given, "")
    assert len(agents.sessions("acme").messages(session)) == 4


def test_what_an_agent_cannot_do_is_refused(serve, ask, server, agents):
    url = f"{serve()}/v1/chat/completions"
    for field, param in (
        ({"messages": []}, "messages"),
        ({"messages": [*HELLO, {"role": "assistant", "content": "a"}]}, "messages"),
        ({"messages": [{"role": "tool", "content": "x"}, *HELLO]}, "messages.0.tool_call_id"),
        ({"n": 2}, "n"),
        ({"tools": [{"type": "function"}]}, "tools.0.function"),
        ({"messages": [*HELLO, CALLED]}, "messages"),
        ({"logprobs": True}, "logprobs"),
        ({"metadata": {"memory": "maybe"}}, "metadata.memory"),
        ({"metadata": {"memory.limit": "0"}}, "metadata"),
        ({"metadata": {"memory.collections": "other/chats"}}, "metadata.memory.collections"),
    ):
        status, answer = ask(url, {"model": "acme/guide", "messages": HELLO, **field})
        assert (status, answer["error"]["param"]) == (400, param), field
    assert server.calls == 0


# Names


def test_models_and_agents_are_in_one_list(serve, ask, model, agents):
    url = serve(judge="probe")
    _, answer = ask(f"{url}/v1/models")
    ids = [one["id"] for one in answer["data"]]
    assert {"judge/probe", model, "acme/guide", "acme:guide", "jev-latest"} <= set(ids)
    assert answer["models"][0]["name"] == "judge/probe"
    for name in ("acme/guide", "acme:guide"):
        assert ask(f"{url}/v1/models/{name}")[1]["id"] == name
    status, answer = ask(f"{url}/v1/models/acme/nobody")
    assert (status, answer["error"]["code"]) == (404, "model_not_found")


# Judges


def test_a_judge_judges_the_last_exchange(serve, ask, server):
    url = f"{serve(judge='probe')}/v1/chat/completions"
    messages = [
        {"role": "user", "content": "What is 2 + 2?"},
        {"role": "assistant", "content": "Four."},
    ]
    status, answer = ask(url, {"model": "judge/probe", "messages": messages})
    payload = json.loads(text_of(answer))
    assert status == 200
    assert 0 <= payload["score"] <= 1
    assert (payload["best"], len(payload["results"])) == (0, 1)
    assert "What is 2 + 2?" in str(server.requests[-1])
    messages.append({"role": "user", "content": "Is the reply cheerful?"})
    assert ask(url, {"model": "judge/probe", "messages": messages})[0] == 200
    assert "Is the reply cheerful?" in str(server.requests[-1])


# Embeddings


def test_embeddings_come_as_numbers_and_in_base64(serve, ask, model):
    url = f"{serve()}/v1/embeddings"
    request = {"model": model, "input": ["one", "two"]}
    answer = ask(url, request)[1]
    assert [one["index"] for one in answer["data"]] == [0, 1]
    vector = answer["data"][0]["embedding"]
    assert answer["usage"]["prompt_tokens"] > 0
    packed = ask(url, {**request, "input": "one", "encoding_format": "base64"})[1]
    raw = base64.b64decode(packed["data"][0]["embedding"])
    assert struct.unpack(f"<{len(vector)}f", raw) == pytest.approx(vector, abs=1e-6)
    assert ask(url, {**request, "dimensions": len(vector)})[0] == 200
    status, answer = ask(url, {**request, "dimensions": 7})
    assert (status, answer["error"]["param"]) == (400, "dimensions")
    for wrong in ({"input": []}, {"input": 4}, {"encoding_format": "x"}, {"dimensions": 0}):
        assert ask(url, {**request, **wrong})[0] == 400
