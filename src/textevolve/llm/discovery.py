"""Choose a model if the user names none, and test the capabilities of an endpoint.

The order of choice: the configured model, a provider with a default model whose key is in the
environment, a server on this machine that lists a chat model, local weights. The reason is returned
for the user.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from textevolve.errors import CapabilityError, ModelError, RejectedError
from textevolve.evaluation import Failure
from textevolve.llm.decisions import decision_request, predicate, read_decision
from textevolve.llm.embeddings import Encoder, probe_dimension
from textevolve.llm.model import Message, Model, Request
from textevolve.llm.providers import LOCAL, PROVIDERS, known_providers
from textevolve.llm.structured import describe_fault
from textevolve.llm.verdicts import emulate, word_request
from textevolve.protocol.decisions import WIRES
from textevolve.settings import Provider, Settings, Timeouts

if TYPE_CHECKING:
    from textevolve.llm.client import OpenAIClient

DIGIT = (
    '{"type": "object", "properties": {"digit": {"type": "integer"}},'
    ' "required": ["digit"], "additionalProperties": false}'
)
SERVERS = ("ollama", "vllm", "llamacpp", "lmstudio")
QUICK = Timeouts(connect=0.3, read=0.3, total=0.3)
TRIAL = predicate("sky", "Is the sky blue on a clear day?")
"""A question to which the answer is yes."""
UNDECIDED = 0.5
WORD_TRIAL = "Is water wet? Answer Yes or No."
NOT_FOR_CHAT = ("embed", "rerank", "whisper", "bge-", "minilm")
"""Parts of the names of models that are listed by a server but cannot chat."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A chosen model: its spec, and the reason for the choice as text."""

    spec: str
    reason: str


async def discover_model(settings: Settings) -> Choice:
    """Return the model to use if the user names none, with the reason for this choice."""
    if settings.model:
        return Choice(settings.model, "it is configured")
    providers = known_providers(settings)
    for name, provider in providers.items():
        usable = provider.chats and provider.default_model and not provider.keyless
        if usable and provider.key_env and os.environ.get(provider.key_env):
            return Choice(f"{name}/{provider.default_model}", f"{provider.key_env} is set")

    for name, models in await _ask_servers(providers):
        chat = [
            model for model in models if not any(part in model.lower() for part in NOT_FOR_CHAT)
        ]
        if chat:
            return Choice(f"{name}/{chat[0]}", f"a server answers at {providers[name].base_url}")

    return Choice(
        f"{LOCAL}/{PROVIDERS[LOCAL].default_model}",
        "no model is configured and no server answers on this machine",
    )


async def _ask_servers(providers: Mapping[str, Provider]) -> list[tuple[str, list[str]]]:
    """Ask the usual servers on this machine for their models, all at the same time; return the name
    of each server with its models, none if it does not answer."""
    from textevolve.llm.client import OpenAIClient

    async def ask(name: str) -> tuple[str, list[str]]:
        async with OpenAIClient(providers[name].base_url, "", timeouts=QUICK) as client:
            with suppress(ModelError):
                return name, await client.models()
        return name, []

    return list(await asyncio.gather(*map(ask, SERVERS)))


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of testing one capability of an endpoint. `value`: whether the endpoint has it;
    None if the test was inconclusive; `note`: what the endpoint did."""

    value: bool | None
    note: str


ProbeFindings: TypeAlias = dict[str, Finding]
"""The results by capability, with the names of `PROBES`."""


@dataclass(frozen=True, slots=True)
class EndpointCapabilities:
    """The result of testing an endpoint.

    Attributes:
        answers: Whether the endpoint answers at all.
        models: The names of the models that it lists.
        findings: A result for each capability; empty for an embedder or if the endpoint does not
            answer.
        refused: The fields of requests that it does not accept.
    """

    answers: Finding
    models: tuple[str, ...]
    findings: ProbeFindings
    refused: tuple[str, ...] = ()


async def probe_endpoint(client: OpenAIClient | Encoder) -> EndpointCapabilities:
    """Probe an endpoint with at most six short calls. Refusals are findings, not errors."""
    if isinstance(client, Encoder):
        return EndpointCapabilities(await _probe_embedder(client), (), {})
    models: tuple[str, ...] = ()
    with suppress(ModelError):  # some endpoints have no such list and answer all the same
        models = tuple(await client.models())
    findings: ProbeFindings = {}

    try:
        if not client.chats:
            decides = await _probe_decisions(client, {})
            answers = Finding(decides.value, "a decision model, which does not chat")
            return EndpointCapabilities(answers, models, {"decisions": decides})

        answer = await client(_question("Say hello."))
    except ModelError as error:
        answers = Finding(False, str(error))
        if isinstance(error, RejectedError) and (embeds := await _probe_embedder(client)).value:
            answers = embeds
        return EndpointCapabilities(answers, models, {})

    for capability, probe in PROBES.items():
        try:
            findings[capability] = await probe(client, findings)
        except ModelError as error:
            findings[capability] = Finding(None, str(error))

    answers = Finding(True, describe_fault(answer, may_be_cut=True) or "it answers")

    return EndpointCapabilities(answers, models, findings, tuple(sorted(client.refused)))


def _question(text: str) -> Request:
    return Request(messages=(Message("user", (text,)),), max_tokens=64)


async def _probe_schema(client: OpenAIClient, _findings: ProbeFindings) -> Finding:
    """Probe JSON schemas: ask for a greeting under a schema that allows only a number. An answer
    with a number shows that the endpoint follows schemas."""
    answer = await client(replace(_question("Say hello."), schema=DIGIT))
    if client.schema is False:
        return Finding(False, "the endpoint refuses a JSON schema")
    try:
        followed = isinstance(json.loads(answer.text)["digit"], int)
    except (ValueError, KeyError, TypeError):
        followed = False

    if answer.finish_reason == "length" and not followed:
        return Finding(None, "the answer was cut before it could be read")

    return Finding(
        followed, "followed" if followed else "accepted, but the answer does not follow it"
    )


async def _probe_logprobs(client: OpenAIClient, _findings: ProbeFindings) -> Finding:
    try:
        answer = await client(word_request(_question(WORD_TRIAL).messages, None))
    except CapabilityError as error:
        return Finding(False, str(error))

    if not answer.logprobs:
        return Finding(None, describe_fault(answer, may_be_cut=True))
    return Finding(True, f"{len(answer.logprobs[0].top)} alternatives a token")


async def _probe_decisions(client: OpenAIClient, findings: ProbeFindings) -> Finding:
    """Test whether the model answers typed questions by its provider's decision protocol, or by its
    log-probabilities. An endpoint may give them and yet answer in a form that cannot be read, or
    that is read as another verdict, so the question is one whose answer is known."""
    wire = client.decision_wire
    request = decision_request("A clear day in summer.", (TRIAL,))

    if wire is not None:
        note = f"natively, by {WIRES[wire]}"
        response = await client(request)
    else:
        note = "emulated by log-probabilities"
        if not findings["log-probabilities"].value:
            return Finding(findings["log-probabilities"].value, note)
        response = await emulate(client, request)

    answer = read_decision(response, (TRIAL,)).answers[TRIAL.name]
    if isinstance(answer, Failure):
        return Finding(False, f"{note}, but {answer.reason}")
    if answer.share <= UNDECIDED:
        text = f"{answer.share:.0%} yes to '{TRIAL.instructions}'"
        return Finding(False, f"{note}, but a plain question is answered wrongly: {text}")

    return Finding(True, note)


PROBES: Mapping[str, Callable[[OpenAIClient, ProbeFindings], Awaitable[Finding]]] = {
    "JSON schema": _probe_schema,
    "log-probabilities": _probe_logprobs,
    "decisions": _probe_decisions,
}
"""The tests of an endpoint's capabilities by name, in the order in which they are made."""


async def _probe_embedder(model: Model) -> Finding:
    """Probe whether a model returns embeddings."""
    try:
        return Finding(True, f"it embeds: {await probe_dimension(model)} numbers a text")
    except ModelError as error:
        return Finding(False, str(error))
