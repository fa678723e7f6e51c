"""Our client against the reference server of `jevcompat`, a specification of System One that is not
ours: what a server does wrong is a failure of the question, an error, or does not matter."""

import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest
from pydantic import SecretStr

from textevolve.errors import AccessError, ModelError, RejectedError, UnavailableError
from textevolve.evaluation import Failure
from textevolve.llm.client import OpenAIClient
from textevolve.llm.decisions import choice, decide, predicate, score

mock: Any = pytest.importorskip("jevcompat.mock")

STATE = "Die Lieferung kam zu spät. 荷物が遅れた。"
QUESTIONS = (
    predicate("late?", "Did it come late?", no="in time"),
    choice("Thème", "What is it about?", {"billing": "money", "Technical": "", "naïve": ""}),
    score("how much", "How bad is it?", ["not", "a little", "very"]),
)
FAILING = {
    "first-question-only": {"Thème", "how much"},
    "nfd-keys": {"Thème"},
    "choice-key-case": {"Thème"},
    "choice-sum": {"Thème"},
    "score-sum": {"how much"},
    "score-keys-1-based": {"how much"},
    "noul-range": {"late?"},
    "boolean-type": {"late?"},
}
RAISING = {
    "xssi-200": UnavailableError,
    "wrong-route": AccessError,
    "reject-jev-latest": AccessError,
    "strict-ids": RejectedError,
    "no-null-description": RejectedError,
    "noul-two-sided": RejectedError,
}
NEED_A_KEY = {"auth-rejects-header", "auth-x-api-key"}
HARMLESS = sorted(set(mock.FAULTS) - set(FAILING) - set(RAISING) - NEED_A_KEY)[::4]


@contextmanager
def running(fault: str | None = None, key: str | None = None) -> Generator[str]:
    """Its own way to run it looks only twice a second whether it is to stop."""
    faults = frozenset({fault} if fault else ())
    server = mock.make_server(mock.MockConfig(key=key, faults=faults))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


async def ask(fault: str | None = None, sent: str | None = None, wanted: str | None = None):
    with running(fault, wanted) as url:
        secret = SecretStr(sent) if sent else None
        async with OpenAIClient(url, "jev-latest", key=secret, decisions="systemone") as client:
            return await decide(client, STATE, QUESTIONS)


@pytest.mark.parametrize("fault", [None, *HARMLESS])
async def test_all_questions_are_answered(fault: str | None):
    """Faults in what is not read, such as confidences, legends and extra fields, do no harm."""
    decision = await ask(fault)
    for question in QUESTIONS:
        assert len(decision.answer(question.name).probabilities) == len(question.options)


@pytest.mark.parametrize(("fault", "names"), FAILING.items())
async def test_what_is_wrong_with_an_answer_fails_its_question(fault: str, names: set[str]):
    answers = (await ask(fault)).answers
    assert {name for name, answer in answers.items() if isinstance(answer, Failure)} == names


@pytest.mark.parametrize(("fault", "error"), RAISING.items())
async def test_what_is_no_answer_is_raised(fault: str, error: type[ModelError]):
    with pytest.raises(error):
        await ask(fault)
