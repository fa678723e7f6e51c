"""The known chat formats by name, as the published template of each model family writes them.

This module has only the descriptions; `chat_format` uses them. docs/local-models.md has the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from textevolve.errors import NotFoundError
from textevolve.llm.chat_formats.chat_format import (
    ChatFormat,
    SystemTurn,
    Thoughts,
    TurnMarkers,
)
from textevolve.spec import suggest

_COHERE = "<|START_OF_TURN_TOKEN|><|{}_TOKEN|>"
_HEADER = "<|start_header_id|>{}<|end_header_id|>\n\n"


_MISTRAL = ("[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_CALLS]", "[TOOL_RESULTS]")
_MISTRAL_MARKERS = (*_MISTRAL, "[/TOOL_RESULTS]")
_QWEN_MARKERS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
_DEEPSEEK_MARKERS = tuple(
    f"<｜tool▁{part}｜>"
    for part in (
        *("calls▁begin", "calls▁end", "call▁begin", "call▁end", "sep"),
        *("outputs▁begin", "outputs▁end", "output▁begin", "output▁end"),
    )
)
"""The control tokens of DeepSeek's formats for tool calls, with which a text could forge a call or
its result."""


def _trimming(before: str, after: str) -> TurnMarkers:
    return TurnMarkers(before=before, after=after, trim="both")


def _llama_3(**more: Any) -> ChatFormat:
    fields: dict[str, Any] = {
        "bos": "<|begin_of_text|>",
        "writes_bos": True,
        "eos": "<|eot_id|>",
        "system": SystemTurn(
            before=_HEADER.format("system"), after="<|eot_id|>", trim="both", later=True
        ),
        "user": TurnMarkers(before=_HEADER.format("user"), after="<|eot_id|>", trim="both"),
        "assistant": TurnMarkers(
            before=_HEADER.format("assistant"), after="<|eot_id|>", trim="both"
        ),
        "generation": _HEADER.format("assistant"),
        "stop": ("<|eot_id|>", "<|end_of_text|>"),
        "more_markers": ("<|eom_id|>", "<|python_tag|>"),
    }
    return ChatFormat(**(fields | more))


def _chatml(**more: Any) -> ChatFormat:
    fields: dict[str, Any] = {
        "eos": "<|im_end|>",
        "system": SystemTurn(before="<|im_start|>system\n", after="<|im_end|>\n", later=True),
        "user": TurnMarkers(before="<|im_start|>user\n", after="<|im_end|>\n"),
        "assistant": TurnMarkers(before="<|im_start|>assistant\n", after="<|im_end|>\n"),
        "generation": "<|im_start|>assistant\n",
        "stop": ("<|im_end|>",),
    }
    return ChatFormat(**(fields | more))


def _mistral(space: str, **more: Any) -> ChatFormat:
    fields: dict[str, Any] = {
        "bos": "<s>",
        "writes_bos": True,
        "eos": "</s>",
        "system": SystemTurn(before="", after="\n\n", placement="last-user"),
        "user": TurnMarkers(before=f"[INST]{space}", after="[/INST]"),
        "assistant": TurnMarkers(before=space, after="</s>"),
        "alternate": True,
        "stop": ("</s>",),
        "more_markers": _MISTRAL_MARKERS,
    }
    return ChatFormat(**(fields | more))


def _gemma(**more: Any) -> ChatFormat:
    return ChatFormat(
        bos="<bos>",
        writes_bos=True,
        eos="<eos>",
        user=TurnMarkers(before="<start_of_turn>user\n", after="<end_of_turn>\n", trim="both"),
        assistant=TurnMarkers(
            before="<start_of_turn>model\n", after="<end_of_turn>\n", trim="both"
        ),
        generation="<start_of_turn>model\n",
        alternate=True,
        stop=("<end_of_turn>",),
        **more,
    )


_TABLE: tuple[ChatFormat, ...] = (
    _chatml(
        name="chatml",
        title="ChatML: OpenHermes, Yi, many fine-tuned models",
    ),
    ChatFormat(
        name="llama-2",
        title="Llama 2 Chat",
        bos="<s>",
        eos="</s>",
        system=SystemTurn(
            before="<<SYS>>\n",
            after="\n<</SYS>>\n\n",
            placement="first-user",
            joined_trim="whole",
        ),
        user=TurnMarkers(before="<s>[INST] ", after=" [/INST]", trim="both"),
        assistant=TurnMarkers(before=" ", after=" </s>", trim="both"),
        alternate=True,
        stop=("</s>",),
    ),
    _llama_3(
        name="llama-3",
        title="Llama 3 Instruct",
    ),
    _llama_3(
        name="llama-3.1",
        title="Llama 3.1, 3.2 and 3.3 Instruct",
        system=SystemTurn(
            before=_HEADER.format("system"),
            preamble="Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n",
            after="<|eot_id|>",
            trim="both",
            default="",
            later=True,
        ),
        stop=("<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"),
    ),
    _mistral(
        " ",
        name="mistral-v1",
        title="Mistral 7B Instruct v0.1 and v0.2, Mixtral",
        system=SystemTurn(before="", after="\n\n", placement="first-user"),
        user=TurnMarkers(before=" [INST] ", after=" [/INST]"),
        more_markers=(),
    ),
    _mistral(
        " ",
        name="mistral-v3",
        title="Mistral 7B Instruct v0.3, Mistral Large 2407, Mixtral 8x22B",
        assistant=TurnMarkers(before=" ", after="</s>", trim="both"),
    ),
    _mistral("", name="mistral-v3-tekken", title="Mistral NeMo 2407, Pixtral 2409"),
    _mistral(
        " ",
        name="mistral-v7",
        title="Mistral Large 2411",
        system=SystemTurn(before="[SYSTEM_PROMPT] ", after="[/SYSTEM_PROMPT]", later=True),
        alternate=False,
        more_markers=(),
    ),
    _mistral(
        "",
        name="mistral-v7-tekken",
        title="Mistral Small 2501 and 2503",
        system=SystemTurn(before="[SYSTEM_PROMPT]", after="[/SYSTEM_PROMPT]", later=True),
        alternate=False,
        more_markers=(),
    ),
    _gemma(
        name="gemma",
        title="Gemma and Gemma 2",
    ),
    _gemma(
        name="gemma-3",
        title="Gemma 3",
        system=SystemTurn(before="", after="\n\n", placement="first-user"),
        more_markers=("<start_of_image>", "<end_of_image>"),
    ),
    ChatFormat(
        name="phi-3",
        title="Phi-3 and Phi-3.5",
        bos="<s>",
        eos="<|endoftext|>",
        system=SystemTurn(
            before="<|system|>\n", after="<|end|>\n", later=True, written_empty=False
        ),
        user=TurnMarkers(before="<|user|>\n", after="<|end|>\n"),
        assistant=TurnMarkers(before="<|assistant|>\n", after="<|end|>\n"),
        generation="<|assistant|>\n",
        ending="<|endoftext|>",
        stop=("<|end|>", "<|endoftext|>"),
    ),
    ChatFormat(
        name="phi-4",
        title="Phi-4",
        bos="<|endoftext|>",
        eos="<|im_end|>",
        system=SystemTurn(before="<|im_start|>system<|im_sep|>", after="<|im_end|>", later=True),
        user=TurnMarkers(before="<|im_start|>user<|im_sep|>", after="<|im_end|>"),
        assistant=TurnMarkers(before="<|im_start|>assistant<|im_sep|>", after="<|im_end|>"),
        generation="<|im_start|>assistant<|im_sep|>",
        stop=("<|im_end|>",),
    ),
    _chatml(
        name="qwen-2.5",
        title="Qwen 2.5, Qwen 2.5 Coder",
        system=SystemTurn(
            before="<|im_start|>system\n",
            after="<|im_end|>\n",
            default="You are Qwen, created by Alibaba Cloud. You are a helpful assistant.",
            later=True,
        ),
        stop=("<|im_end|>", "<|endoftext|>"),
        more_markers=("<|endoftext|>", *_QWEN_MARKERS),
    ),
    _chatml(
        name="qwen-3",
        title="Qwen 3",
        thoughts=Thoughts(strip="\n", wrap=True),
        stop=("<|im_end|>", "<|endoftext|>"),
        more_markers=("<|endoftext|>", *_QWEN_MARKERS),
    ),
    ChatFormat(
        name="deepseek-v2",
        title="DeepSeek V2 Chat, V2.5",
        bos="<｜begin▁of▁sentence｜>",
        writes_bos=True,
        eos="<｜end▁of▁sentence｜>",
        system=SystemTurn(before="", after="\n\n", placement="prefix"),
        user=TurnMarkers(before="User: ", after="\n\n"),
        assistant=TurnMarkers(before="Assistant: ", after="<｜end▁of▁sentence｜>"),
        generation="Assistant:",
        stop=("<｜end▁of▁sentence｜>",),
    ),
    ChatFormat(
        name="deepseek-v3",
        title="DeepSeek V3 and R1",
        bos="<｜begin▁of▁sentence｜>",
        writes_bos=True,
        eos="<｜end▁of▁sentence｜>",
        system=SystemTurn(before="", after="", placement="prefix"),
        user=TurnMarkers(before="<｜User｜>", after=""),
        assistant=TurnMarkers(before="<｜Assistant｜>", after="<｜end▁of▁sentence｜>"),
        generation="<｜Assistant｜>",
        thoughts=Thoughts(),
        more_markers=_DEEPSEEK_MARKERS,
        stop=("<｜end▁of▁sentence｜>",),
    ),
    ChatFormat(
        name="command-r",
        title="Command R and R+",
        bos="<BOS_TOKEN>",
        writes_bos=True,
        eos="<|END_OF_TURN_TOKEN|>",
        system=SystemTurn(before=_COHERE.format("SYSTEM"), after="<|END_OF_TURN_TOKEN|>"),
        user=_trimming(_COHERE.format("USER"), "<|END_OF_TURN_TOKEN|>"),
        assistant=_trimming(_COHERE.format("CHATBOT"), "<|END_OF_TURN_TOKEN|>"),
        generation=_COHERE.format("CHATBOT"),
        alternate=True,
        stop=("<|END_OF_TURN_TOKEN|>",),
    ),
    ChatFormat(
        name="alpaca",
        title="Alpaca",
        bos="<s>",
        writes_bos=True,
        eos="</s>",
        system=SystemTurn(before="", after="", placement="prefix"),
        user=TurnMarkers(before="### Instruction:\n", after=""),
        assistant=TurnMarkers(before="### Response:\n", after="</s>"),
        separator="\n\n",
        generation="\n\n### Response:\n",
        stop=("</s>", "### Instruction:"),
        more_markers=("### Input:",),
    ),
    ChatFormat(
        name="vicuna",
        title="Vicuna 1.1 and 1.5",
        bos="<s>",
        writes_bos=True,
        eos="</s>",
        system=SystemTurn(
            before="",
            after=" ",
            placement="prefix",
            default=(
                "A chat between a curious user and an artificial intelligence assistant. The "
                "assistant gives helpful, detailed, and polite answers to the user's questions."
            ),
        ),
        user=TurnMarkers(before="USER: ", after=" "),
        assistant=TurnMarkers(before="ASSISTANT: ", after="</s>"),
        generation="ASSISTANT:",
        stop=("</s>", "USER:"),
    ),
    ChatFormat(
        name="zephyr",
        title="Zephyr, TinyLlama Chat, StableLM Zephyr",
        bos="<s>",
        eos="</s>",
        system=SystemTurn(before="<|system|>\n", after="</s>\n", later=True),
        user=TurnMarkers(before="<|user|>\n", after="</s>\n"),
        assistant=TurnMarkers(before="<|assistant|>\n", after="</s>\n"),
        generation="<|assistant|>\n",
        stop=("</s>",),
    ),
)

CHAT_FORMATS: Mapping[str, ChatFormat] = MappingProxyType({f.name: f for f in _TABLE})


def chat_format(name: str) -> ChatFormat:
    """Return a format by name.

    Raises:
        NotFoundError: no format has this name; the message suggests the nearest name.
    """
    match = CHAT_FORMATS.get(name)
    if match is None:
        raise NotFoundError(f"no chat format '{name}'{suggest(name, list(CHAT_FORMATS))}")
    return match
