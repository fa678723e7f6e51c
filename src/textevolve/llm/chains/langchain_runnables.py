"""LangChain integration: a chain as a Runnable, and a journaled model as a chat model.

A Runnable as a step does not need this code: see `callables.py`. Needs langchain-core (the extra
`langchain`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
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
from langchain_core.runnables import Runnable, RunnableConfig
from pydantic import ConfigDict, SkipValidation

from textevolve.errors import InputError
from textevolve.llm.chains.chain import ChainDoor, ModelDoor
from textevolve.llm.chains.chat_template import check_role
from textevolve.llm.chains.scope import PromptTrial, PromptUse
from textevolve.llm.chains.steps import SAMPLING
from textevolve.llm.model import Message, Request, Response
from textevolve.mappings import read_fields

_ROLES = {"human": "user", "ai": "assistant"}


class ChainRunnable(Runnable[dict[str, Any], dict[str, Any]]):
    """A chain as a LangChain Runnable: it takes a mapping of inputs and returns a mapping of
    outputs. LangChain's callbacks receive the events of the chain and of the Runnables that its
    steps call."""

    def __init__(self, door: ChainDoor) -> None:
        self.door = door
        self.name = door.chain.name

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


class JournaledChatModel(BaseChatModel):
    """A model of ours as a LangChain chat model: its calls are journaled, limited and counted like
    all others. It takes texts only, and refuses tools and stop sequences. `door`: the open model (a
    `ModelDoor`)."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    door: SkipValidation[ModelDoor]
    temperature: float | None = None
    max_tokens: int | None = None
    seed: int | None = None

    @property
    def _llm_type(self) -> str:
        return "textevolve"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"model": self.door.name, **read_fields(self, *SAMPLING)}

    def _request(
        self, messages: Sequence[BaseMessage], stop: list[str] | None, options: Mapping[str, Any]
    ) -> Request:
        unknown = (name for name in options if name not in SAMPLING)
        refused = [*(["stop"] if stop else []), *unknown]
        if refused:
            raise InputError(
                f"{self.door.name}: this LangChain model does not support the option '{refused[0]}'"
            )

        defaults = read_fields(self, *SAMPLING)

        return Request(messages=tuple(map(_take_message, messages)), **{**defaults, **options})

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return _result(self.door.wait(self._request(messages, stop, kwargs)))

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return _result(await self.door.ask(self._request(messages, stop, kwargs)))


def _take_message(message: BaseMessage) -> Message:
    if not isinstance(message.content, str):
        raise InputError("this LangChain model takes only messages of text")
    return Message(check_role(_ROLES.get(message.type, message.type)), (message.content,))


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
    """A LangChain callback handler that records, for prompt optimization, the prompts and answers
    of the chat models in a run. A record's name is the graph node that called the model, or `model`
    outside of a graph."""

    run_inline = True

    def __init__(self, trial: PromptTrial) -> None:
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
        self._asked[run_id] = str(node), "\n\n".join(str(message.text) for message in messages[0])

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        if run_id in self._asked:
            use = PromptUse(*self._asked.pop(run_id), response.generations[0][0].text)
            self._trial.uses.append(use)
