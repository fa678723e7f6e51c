"""What answers say beside the numbers: what was spent, what was emulated, why there is none."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from textevolve.llm.testing import Answer, Fault, ScriptedServer

RIGHT = {"type": "noul", "instructions": "Is it right?"}


def body(model="jev-latest", state="Four.", **questions):
    return {"model": model, "state": state, "questions": questions or {"right": RIGHT}}


def test_a_chat_model_says_that_it_was_emulated(serve, ask, model):
    status, answer = ask(f"{serve()}/v1/systemone", body(model))
    assert (status, answer["model"], answer["x_emulated"]) == (200, model, True)
    assert answer["usage"]["input_tokens"] > 0
    assert answer["usage"]["output_tokens"] == 1


def test_what_the_journal_answers_is_not_spent(serve, ask, server):
    url = f"{serve(judge='probe')}/v1/systemone"
    first_answer, again = ask(url, body())[1], ask(url, body())[1]
    calls = server.calls
    assert first_answer["usage"]["input_tokens"] > 0
    assert "x_replayed_calls" not in first_answer
    assert again["answers"] == first_answer["answers"]
    assert again["usage"] == {"input_tokens": 0, "output_tokens": 0}
    assert again["x_replayed_calls"] == calls
    renamed = ask(url, body(another=RIGHT))[1]
    assert renamed["answers"]["another"] == first_answer["answers"]["right"]
    assert server.calls == calls


@pytest.mark.parametrize(
    ("given", "status", "system_one"),
    [
        (Answer(status=503, body=b"{}"), 503, "upstream_unavailable"),
        (Fault.TOO_LONG_OPENAI, 400, "max_tokens_exceeded"),
    ],
    ids=["down", "too long"],
)
def test_where_nothing_is_answered_the_status_says_why(serve, ask, given, status, system_one):
    with ScriptedServer(lambda _body, _number: given) as upstream:
        for served in ({"judge": "probe"}, {}):
            url = serve(model=f"{upstream.url}#any", **served)
            found, answer = ask(f"{url}/v1/systemone", body())
            assert (found, answer["detail"]["error_type"]) == (status, system_one)


def test_a_limit_ends_the_asking_and_not_the_server(serve, ask):
    url = serve(judge="probe", max_calls=0)
    status, answer = ask(f"{url}/v1/systemone", body())
    assert (status, answer["detail"]["error_type"]) == (429, "insufficient_quota")
    assert ask(f"{url}/health")[0] == 200


def test_a_request_that_takes_too_long_is_ended(serve, ask):
    with ScriptedServer(lambda _body, _number: Answer(delay=3600)) as upstream:
        url = serve(judge="probe", model=f"{upstream.url}#any", time_limit=0.2)
        status, answer = ask(f"{url}/v1/systemone", body())
    assert (status, answer["detail"]["error_type"]) == (504, "timeout")


def test_a_question_without_an_answer_has_its_reason(serve, ask):
    url = serve(judge="pairwise")
    choice = {"type": "choice", "instructions": "Which?", "criteria": {"one": None, "two": None}}
    status, answer = ask(f"{url}/v1/systemone", body(right=RIGHT, which=choice))
    assert (status, set(answer["answers"])) == (200, {"which"})
    assert "at least two candidates" in answer["x_unanswered"]["right"]
    status, answer = ask(f"{url}/v1/systemone", body(right=RIGHT))
    assert (status, answer["detail"][0]["type"]) == (422, "value_error")


def test_who_waits_when_the_server_ends_is_told(serve, ask, monkeypatch):
    monkeypatch.setattr("textevolve.server.app.GOODBYE", 0)
    with (
        ScriptedServer(lambda _body, _number: Answer(delay=3600)) as upstream,
        ThreadPoolExecutor() as pool,
    ):
        url = serve(judge="probe", model=f"{upstream.url}#any")
        future = pool.submit(ask, f"{url}/v1/systemone", body())
        while not upstream.in_flight:
            time.sleep(0.005)
        serve.end()
        status, answer = future.result()
    assert (status, answer["detail"]["error_type"]) == (503, "server_unavailable")
