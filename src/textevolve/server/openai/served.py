"""`POST /v1/embeddings`: embeddings of texts by a served model, as numbers or in base64."""

from __future__ import annotations

import asyncio
import base64
import json
from array import array
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from textevolve.agents.chat import AgentChat, ChatAnswer, HistoryShortened, SessionMessage
from textevolve.desk.chats import ChatOptions, ChatRequest, MemoryUse
from textevolve.engine.local import gather_bounded
from textevolve.errors import InputError
from textevolve.evaluation import Case, EvaluationResult, Failure, check_case, check_text
from textevolve.json_texts import CONTAINERS, is_mapping, parse_text, write_text
from textevolve.llm.embeddings import embed
from textevolve.llm.model import Message, Model
from textevolve.llm.wire import AnswerPiece
from textevolve.mappings import omit, read_fields
from textevolve.memory.recall_settings import RecallSettings
from textevolve.protocol.chat import (
    ChatBody,
    ClientMessage,
    JsonObject,
    read_calls,
    write_embeddings,
)
from textevolve.server.decisions.serving import (
    DecidingJudge,
    Serving,
    failure_error,
    read_state,
    spending,
)
from textevolve.server.errors import ApiError, bad_request, log
from textevolve.server.identity import Caller
from textevolve.server.openai.requests import (
    AnswerEnd,
    AnswerPieces,
    NoteTokens,
    describe_unheeded,
    pair_texts,
    read_shape,
    write_left_out,
)
from textevolve.server.state import ServerState
from textevolve.store import kinds

MOST_TEXTS = 2048
"""The most texts in one request, as in OpenAI's API."""
AT_ONCE = 64


class EmbeddingRequest(BaseModel):
    """`input`: one text or several."""

    model: str
    input: str | Annotated[list[str], Field(min_length=1, max_length=MOST_TEXTS)]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[int, Field(ge=1)] | None = None


async def embed_for(model: Model, body: JsonObject, note: NoteTokens) -> JsonObject:
    """Answer a request for embeddings, with a journaled call for each text; `note` is called with
    the tokens.

    Raises:
        ApiError: the request is invalid, or the vectors do not have the requested dimensions.
    """
    request = read_shape(EmbeddingRequest, body)
    texts = [request.input] if isinstance(request.input, str) else request.input
    for text in texts:
        check_text("the input", text)
    with spending(note) as spent:
        calls = [lambda text=text: embed(model, text) for text in texts]
        vectors = await gather_bounded(calls, AT_ONCE)
    for vector in vectors:
        if request.dimensions not in (None, len(vector)):
            raise bad_request(
                f"embeddings of {request.model} have {len(vector)} dimensions, not"
                f" {request.dimensions}",
                param="dimensions",
            )

    write = _encode if request.encoding_format == "base64" else list[float]
    vectors_written = list(map(write, vectors))
    answer = write_embeddings(request.model, vectors_written, spent.usage.prompt_tokens)
    left_out = write_left_out(describe_unheeded(body, EmbeddingRequest.model_fields))

    return {**answer, "metadata": left_out} if left_out else answer


def _encode(vector: Sequence[float]) -> str:
    """Write a vector as little-endian floats of 32 bits."""
    return base64.b64encode(array("f", vector).tobytes()).decode()


# Judges as models of chat completions: a judge scores a part of the conversation, and answers with
# its result as JSON.

CANDIDATES = "candidates"
UNKNOWN_INPUT = "Judge this text."
_TEXTS = TypeAdapter(Annotated[tuple[str, ...], Field(min_length=1)])


def read_case(request: ChatBody, judge: DecidingJudge) -> tuple[Case, str]:
    """Return the case to judge and the rubric, which is empty for the judge's own.

    Raises:
        ApiError: the request has no case. InputError: a text is blank.
    """
    turns = [
        {"role": message.role, "content": text} for message, text in pair_texts(request.messages)
    ]
    rubric = (request.metadata or {}).get("rubric", "")
    end = turns[-1]
    last = parse_text(end["content"], CONTAINERS) if end["role"] == "user" else None

    if is_mapping(last):
        case = _read_object(last)
    else:
        case, asks = _read_judged_exchange(turns)
        rubric = rubric or asks

    if rubric and not judge.takes_rubric:
        raise bad_request(
            "this judge takes no rubric: the last message must be the reply that it judges",
            param="messages",
        )

    for name in judge.needs:
        if getattr(case, name) is None:
            raise bad_request(
                f"the judge needs a {name}: send a JSON object with input, output and {name}",
                param="messages",
            )

    check_case(case)

    return case, rubric


def _read_object(fields: Mapping[str, Any]) -> Case:
    """Read the case in a message that is a JSON object."""
    if CANDIDATES not in fields:
        return _read_state(fields)
    state = omit(fields, [CANDIDATES])
    try:
        candidates = _TEXTS.validate_python(fields[CANDIDATES])
    except ValidationError:
        raise bad_request("candidates must be a list of texts", param="messages") from None
    # A state has one output; the candidates take its place.
    return replace(read_state({**state, "output": candidates[0]}), candidates=candidates)


def _read_judged_exchange(turns: Sequence[Mapping[str, str]]) -> tuple[Case, str]:
    """Return the case in a conversation: the assistant's last reply as the output, with the
    messages before it. The messages after that reply are the rubric. Without a reply, the last
    message is judged as a whole."""
    replies = [n for n, turn in enumerate(turns) if turn["role"] == "assistant"]
    if not replies:
        return Case(UNKNOWN_INPUT, (turns[-1]["content"],)), ""
    after = [turn["content"] for turn in turns[replies[-1] + 1 :]]
    before = turns[: replies[-1] + 1]

    return _read_state(before), "\n".join(after)


def _read_state(state: object) -> Case:
    case = read_state(state)
    return replace(case, input=case.input or UNKNOWN_INPUT)


async def answer_as_judge(
    serving: Serving, judge: DecidingJudge, request: ChatBody, note: NoteTokens
) -> AsyncGenerator[str | AnswerEnd]:
    """Yield the judge's results as one piece of JSON, then the end of the answer.

    Raises:
        ApiError: the request is invalid, or no candidate could be judged.
    """
    case, rubric = read_case(request, judge)

    with serving.place(), spending(note) as spent:
        results = (await judge.open(rubric)(case)).result
        failures = [result for result in results if isinstance(result, Failure)]
        if len(failures) == len(results):
            raise failure_error(failures[0], spent)
        yield write_text(_write_results(results))
        yield AnswerEnd(usage=spent.usage)


def _write_results(results: Sequence[EvaluationResult | Failure]) -> dict[str, Any]:
    """Return the JSON of an answer: the results of all candidates, and the index, score, pass and
    feedback of the best one. At least one candidate must have a score."""
    scored = [(r.score, -n) for n, r in enumerate(results) if isinstance(r, EvaluationResult)]
    best = -max(scored)[1]
    written = list(map(_write_result, results))
    return {**written[best], "best": best, "results": written}


def _write_result(result: EvaluationResult | Failure) -> dict[str, Any]:
    if isinstance(result, Failure):
        return {"score": None, "passed": None, "feedback": None, "error": result.reason}
    return read_fields(result, "score", "passed", "feedback")


# Agents as models of chat completions: a request's metadata choose the session, the user and the
# settings of recall.

SESSION = "session"
MEMORY = "memory"
RECALL = "memory."
"""The names of fields in the metadata of a request and of an answer: the session's id, how memories
are used, and the prefix of settings of recall."""
ANSWER_TOKENS = 1024
"""The most tokens of an answer if the client sets no limit."""
CUT_END = f"the end of the answer (cut at {ANSWER_TOKENS:,} tokens; max_tokens allows more)"
NEW = "new"
"""The session's id in a request that creates a session; the answer contains the new id."""
USES: Mapping[str, MemoryUse] = {"on": "on", "recall": "recall", "off": "off"}


async def is_agent(server: ServerState, caller: Caller, name: str) -> bool:
    """Check whether an agent NAMESPACE/AGENT exists and the caller may see it."""
    namespace, _, agent = name.partition("/")
    if not agent or "/" in agent or not caller.sees(namespace):
        return False
    try:
        await asyncio.to_thread(server.resources.read, kinds.get, kinds.AGENTS, namespace, agent)
    except InputError:
        return False

    return True


async def answer_as_agent(
    server: ServerState, name: str, body: ChatBody, note: NoteTokens
) -> AnswerPieces:
    """Yield the pieces of an agent's answer to a chat completion, then the end of the answer.

    Raises:
        ApiError: the request is invalid, or names a session that does not exist.
    """
    request = read_chat_request(name, body)

    with server.serving.place(), spending(note):
        async with server.chats.hold_session(request.options.session, request.text) as is_repeated:
            chat = await _open_chat(server, request)
            answered = chat.answer_to(request.text) if is_repeated else None
            if answered is not None and not answered.details.interrupted:
                reason = answered.details.finish_reason or "stop"
                yield answered.text
                yield AnswerEnd(reason, None, {SESSION: chat.session})
                return
            own_limit = not (body.max_completion_tokens or body.max_tokens)
            async with aclosing(_answer(chat, request.text, own_limit=own_limit)) as pieces:
                async for piece in pieces:
                    yield piece


async def _open_chat(server: ServerState, request: ChatRequest) -> AgentChat:
    """Open the chat of a request; its session must be named by the complete id."""
    session = request.options.session
    chat = None

    try:
        chat = await server.chats.open(await server.chats.plan(request))
    except InputError:
        if session is None:
            raise

    if chat is None or session not in (None, chat.session):
        raise ApiError(
            404,
            "not_found",
            f"there is no session '{session}'; give the complete id",
            param="metadata.session",
        )

    return chat


def read_chat_request(name: str, body: ChatBody) -> ChatRequest:
    """Read the chat request in a chat completion.

    Raises:
        ApiError: the body has no message to answer, or its metadata is invalid.
    """
    messages = pair_texts(body.messages, tools=True)
    instructions = [text for message, text in messages if message.role in ("system", "developer")]

    # After the user's last message come the tool calls that answer it, and their results.
    of_user = (n for n, (message, _) in enumerate(messages, 1) if message.role == "user")
    end = max(of_user, default=0)
    exchange = _read_exchange(messages[end:])
    turns = _write_turns(messages[:end])

    if not turns or not turns[-1][1].strip() or exchange is None:
        raise bad_request(
            "the last message must have the role user, or be the result of a tool",
            param="messages",
        )

    metadata = body.metadata or {}
    session = metadata.get(SESSION) or None
    options = ChatOptions(
        agent=name,
        user=body.user or "",
        session=None if session == NEW else session,
        memory=metadata.get(MEMORY) != "off",
        answer_tokens=body.max_completion_tokens or body.max_tokens or ANSWER_TOKENS,
        temperature=body.temperature,
    )

    # A stored session has its own history, which the body's would repeat.
    history: list[SessionMessage] = []
    if not session:
        for n, (role, text) in enumerate(turns[:-1], 1):
            role = "user" if role == "user" else "assistant"
            history.append(SessionMessage(position=n, role=role, text=text, created=0.0))

    tools = None
    if body.tools:
        tools = json.dumps([tool.model_dump(exclude_unset=True) for tool in body.tools])

    return ChatRequest(
        options=options,
        text=turns[-1][1],
        history=tuple(history),
        keep=session == NEW,
        instructions="\n\n".join(filter(str.strip, instructions)),
        memory=_read_use(metadata),
        recall=_read_recall(metadata),
        schema=body.response_format and body.response_format.schema_text,
        tools=tools,
        tool_choice=body.called_tool if body.tools else None,
        exchange=exchange,
        seed=body.seed,
    )


def _write_turns(messages: Iterable[tuple[ClientMessage, str]]) -> list[tuple[str, str]]:
    """Return the role and text of each turn of a conversation. Earlier calls of tools and their
    results are lines of the assistant's turn: it made them, and a turn of their own would speak as
    the user."""
    turns: list[tuple[str, str]] = []
    tools: dict[str, str] = {}
    for message, text in messages:
        if message.role == "user":
            turns.append(("user", text))
            continue
        if message.role not in ("assistant", "tool"):
            continue

        lines = [text] if message.role == "assistant" and text.strip() else []
        for call in read_calls(message.tool_calls or ()):
            tools[call.id] = call.name
            lines.append(f"(called {call.name} with {call.arguments})")
        if message.role == "tool":
            tool = tools.get(message.tool_call_id or "", "a tool")
            lines.append(f"(result of {tool}: {text})")
        if lines and turns and turns[-1][0] == "assistant" and message.role == "tool":
            turns[-1] = ("assistant", "\n".join([turns[-1][1], *lines]))
        elif lines:
            turns.append(("assistant", "\n".join(lines)))

    return turns


def _read_exchange(messages: Sequence[tuple[ClientMessage, str]]) -> tuple[Message, ...] | None:
    """Return the tool calls and their results in these messages, after which the model continues;
    None if there is any other message, or no result at the end."""
    exchange: list[Message] = []
    for message, text in messages:
        if message.role in ("system", "developer"):
            continue
        if message.role == "assistant" and message.tool_calls:
            calls = read_calls(message.tool_calls)
            exchange.append(Message("assistant", (text,), tool_calls=calls))
        elif message.role == "tool" and exchange and message.tool_call_id:
            exchange.append(Message("tool", (text,), tool_call_id=message.tool_call_id))
        else:
            return None

    return tuple(exchange) if not exchange or exchange[-1].role == "tool" else None


def _read_recall(metadata: Mapping[str, str]) -> dict[str, str]:
    """Read the settings of recall. A client can change neither the collections of an agent nor
    whose memories it recalls."""
    overrides = {
        key.removeprefix(RECALL): v for key, v in metadata.items() if key.startswith(RECALL)
    }
    names = RecallSettings.model_fields.keys() - {"collections", "scope"}

    for key in overrides.keys() - names:
        raise bad_request(
            f"there is no setting memory.{key}; there are: {', '.join(sorted(names))}",
            param=f"metadata.memory.{key}",
        )

    try:
        RecallSettings.model_validate({"budget": 1000, **overrides})
    except InputError as error:
        raise bad_request(f"memory: {error}", param="metadata") from None

    return overrides


def _read_use(metadata: Mapping[str, str]) -> MemoryUse:
    mode = metadata.get(MEMORY, "on")
    if mode not in USES:
        raise bad_request(
            f"memory must be one of {', '.join(USES)}, not '{mode}'",
            param="metadata.memory",
        )

    return USES[mode]


async def _answer(
    chat: AgentChat, text: str, *, own_limit: bool
) -> AsyncGenerator[str | AnswerEnd]:
    """Yield the pieces of the answer. A client cannot take back text that was sent, so an answer
    that starts again must begin with the same text, or it fails. `own_limit`: whether the server
    set the most tokens of the answer, as the client set none."""
    sent = now = shortened = ""

    async with aclosing(chat.say(text)) as events:
        async for event in events:
            if isinstance(event, AnswerPiece):
                now = event.text if event.anew else now + event.text
                if not (now.startswith(sent) or sent.startswith(now)):
                    raise ApiError(
                        503,
                        "upstream_unavailable",
                        "the answer broke off, and the second attempt began with"
                        " other words; send the request again",
                    )

                if len(now) > len(sent):
                    yield now[len(sent) :]
                    sent = now
            elif isinstance(event, HistoryShortened):
                shortened = f"the oldest {event.messages} messages (the history is shortened)"
            elif isinstance(event, ChatAnswer):
                is_stored = not chat.session.startswith("unkept")
                session = {SESSION: chat.session} if is_stored else dict[str, str]()
                reason = event.finish_reason or "stop"
                left_out = [shortened] if shortened else []
                if own_limit and reason == "length":
                    left_out.append(CUT_END)
                for part in left_out:
                    log.warning("%s left out: %s", chat.parts.persona.agent, part)
                metadata = {**session, **write_left_out(left_out)}
                yield AnswerEnd(reason, event.usage, metadata, event.tool_calls)
