"""How the families of formats write tools, where several formats share a way."""

from __future__ import annotations

from typing import Any

from textevolve.llm.chat_formats.tools import ToolFormat

QWEN_TOOLS = ToolFormat(
    placement="system",
    before=(
        "# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are "
        "provided with function signatures within <tools></tools> XML tags:\n<tools>\n"
    ),
    separator="\n",
    after=(
        "\n</tools>\n\nFor each function call, return a json object with function name and "
        'arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n{"name": '
        '<function-name>, "arguments": <args-json-object>}\n</tool_call>'
    ),
    joint="\n\n",
    call='<tool_call>\n{"name": "$name", "arguments": $arguments}\n</tool_call>',
    calls_separator="\n",
    text_joint="\n",
    results_before="<|im_start|>user\n",
    result="<tool_response>\n$content\n</tool_response>",
    results_separator="\n",
    results_after="<|im_end|>\n",
)

MISTRAL_TOOLS: dict[str, Any] = {
    "placement": "last-user",
    "separator": ", ",
    "after": "][/AVAILABLE_TOOLS]",
    "style": "mistral",
    "assistant_before": "",
    "call": '{"name": "$name", "arguments": $arguments, "id": "$id"}',
    "calls_separator": ", ",
    "calls_after": "]",
    "text_beside": False,
    "id_length": 9,
}

DEEPSEEK_TOOLS = ToolFormat(
    assistant_before="<｜Assistant｜>",
    calls_before="<｜tool▁calls▁begin｜>",
    call=(
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>$name\n```json\n$arguments\n```<｜tool▁call▁end｜>"
    ),
    calls_separator="\n",
    calls_after="<｜tool▁calls▁end｜>",
    raw_arguments=True,
    results_before="<｜tool▁outputs▁begin｜>",
    result="<｜tool▁output▁begin｜>$content<｜tool▁output▁end｜>",
    results_after="<｜tool▁outputs▁end｜>",
    answer_before="",
)
