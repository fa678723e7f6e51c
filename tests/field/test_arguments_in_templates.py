"""People render requests of agents with a model's template: the protocol has the arguments of tool
calls as texts of JSON, and most templates write or walk through objects, as servers pass them.

The right prompts are those of the same chat with the arguments as each template expects them.
"""

import json
from pathlib import Path

import pytest

from textevolve.llm.chat_formats.sources import JinjaTemplate

TEMPLATES = Path(__file__).parents[1] / "llm" / "chat_templates"
PLACE = {"place": "Bergen", "days": 2}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "tide",
            "description": "Tell the tide.",
            "parameters": {"type": "object", "properties": {"place": {"type": "string"}}},
        },
    }
]


def make_chat(arguments, content=""):
    function = {"name": "tide", "arguments": arguments}
    return [
        {"role": "user", "content": "When is high tide in Bergen?"},
        {
            "role": "assistant",
            "content": content,
            "tool_calls": [{"id": "call_0001a", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "call_0001a", "name": "tide", "content": "At 4:10."},
    ]


def convert(cli, home, source, arguments, content=None):
    (home / "model.jinja").write_text(source, encoding="utf-8")
    request = {"messages": make_chat(arguments, content), "tools": TOOLS}
    (home / "chat.json").write_text(json.dumps(request), encoding="utf-8")
    return cli("models", "templates", "convert", "chat.json", "-t", "model.jinja")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("qwen-2.5", PLACE),
        ("qwen-3", PLACE),
        ("qwen-3-coder", PLACE),
        ("llama-3.2", PLACE),
        ("deepseek-v3", json.dumps(PLACE)),
    ],
)
def test_arguments_of_requests(cli, home, name, expected):
    source = (TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8")
    right = JinjaTemplate(source).render(
        make_chat(expected), tools=TOOLS, add_generation_prompt=True
    )
    written = convert(cli, home, source, json.dumps(PLACE))
    assert written.code == 0
    assert written.out == right
    assert "days" in right


def test_joined_arguments_stay_json(cli, home):
    source = (
        "{% for m in messages %}{% for c in m.tool_calls or [] %}"
        "{{ c.function.arguments }}{% endfor %}{% endfor %}"
    )
    assert convert(cli, home, source, json.dumps(PLACE)).out.strip() == json.dumps(PLACE)


@pytest.mark.parametrize("arguments", ["{", "[1]", "null"])
def test_unreadable_arguments_stay(cli, home, arguments):
    source = (
        "{% for m in messages %}{% for c in m.tool_calls or [] %}"
        "<{{ c.function.arguments }}>{% endfor %}{% endfor %}"
    )
    assert convert(cli, home, source, arguments).out.strip() == f"<{arguments}>"
