"""LangChain: a chain as a Runnable, a journaled model as a chat model, prompts converted.

A Runnable as a step of ours needs nothing of this: see `callables.py`. Needs langchain-core (the
extra `langchain`).
"""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast
from uuid import UUID

from langchain_core.callbacks import (
    AsyncCallbackManagerForLLMRun,
    BaseCallbackHandler,
    CallbackManagerForLLMRun,
)
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGeneration, ChatResult, LLMResult
from langchain_core.prompts import ChatPromptTemplate, PromptTemplate
from langchain_core.runnables import Runnable, RunnableConfig
from pydantic import ConfigDict, create_model

from textevolve.errors import InputError
from textevolve.llm.chains.chain import ChainDoor, ModelDoor
from textevolve.llm.chains.chat_template import (
    ChatTemplate,
    Slot,
    TemplateMessage,
    TemplatePart,
    check_role,
    merge,
)
from textevolve.llm.chains.scope import PromptUse, Trying
from textevolve.llm.model import Message, Request, Response

_ROLES = {
    "human": "user",
    "ai": "assistant",
    "HumanMessagePromptTemplate": "user",
    "AIMessagePromptTemplate": "assistant",
    "SystemMessagePromptTemplate": "system",
}


class ChainRunnable(Runnable[dict[str, Any], dict[str, Any]]):
    """A chain as a Runnable: a mapping of inputs in, a mapping of outputs out. Callbacks hear the
    chain, and what Runnables among its steps do below it."""

    def __init__(self, door: ChainDoor) -> None:
        self.door = door
        self.name = door.chain.name

    def get_input_schema(self, config: RunnableConfig | None = None) -> type[Any]:
        return _schema(f"{self.get_name()}_input", self.door.chain.inputs)

    def get_output_schema(self, config: RunnableConfig | None = None) -> type[Any]:
        return _schema(f"{self.get_name()}_output", self.door.chain.outputs)

    def invoke(
        self, input: dict[str, Any], config: RunnableConfig | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        def run(values: dict[str, Any]) -> dict[str, Any]:
            return self.door(**values)

        return self._call_with_config(run, input, config, run_type="chain", **kwargs)

    async def ainvoke(
        self, input: dict[str, Any], config: RunnableConfig | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        async def run(values: dict[str, Any]) -> dict[str, Any]:
            return await self.door.acall(**values)

        return await self._acall_with_config(run, input, config, run_type="chain", **kwargs)


def _schema(name: str, types: Mapping[str, Any]) -> type[Any]:
    fields = {one: (Any if kind is None else kind, ...) for one, kind in types.items()}
    config = ConfigDict(arbitrary_types_allowed=True)
    return create_model(name, __config__=config, **cast("dict[str, Any]", fields))


class JournaledChatModel(BaseChatModel):
    """A model of ours as a chat model of LangChain's: its calls are journaled, limited and counted
    like all others. Texts only: tools and stop sequences are refused."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    door: Any
    temperature: float | None = None
    max_tokens: int | None = None
    seed: int | None = None

    @property
    def _llm_type(self) -> str:
        return "textevolve"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        told = {"temperature": self.temperature, "max_tokens": self.max_tokens, "seed": self.seed}
        return {"model": self._door.name, **told}

    @property
    def _door(self) -> ModelDoor:
        return cast(ModelDoor, self.door)

    def _request(
        self, messages: Sequence[BaseMessage], stop: list[str] | None, given: Mapping[str, Any]
    ) -> Request:
        known = ("temperature", "max_tokens", "seed")
        refused = [*(["stop"] if stop else []), *(name for name in given if name not in known)]
        if refused:
            raise InputError(f"{self._door.name}: a journaled chat model takes no '{refused[0]}'")
        own = {name: getattr(self, name) for name in known}
        return Request(messages=tuple(map(_take_message, messages)), **{**own, **given})

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return _result(self._door.wait(self._request(messages, stop, kwargs)))

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return _result(await self._door.ask(self._request(messages, stop, kwargs)))


def _take_message(given: BaseMessage) -> Message:
    if not isinstance(given.content, str):
        raise InputError("a journaled chat model takes messages of text alone")
    return Message(check_role(_ROLES.get(given.type, given.type)), (given.content,))


def _usage(response: Response) -> UsageMetadata:
    used = response.usage
    return UsageMetadata(
        input_tokens=used.prompt_tokens,
        output_tokens=used.completion_tokens,
        total_tokens=used.prompt_tokens + used.completion_tokens,
    )


def _result(response: Response) -> ChatResult:
    message = AIMessage(
        content=response.text,
        usage_metadata=_usage(response),
        response_metadata={"finish_reason": response.finish_reason},
    )
    return ChatResult(generations=[ChatGeneration(message=message)])


class PromptListener(BaseCallbackHandler):
    """Tells a trial which prompts the chat models below it were asked, and what they answered, by
    the node of a graph that asked."""

    run_inline = True

    def __init__(self, trial: Trying) -> None:
        self._trial = trial
        self._asked: dict[UUID, tuple[str, str]] = {}

    def on_chat_model_start(
        self,
        serialized: dict[str, Any],
        messages: list[list[BaseMessage]],
        *,
        run_id: UUID,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        node = (metadata or {}).get("langgraph_node", "model")
        self._asked[run_id] = str(node), "\n\n".join(str(one.text) for one in messages[0])

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        if run_id in self._asked:
            use = PromptUse(*self._asked.pop(run_id), response.generations[0][0].text)
            self._trial.uses.append(use)


def read_langchain_template(given: Any) -> ChatTemplate:
    """A prompt template of LangChain's as ours. Values that it holds already are filled in.

    Raises:
        InputError: there is something in it that ours cannot hold, such as a placeholder for whole
            messages, a picture, or logic.
    """
    if isinstance(given, PromptTemplate):
        messages = [TemplateMessage("user", _read_prompt(given))]
    elif isinstance(given, ChatPromptTemplate):
        listed = cast("Sequence[Any]", given.messages)
        messages = [_read_message(one) for one in listed]
    else:
        raise InputError(f"a template of the type {type(given).__name__} cannot be converted")
    held = given.partial_variables
    return ChatTemplate(tuple(replace(one, parts=_fill_in(one.parts, held)) for one in messages))


def _read_message(given: Any) -> TemplateMessage:
    if isinstance(given, BaseMessage):
        told = _take_message(given)
        return TemplateMessage(check_role(told.role), merge([told.text]))
    named = type(given).__name__
    prompt = getattr(given, "prompt", None)
    if not isinstance(prompt, PromptTemplate):
        raise InputError(f"a {named} cannot be converted: it has no text with placeholders alone")
    role = check_role(_ROLES.get(named, getattr(given, "role", named)))
    return TemplateMessage(role, _read_prompt(prompt))


def _read_prompt(prompt: PromptTemplate) -> tuple[TemplatePart, ...]:
    if prompt.template_format != "f-string":
        raise InputError(
            f"a template in {prompt.template_format} cannot be converted: f-strings can"
        )
    return _fill_in(_read_f_string(prompt.template), prompt.partial_variables)


def _read_f_string(text: str) -> tuple[TemplatePart, ...]:
    parts: list[TemplatePart] = []
    try:
        pieces = list(string.Formatter().parse(text))
    except ValueError as error:
        raise InputError(f"not an f-string template: {error}") from None
    for plain, name, spec, conversion in pieces:
        parts.append(plain)
        if name is None:
            continue
        shown = f"{{{name}{f'!{conversion}' if conversion else ''}{f':{spec}' if spec else ''}}}"
        if spec or conversion:
            raise InputError(f"{shown}: a format cannot be converted; format the value in a step")
        if not name.isidentifier():
            raise InputError(f"{shown}: only a plain name can be converted")
        parts.append(Slot(name))
    return merge(parts)


def _write_f_string(parts: Sequence[TemplatePart]) -> str:
    dotted = [part.name for part in parts if isinstance(part, Slot) and "." in part.name]
    if dotted:
        raise InputError(f"{{{dotted[0]}}}: the field of a value cannot stand in an f-string")
    return "".join(
        part.replace("{", "{{").replace("}", "}}") if isinstance(part, str) else f"{{{part.name}}}"
        for part in parts
    )


def _fill_in(parts: Sequence[TemplatePart], held: Mapping[str, Any]) -> tuple[TemplatePart, ...]:
    found: list[TemplatePart] = []
    for part in parts:
        value = held.get(part.name, part) if isinstance(part, Slot) else part
        if not isinstance(value, str | Slot):
            raise InputError(
                f"the value that the template holds for '{cast(Slot, part).name}' is no text"
            )
        found.append(value)
    return merge(found)


def write_langchain_template(template: ChatTemplate) -> ChatPromptTemplate:
    """Our template as one of LangChain's, with f-strings.

    Raises:
        InputError: an f-string cannot write it.
    """
    roles = {"user": "human", "assistant": "ai", "system": "system"}
    messages = [(roles[one.role], _write_f_string(one.parts)) for one in template.messages]
    return ChatPromptTemplate.from_messages(messages)
