"""The client of one endpoint: chat, embeddings, decisions and the list of models. It chats by the
OpenAI protocol or another `ChatWire`.

One call is one attempt: retries, limits, budget and journal are wrappers around this model. Its
HTTP connections are in `connections`.

llama.cpp's server tokenises texts, accepts grammars made of tokens, and reports log-probabilities
as they were before a grammar is applied. So the client can force the model to write a given text,
token by token, and read the likelihood of that text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from time import perf_counter
from typing import Any, Self, TypedDict, TypeVar, Unpack

from pydantic import BaseModel, NonNegativeInt, SecretStr, ValidationError
from yarl import URL

from textevolve.errors import (
    AccessError,
    AnswerError,
    CapabilityError,
    ModelError,
    RejectedError,
    TooLongError,
    UnavailableError,
)
from textevolve.evaluation import ANSWERED_BY
from textevolve.ledger import log
from textevolve.llm.connections import CONNECTIONS, Http, without_signs
from textevolve.llm.decisions import Wire, dump_answers, load_questions
from textevolve.llm.limiting import MARK_FIELD, add_hints, note_headers
from textevolve.llm.meter import SentCall, note_failure
from textevolve.llm.model import Request, Response
from textevolve.llm.prices import find_price, usage_of
from textevolve.llm.prompts import estimate_text, find_cut, prompt_tokens
from textevolve.llm.providers import SETTINGS, Endpoint, Key, normalise_url
from textevolve.llm.refusals import (
    NO_MODEL,
    SCHEMA_FIELD,
    Refusal,
    decides_only,
    error_object,
    is_failed_generation,
    may_refuse_schema,
    most_answer_tokens,
    no_images,
    read_refusal,
    refused_field,
    status_of,
    without_logprobs,
)
from textevolve.llm.structured import is_lost
from textevolve.llm.wire import EventStream, as_response, chat_body, dump_vector, telling
from textevolve.llm.wrappers import ProgressWatch
from textevolve.protocol.chat import STREAMED, Completion, Embeddings, ModelList, encode
from textevolve.protocol.chat_wires import CHAT_WIRES
from textevolve.protocol.contents import ReportedUsage, answer_ending
from textevolve.protocol.decisions import WIRES, DecisionAnswer, read_answers, write_questions
from textevolve.settings import LARGEST_ANSWER, ChatWireName, Price, PromptCache, Timeouts

Shape = TypeVar("Shape", bound=BaseModel)
LISTED = 20
"""The most models of an endpoint that an error message lists."""
LEFT_OUT = {
    "seed": "a seed, so that another run may give other answers",
    "temperature": "a temperature, so that answers are drawn at its own",
    "schema": "a JSON schema, so that the prompt alone asks for the form of an answer",
}
"""The warning, given once, for each field whose absence from a request can change answers, if an
endpoint does not accept it."""


class EndpointOptions(TypedDict, total=False):
    """The options of a client.

    Attributes:
        name: The spec that identifies the model everywhere.
        extra: Fields added to the body of each chat request, such as `{"cache_prompt": True}`.
        watched: The endpoint is llama.cpp's server in this process: a call may take any time as
            long as the server makes progress.
        decisions: The protocol for requests with typed questions; None: the endpoint has none.
        chats: False for a model that only answers typed questions.
        decision_price: The price of decisions, if it differs from the price of chats.
        prompt_cache: How shared beginnings of prompts are marked for the endpoint's cache.
        wire: The protocol of chats, by its name in `CHAT_WIRES`.
        headers: Additional headers of each request; their values count as secrets, except short
            ones from the settings.
        reports_cost: Whether the cost that the endpoint or LiteLLM's proxy reports for a call
            counts before the price.
    """

    name: str | None
    key: Key | SecretStr | None
    timeouts: Timeouts | None
    price: Price | None
    max_tokens_field: str
    extra: Mapping[str, Any] | None
    largest_answer: int
    watched: bool
    decisions: Wire | None
    chats: bool
    decision_price: Price | None
    prompt_cache: PromptCache
    wire: ChatWireName
    headers: Mapping[str, Key] | None
    reports_cost: bool


class OpenAIClient:
    """A `Model` behind one endpoint. Use it in `async with`, or call `aclose` at the end.

    Without a price the cost of a call is unknown unless the endpoint reports it. Each call raises
    `UnavailableError` (worth another try), `AccessError`, `CapabilityError`, `TooLongError`,
    `RejectedError`, or `AnswerError` if the answer is larger than `largest_answer` MiB.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        **options: Unpack[EndpointOptions],
    ) -> None:
        self.base_url = normalise_url(base_url)
        self.model = model
        self.name = options.get("name") or f"{self.base_url}#{model}"
        limits = options.get("timeouts") or Timeouts()
        self._wire = CHAT_WIRES[options.get("wire", "chat")]
        headers = {n: Key(SecretStr(text), SETTINGS) for n, text in self._wire.headers.items()}
        key = options.get("key")
        if self._wire.key_header and isinstance(key, Key) and key.renew is None:
            headers[self._wire.key_header] = key
            key = None
        self._http = Http(
            self.name,
            self.base_url,
            key,
            limits,
            CONNECTIONS,
            options.get("largest_answer", LARGEST_ANSWER),
            headers | dict(options.get("headers") or {}),
        )
        self._reports_cost = options.get("reports_cost", False)
        self._watch: ProgressWatch | None = None
        if options.get("watched"):
            self._watch = ProgressWatch(self.name, self._look, limits.read)
        self._price = options.get("price")
        self._max_tokens_field = options.get("max_tokens_field", "max_tokens")
        self._extra = dict(options.get("extra") or {})
        self._text_url = URL(self.base_url + self._wire.path)
        self.chats = options.get("chats", True)
        self.decision_wire: Wire | None = options.get("decisions")
        self._decision_price = options.get("decision_price") or self._price
        self._prompt_cache: PromptCache = options.get("prompt_cache", "none")
        self._warned: set[str] = set()
        self._refused: set[str] = set()
        self._refused_temperatures: set[float] = set()
        self._most_tokens: int | None = None
        self._refused_schemas: set[str] = set()
        self._followed: bool | None = None
        # Only llama.cpp's server forces tokens.
        self._forces: bool | None = False if self._wire.write else None

    @property
    def http(self) -> Http:
        """Return the client's HTTP connections, for other requests to the endpoint."""
        return self._http

    @property
    def refused(self) -> frozenset[str]:
        """Return the protocol fields that the endpoint has refused, which are no longer sent. Of
        JSON schemas and temperatures only the refused ones are left out."""
        more = {"temperature"} if self._refused_temperatures else set[str]()
        return frozenset(self._refused | more)

    @property
    def schema(self) -> bool | None:
        """Return whether the endpoint accepts a JSON schema; None before the first request with
        one."""
        return False if self._refused_schemas and not self._followed else self._followed

    def __repr__(self) -> str:
        return f"OpenAIClient({self.name!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self._http.aclose()

    async def __call__(self, request: Request, /) -> Response:
        if request.embeds:
            return await self._embed(request)
        if request.questions is not None:
            return await self._decide(request)
        if not self.chats:
            raise decides_only(self.name, "it answers typed questions alone")
        if request.forced and (forced := await self._force(request, request.forced)) is not None:
            return forced
        return (await self._chat(request))[0]

    async def _decide(self, request: Request) -> Response:
        """Send the typed questions of a request to the decision endpoint; return the response with
        the answers.

        Raises:
            CapabilityError: the endpoint has no decision protocol.
            TooLongError: the state is longer than the model's context.
        """
        wire = self.decision_wire
        state = request.messages[-1]

        if wire is None:
            raise CapabilityError(
                f"{self.name}: not known as a decision model; use a decision model or a model"
                " with log-probabilities, or set `decisions`, its protocol, in the settings of"
                " its provider"
            )

        if state.images:
            raise no_images(self.name, "decisions are about texts alone")
        questions = load_questions(request.questions or "[]")
        started = perf_counter()
        body = encode(write_questions(wire, self.model, state.text, questions))
        estimate = estimate_text(state.text), 0
        answer = None

        with SentCall(estimate[0], self._decision_price) as sent:
            status, headers, raw = await self._post(URL(f"{self.base_url}/{wire}"), body)
            sent.answered = True
            scrub = self._http.scrub
            refusal = None if status == 200 else sent.read_refusal(raw, scrub)
            if status == 200:
                with suppress(ValidationError):
                    answer = DecisionAnswer.model_validate_json(raw)
            is_error = answer is not None and bool(answer.error)
            reported = None if answer is None else answer.usage
            if reported is not None and not is_error:
                # Decisions write no text.
                written = reported.completion_tokens or 0
                reported = reported.model_copy(update={"completion_tokens": written})
                sent.usage = usage_of(reported, self._decision_price, estimate=estimate)
            if status == 200 and not is_error and (answer is None or answer.answers is None):
                self._http.refuse_page(raw)
                raise UnavailableError(
                    f"{self.name}: status 200, but the body has no decisions:"
                    f" {self._http.describe_body(raw)}"
                )

        if answer is not None and answer.error:
            refusal = error_object(answer.error)
            status = status_of(refusal, 502)
        if refusal is not None:
            failed = self._http.failure(status, refusal, headers)
            if isinstance(failed, TooLongError):
                raise TooLongError(
                    f"{failed}; set `context`, the most tokens that the model takes, in the"
                    " settings of its provider, and longer states are cut"
                )

            if status == 501:
                raise CapabilityError(f"{failed}: the endpoint does not support {WIRES[wire]}")
            raise failed

        assert answer is not None  # else it is an error above
        assert answer.answers is not None
        self._http.answered = True
        used = sent.usage or usage_of(None, self._decision_price, estimate=estimate)
        rows, failed = read_answers(answer.answers, questions)
        text = dump_answers(rows, failed)
        seconds = perf_counter() - started
        response = Response(text, "stop", used, seconds=seconds)

        return self._note_usage(response, request, reported)

    async def _chat(
        self, request: Request, more: dict[str, Any] | None = None
    ) -> tuple[Response, Completion]:
        """Send a chat request; return the response and the completion that it was read from. Fields
        that the endpoint refuses are no longer sent from then on, except those in `more`. A refusal
        that may be about the schema is settled by one try without it."""
        if request.top_logprobs and not self._wire.has_logprobs:
            raise without_logprobs(self.name, "its protocol has none")
        doubted: ModelError | None = None
        reason = ""
        write = self._wire.write
        while True:
            body = self.body(request) | (more or {})
            if doubted is not None:
                body.pop(SCHEMA_FIELD, None)
            started = perf_counter()
            events = self._listen(body)
            received = str if events is None else events.received
            with SentCall(prompt_tokens(request), self._price, received) as sent:
                hears = events and events.feed
                encoded = encode(write(body) if write else body)
                status, headers, raw = await self._post(self._text_url, encoded, hears)
                outcome = self._read_outcome(status, raw, sent, events)
                if isinstance(outcome, Completion):
                    if doubted is not None:
                        self._refuse_schema(request, reason)
                    self._read_gateway_headers(outcome, headers)
                    seconds = perf_counter() - started
                    return self._response(outcome, request, seconds, sent), outcome

            try:
                self._leave_out(*outcome, body, request, headers)
            except ModelError as error:
                status, refusal = outcome
                asks = SCHEMA_FIELD in body and not is_failed_generation(refusal)
                if asks and may_refuse_schema(status, refusal):
                    doubted = error
                    reason = refusal.message
                    continue
                if isinstance(error, AccessError):
                    raise await self._with_models(error) from None
                # A limit says nothing about the schema; any other second refusal clears it.
                raise error if isinstance(error, UnavailableError) else doubted or error from None

    async def _with_models(self, error: AccessError) -> AccessError:
        """Return the error; if the endpoint does not know the model, with the names of the models
        it lists."""
        names: list[str] = []
        if NO_MODEL in str(error):
            with suppress(ModelError):
                names = list(map(self._http.scrub, await self.models()))
        if not names:
            return error
        more = [f"and {len(names) - LISTED} more"] if len(names) > LISTED else []

        return AccessError("\n  ".join([f"{error}; it serves:", *names[:LISTED], *more]))

    def _read_gateway_headers(self, completion: Completion, headers: Mapping[str, str]) -> None:
        """Add LiteLLM's report on an answer to the response: its cost, and whether a fallback model
        answered."""
        fallbacks = headers.get("x-litellm-attempted-fallbacks", "")
        if fallbacks.strip("0").isdecimal() and (completion.model or self.model) == self.model:
            completion.model = "a fallback without a name"
        if self._reports_cost and (cost := headers.get("x-litellm-response-cost")):
            reported = ReportedUsage.model_validate_strings({"cost": cost})
            completion.usage = completion.usage or reported
            completion.usage.cost = completion.usage.cost or reported.cost

    def _leave_out(
        self,
        status: int,
        refusal: Refusal,
        body: Mapping[str, Any],
        request: Request,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Stop sending the field or the value that the endpoint refused, and warn once if that
        changes answers. Raise the refusal if nothing in it can be left out: log-probabilities
        cannot, and whether a schema is refused is settled by a try without it."""
        sent = {*body, MARK_FIELD} if self._prompt_cache == "breakpoints" else body.keys()
        field = refused_field(status, refusal, sent)
        words = self._http.scrub(refusal.message)
        most = most_answer_tokens(status, refusal)
        limit = body.get("max_tokens") or body.get("max_completion_tokens") or 0

        if most is not None and most < limit:
            self._most_tokens = most
            self._warn_once("limit", f"allows at most {most} tokens of an answer ({words})")
        elif field == "logprobs":
            raise without_logprobs(self.name, words)
        elif field == "temperature":
            # Another temperature may be accepted: some take the default alone, others a range.
            self._refused_temperatures.add(body["temperature"])
            self._warn_once(field, f"refuses {LEFT_OUT[field]} ({words})")
        elif field is None or field == SCHEMA_FIELD:
            images = any(message.images for message in request.messages)
            raise self._http.failure(status, refusal, headers, images)
        else:
            self._refused.add(field)
            if field in LEFT_OUT:
                self._warn_once(field, f"refuses {LEFT_OUT[field]} ({words})")

    def _refuse_schema(self, request: Request, reason: str) -> None:
        """Send this schema no more, after an answer to a request without it."""
        self._refused.add(SCHEMA_FIELD)
        if request.schema is not None:
            self._refused_schemas.add(request.schema)
        self._warn_once("schema", f"refuses {LEFT_OUT['schema']} ({self._http.scrub(reason)})")

    def _warn_once(self, kind: str, text: str) -> None:
        if kind not in self._warned:
            self._warned.add(kind)
            log.warning("%s: the endpoint %s", self.name, text)

    def read_batched(
        self, status: int, raw: bytes, request: Request, seconds: float
    ) -> Response | None:
        """Read the answer in a line of a batch job; None if the endpoint refused a field and the
        request is to be sent again without it.

        Raises:
            ModelError: the line holds an error, which is raised as for a single call.
        """
        with SentCall(prompt_tokens(request), self._price) as sent:
            outcome = self._read_outcome(status, raw, sent)
            if isinstance(outcome, Completion):
                return self._response(outcome, request, seconds, sent)
        refusal = outcome[1]
        body = self.body(request) | dict.fromkeys(self._refused)
        # The next job decides whether the schema is refused.
        if SCHEMA_FIELD in body and refused_field(*outcome, body.keys()) == SCHEMA_FIELD:
            self._refuse_schema(request, refusal.message)
        else:
            self._leave_out(*outcome, body, request)

        return None

    async def _force(self, request: Request, text: str) -> Response | None:
        """Return the answer that is forced to be this text, token by token; None if the endpoint
        cannot do that, as older servers. From then on a schema is used instead."""
        tokens = await self._find_tokens(text)
        if tokens is None:
            return None
        grammar, most = token_grammar(tokens)
        forced_request = replace(request, schema=None, max_tokens=most)

        try:
            response, completion = await self._chat(forced_request, {"grammar": grammar})
        except RejectedError as error:
            if self._forces or isinstance(error, TooLongError):
                raise
            self._forces = False
            return None

        forced = forced_response(response, completion, tokens, text)
        self._forces = self._forces or forced is not None
        if forced is None:
            note_failure(response.usage, "the answer is not the forced text")

        return forced

    def _listen(self, body: Mapping[str, Any]) -> EventStream | None:
        """Return the reader of a streamed answer; None if the request does not ask for a stream."""
        heard = telling() if "stream" in body else None
        if heard is None:
            return None
        return EventStream(self.name, heard, self._http.without_key, self._wire)

    async def _post(
        self, url: URL, body: bytes, hears: Callable[[bytes], bool] | None = None
    ) -> tuple[int, Mapping[str, str], bytes]:
        if self._watch is None:
            status, headers, raw = await self._http.exchange("POST", url, body, hears=hears)
            note_headers(headers)
            return status, headers, without_signs(raw)

        sent = self._http.exchange("POST", url, body, unbounded=True, hears=hears)
        return await self._watch.follow(sent)

    async def _look(self) -> bytes:
        """Return the state of the slots of llama.cpp's server, which changes while they make
        progress."""
        return (await self._exchange_natively("/slots"))[2]

    async def _find_tokens(self, text: str) -> list[Token] | None:
        """Return the text's tokens; None if they cannot be forced, or if the endpoint cannot force
        tokens at all, as servers other than llama.cpp's. Then it is not asked again."""
        if self._forces is False or not is_encodable(text):
            return None
        # Control tokens are treated as plain text.
        body = {"content": text, "add_special": False, "parse_special": False, "with_pieces": True}
        status, headers, raw = await self._exchange_natively("/tokenize", body)
        if status in (429, 503):
            raise self._http.failure(status, read_refusal(raw), headers)
        tokens: list[Token] = []
        if status == 200:
            with suppress(ValidationError):
                tokens = _Tokens.model_validate_json(raw).tokens
        if not tokens:
            self._forces = False

        return tokens if can_force(tokens, text) else None

    async def _embed(self, request: Request) -> Response:
        texts = [request.messages[-1].text]
        started = perf_counter()
        body = encode({"model": self.model, "input": texts, "encoding_format": "float"})
        prompt = prompt_tokens(request)

        with SentCall(prompt, self._price) as sent:
            answer = await self._ask("POST", "/embeddings", body, Embeddings, sent)
            # An embedding has no tokens of an answer.
            reported = (answer.usage or ReportedUsage()).model_copy(update={"completion_tokens": 0})
            used = usage_of(reported, self._price, None, (prompt, 0), self._reports_cost)
            sent.usage = used
            if len(answer.data) != 1:
                raise AnswerError(
                    f"{self.name}: the endpoint gave {len(answer.data)} embeddings for one text"
                )

        self._http.answered = True
        text = dump_vector(answer.data[0].embedding)
        response = Response(text, "stop", used, seconds=perf_counter() - started)
        response = self._note_usage(response, request, reported)
        if is_lost(response):
            raise UnavailableError(
                f"{self.name}: the embedding is empty, or has only zeros or no finite numbers"
            )

        return response

    async def _exchange_natively(
        self, path: str, body: Mapping[str, Any] | None = None
    ) -> tuple[int, Mapping[str, str], bytes]:
        url = URL(self.base_url.removesuffix("/v1") + path)
        sent = None if body is None else encode(body)
        return await self._http.exchange("GET" if sent is None else "POST", url, sent)

    async def models(self) -> list[str]:
        """List the names of the models that the endpoint serves."""
        model_list = await self._ask("GET", "/models", None, ModelList)
        return [model.id for model in model_list.data or model_list.models or ()]

    def body(self, request: Request) -> dict[str, Any]:
        """Return the body of a request, without the fields that the endpoint refused before."""
        field = self._max_tokens_field
        if field in self._refused:
            # Servers know one of the two names: newer ones of OpenAI this, most others that.
            other = "max_tokens" if field == "max_completion_tokens" else "max_completion_tokens"
            field = field if other in self._refused else other
        body = chat_body(self.model, request, field) | self._extra
        if self._wire.default_tokens is not None:
            body.setdefault(field, self._wire.default_tokens)
        if self._most_tokens is not None and field in body:
            body[field] = min(body[field], self._most_tokens)
        if body.get("temperature") in self._refused_temperatures:
            del body["temperature"]
        if telling() is not None and request.forced is None and "stream" not in self._refused:
            body |= STREAMED
        if self._prompt_cache != "none":
            add_hints(body, request, self._prompt_cache, self._refused)
        for name in self._refused:
            # One schema may be too much for an endpoint that takes others.
            if name != SCHEMA_FIELD or request.schema in self._refused_schemas:
                body.pop(name, None)

        return body

    def _read_outcome(
        self, status: int, raw: bytes, sent: SentCall, events: EventStream | None = None
    ) -> Completion | tuple[int, Refusal]:
        """Return the completion, or the endpoint's refusal with its status; some endpoints send a
        refusal with status 200."""
        if status != 200:
            return status, sent.read_refusal(raw, self._http.scrub)
        completion = events and events.completion()
        sent.answered = True
        if completion is None:
            try:
                completion = self._wire.read(raw)
            except (ValueError, RecursionError):
                completion = None
        error = completion and completion.failure
        reported = completion and completion.usage
        is_whole = completion is not None and completion.choices and not error
        if completion is not None and not is_whole and reported and reported.prompt_tokens:
            # Even half an answer, or one without a choice, is billed once it names its tokens.
            sent.usage = usage_of(reported, self._price, completion.timings)
        if completion is None or not (error or completion.choices):
            self._http.refuse_page(raw)
            raise UnavailableError(
                f"{self.name}: status 200, but the body is not a chat completion:"
                f" {self._http.describe_body(raw)}"
            )

        if not error:
            return completion
        # Half of an answer is a failed call, which is tried again like any error of a server.
        refusal = error_object(error)
        sent.failure = self._http.scrub(refusal.message)

        return status_of(refusal, 502), refusal

    def _response(
        self, completion: Completion, request: Request, seconds: float, sent: SentCall
    ) -> Response:
        response = as_response(completion, seconds, self._price, sent.prompt, self._reports_cost)
        sent.usage = response.usage
        self._http.answered = True

        if request.top_logprobs and completion.has_unreadable_logprobs:
            raise UnavailableError(
                f"{self.name}: the log-probabilities in the answer cannot be read"
            )
        if completion.model not in (None, "", self.model) and self._watch is None:
            name = f"{self.name}{ANSWERED_BY}{self._http.scrub(completion.model)}"
            response = replace(response, usage=replace(response.usage, models={name: 1}))
        lacks_logprobs = request.top_logprobs and response.text and not response.logprobs
        if lacks_logprobs and answer_ending(response.finish_reason) in ("whole", "cut"):
            raise without_logprobs(self.name, "requested, but missing in the answer")
        if request.schema is not None and request.schema not in self._refused_schemas:
            self._followed = True

        return self._note_usage(response, request, completion.usage)

    def _note_usage(
        self, response: Response, request: Request, reported: ReportedUsage | None
    ) -> Response:
        """Warn once if the endpoint does not report the usage of its calls, or has probably cut
        this prompt, which is noted in the usage, too."""
        if response.usage.estimated or reported is None:
            self._warn_once("usage", "reports no token counts; limits use estimates from the texts")
            return response
        counted = reported.whole_prompt
        tokens = find_cut(request, counted)
        if not tokens:
            return response
        self._warn_once(
            "cut",
            f"counted {counted:,} tokens of a prompt of about {tokens:,}, so it has probably cut it"
            " and answers a part; raise the context of the server (of Ollama:"
            " OLLAMA_CONTEXT_LENGTH), or shorten the input",
        )

        return replace(response, usage=replace(response.usage, cut_prompts=1))

    async def _ask(
        self,
        method: str,
        path: str,
        body: bytes | None,
        shape: type[Shape],
        sent: SentCall | None = None,
    ) -> Shape:
        url = URL(self.base_url + path)
        status, headers, raw = await self._http.exchange(method, url, body)
        raw = without_signs(raw)
        sent = sent or SentCall(0, None)
        sent.answered = True
        if status != 200:
            refusal = sent.read_refusal(raw, self._http.scrub)
            raise self._http.failure(status, refusal, headers)
        parsed = None
        with suppress(ValidationError):
            parsed = shape.model_validate_json(raw)
        if parsed is None:
            self._http.refuse_page(raw)
            raise UnavailableError(
                f"{self.name}: {path} sent an invalid answer: {self._http.describe_body(raw)}"
            )

        return parsed


def connect(
    endpoint: Endpoint,
    timeouts: Timeouts,
    largest_answer: int = LARGEST_ANSWER,
    watched: bool = False,
    price_of: Callable[[Endpoint], Price | None] = find_price,
) -> OpenAIClient:
    """Return the client of a resolved endpoint, without sending anything. `watched`: the endpoint
    is llama.cpp's server in this process, whose calls may take any time while it makes progress.
    `price_of`: returns the price of chats."""
    effort = endpoint.reasoning_effort
    return OpenAIClient(
        endpoint.base_url,
        endpoint.model,
        name=endpoint.spec,
        key=endpoint.key,
        timeouts=timeouts,
        price=price_of(endpoint),
        max_tokens_field=endpoint.max_tokens_field,
        largest_answer=largest_answer,
        watched=watched,
        decisions=endpoint.decisions,
        chats=endpoint.chats,
        decision_price=find_price(endpoint, decides=True),
        extra={"reasoning_effort": effort} if effort is not None else None,
        prompt_cache=endpoint.prompt_cache,
        wire=endpoint.wire,
        headers=endpoint.headers,
        reports_cost=endpoint.reports_cost and endpoint.price is None,
    )


class Token(BaseModel):
    """A token in llama.cpp's answer to `/tokenize`. `piece`: the text of the token, or its bytes if
    it is only a part of a character."""

    id: NonNegativeInt
    piece: str | list[int]

    @property
    def bytes(self) -> bytes:
        return self.piece.encode() if isinstance(self.piece, str) else bytes(self.piece)


class _Tokens(BaseModel):
    tokens: list[Token]


def is_encodable(text: str) -> bool:
    """Return whether a tokeniser accepts the text, which must have no lone surrogates."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def can_force(tokens: list[Token], text: str) -> bool:
    """Check whether the tokens form the text, perhaps after the space that some tokenisers add, and
    none is empty or begins with NUL, which llama.cpp's grammars do not allow."""
    joined = b"".join(token.bytes for token in tokens)
    matches = joined in (text.encode(), b" " + text.encode())
    return matches and all(token.bytes[:1].strip(b"\0") for token in tokens)


def token_grammar(tokens: list[Token]) -> tuple[str, int]:
    """Return the grammar that allows only these tokens, and the most tokens that the answer can
    have.

    A token without a whole character cannot be in a grammar; such a character is written as itself,
    and the model chooses its tokens.
    """
    signs: list[str] = []
    most = 0
    pending: list[Token] = []

    for token in tokens:
        pending.append(token)
        joined = b"".join(part.bytes for part in pending)
        try:
            characters = joined.decode()
        except UnicodeDecodeError:
            continue

        most += 1 if len(pending) == 1 else len(joined)
        escaped = "".join(f"\\U{ord(character):08X}" for character in characters)
        signs.append(f"<[{token.id}]>" if len(pending) == 1 else f'"{escaped}"')
        pending.clear()

    return f"root ::= {' '.join(signs)}", most


def forced_response(
    response: Response, completion: Completion, tokens: list[Token], text: str
) -> Response | None:
    """Return the response with the forced text and its tokens alone; None if it has another text,
    as from a server that accepts a grammar and ignores it."""
    expected = b"".join(token.bytes for token in tokens)
    written = b""

    for number, token_bytes in enumerate(completion.token_bytes, 1):
        written += token_bytes
        if written == expected:
            # What follows the text is of no interest, unless a filter has stopped the answer.
            is_whole = answer_ending(response.finish_reason) in ("whole", "cut")
            reason = "stop" if is_whole else response.finish_reason
            return replace(
                response, text=text, finish_reason=reason, logprobs=response.logprobs[:number]
            )

    return None
