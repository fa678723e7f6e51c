"""DSPy integration: a chain as a DSPy module, and a journaled model as DSPy's language model.

A DSPy module as a step does not need this code: see `callables.py`. Needs `pip install dspy`, which
is not an extra, since it brings packages that conflict with others of ours.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

import dspy  # pyright: ignore[reportMissingImports]  # not among what development installs
from dspy import lm15  # pyright: ignore

from textevolve.errors import InputError
from textevolve.llm.chains.chain import ChainDoor, ModelDoor
from textevolve.llm.chains.chat_template import check_role
from textevolve.llm.model import Message, Request, Response

# DSPy says little of its types, so they are Any here.
_dspy = cast(Any, dspy)
_lm15 = cast(Any, lm15)


class ChainModule(_dspy.Module):
    """A chain as a DSPy module: it takes the chain's inputs by name and returns its outputs as a
    prediction."""

    def __init__(self, door: ChainDoor) -> None:
        super().__init__()  # pyright: ignore[reportUnknownMemberType]
        self.door = door

    def forward(self, **values: Any) -> Any:
        return _dspy.Prediction(**self.door(**values))

    async def aforward(self, **values: Any) -> Any:
        return _dspy.Prediction(**await self.door.acall(**values))

    def __deepcopy__(self, memo: dict[int, Any]) -> ChainModule:
        return ChainModule(self.door)  # what is open is shared


def make_lm(door: ModelDoor, **asked: Any) -> Any:
    """Wrap an open model as a `dspy.LM`, for texts only. Its calls are journaled, limited, counted
    and retried like all others, so DSPy's own cache and retries are off."""
    return _dspy.LM(
        door.name,
        engine=_Engine(door),
        async_engine=_AsyncEngine(door),
        cache=False,
        num_retries=0,
        **asked,
    )


class _Saved:
    def __init__(self, door: ModelDoor) -> None:
        self._door = door

    def dump_state(self) -> dict[str, Any]:
        return {"model": self._door.name}

    @classmethod
    def load_state(cls, state: Mapping[str, Any]) -> Any:
        """Raise an InputError, since open models are not saved with a program."""
        raise InputError(
            f"the model {state.get('model')} is not saved with a program; make it again with"
            " textevolve.as_dspy_lm"
        )


class _Engine(_Saved):
    def complete(self, request: Any) -> Any:
        return _give(self._door.wait(_take(request)), request)

    def close(self) -> None:
        """Do not close shared connections."""


class _AsyncEngine(_Saved):
    async def complete(self, request: Any) -> Any:
        return _give(await self._door.ask(_take(request)), request)

    async def aclose(self) -> None:
        """Do not close shared connections."""


def _take(request: Any) -> Request:
    """Convert a request of DSPy into a `Request`.

    Raises:
        InputError: the request uses features other than text.
    """
    config = request.config
    for name in ("top_p", "top_k", "stop", "reasoning", "logprobs", "tool_choice", "extensions"):
        if getattr(config, name, None):
            raise InputError(f"models of textevolve.as_dspy_lm do not support the option '{name}'")
    if request.tools:
        raise InputError("models of textevolve.as_dspy_lm do not support tools")
    messages = [
        Message(check_role(message.role), (_text(message.parts),)) for message in request.messages
    ]
    if request.system:
        system_text = request.system if isinstance(request.system, str) else _text(request.system)
        messages.insert(0, Message("system", (system_text,)))

    return Request(
        messages=tuple(messages),
        schema=_schema(config.response_format),
        temperature=config.temperature,
        max_tokens=config.max_tokens,
        seed=config.seed,
    )


def _text(parts: Any) -> str:
    for part in parts:
        if not isinstance(part, _lm15.TextPart):
            raise InputError(
                f"models of textevolve.as_dspy_lm take texts, not {type(part).__name__}"
            )

    return "".join(part.text for part in parts)


def _schema(response_format: Any) -> str | None:
    """Return the JSON schema in a response format, which may wrap it, as text; None if there is
    none."""
    if not response_format:
        return None
    inner = response_format.get("json_schema", response_format)
    schema = inner.get("schema", inner if "properties" in inner else None)
    return None if schema is None else json.dumps(schema)


def _give(response: Response, request: Any) -> Any:
    used = response.usage
    return _lm15.Response(
        id=None,
        model=request.model,
        message=_lm15.Message.assistant([_lm15.TextPart(response.text)]),
        finish_reason="length" if response.finish_reason == "length" else "stop",
        usage=_lm15.Usage(
            input_tokens=used.prompt_tokens,
            output_tokens=used.completion_tokens,
            total_tokens=used.prompt_tokens + used.completion_tokens,
        ),
    )
