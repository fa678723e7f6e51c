"""What is wrong with a template is found by rendering it, here and at a server."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from textevolve.errors import InputError
from textevolve.llm.chat_formats.catalogue import CHAT_FORMATS
from textevolve.llm.chat_formats.chat_format import render_chat
from textevolve.llm.chat_formats.checking import check_chat_template
from textevolve.llm.chat_formats.detection import CONVERSATIONS, detect_prompt, match_formats
from textevolve.llm.chat_formats.sources import ModelTemplate
from textevolve.llm.client import OpenAIClient
from textevolve.llm.discovery import PROBES, probe_endpoint
from textevolve.llm.testing import Answer, ScriptedServer

FOLDER = Path(__file__).parent / "chat_templates"
TOKENS: dict[str, dict[str, str]] = json.loads((FOLDER / "tokens.json").read_text("utf-8"))
CHATML = (FOLDER / "chatml.jinja").read_text()


def model(source: str, adds_bos: bool | None = True, bos: str | None = "<s>") -> ModelTemplate:
    return ModelTemplate("here", {"default": source}, bos, "</s>", adds_bos)


def published(name: str, adds_bos: bool | None = True) -> ModelTemplate:
    source = (FOLDER / f"{name}.jinja").read_bytes().decode()
    tokens = TOKENS[name]
    return ModelTemplate(
        name, {"default": source}, tokens["bos_token"], tokens["eos_token"], adds_bos
    )


def verdicts(found: ModelTemplate) -> dict[str, tuple[bool | None, str]]:
    return {each.question: (each.good, each.note) for each in check_chat_template(found).findings}


PUBLISHED = {
    "chatml": "chatml",
    "alpaca": "alpaca",
    "zephyr": "zephyr",
    "llama-3-trl-training": "llama-3",
    "llama-3.1": "llama-3.1",
    "mistral-v1": "mistral-v1",
    "mistral-v7": "mistral-v7",
    "gemma-2": "gemma",
    "gemma-3": "gemma-3",
    "phi-3.5": "phi-3",
    "phi-4": "phi-4",
    "qwen-2.5": "qwen-2.5",
    "qwen-3": "qwen-3",
    "deepseek-v2": "deepseek-v2",
    "deepseek-v3": "deepseek-v3",
    "command-r": "command-r",
    "granite-3.3": None,
    "exaone": None,
}


@pytest.mark.parametrize(("name", "format"), PUBLISHED.items())
def test_published_templates_are_recognised(name: str, format: str | None) -> None:
    assert check_chat_template(published(name)).format == format


@pytest.mark.parametrize("name", CHAT_FORMATS)
def test_a_prompt_is_recognised(name: str) -> None:
    format = CHAT_FORMATS[name]
    rendered = 0
    for messages, asked in CONVERSATIONS:
        try:
            text = render_chat(format, messages, add_generation_prompt=asked)
        except InputError:
            continue
        rendered += 1
        assert name in detect_prompt(text)
    assert rendered
    assert detect_prompt("Nothing but words.") == ()


def test_a_template_that_writes_nothing_known_matches_nothing() -> None:
    assert match_formats(lambda messages, **_: "x" * len(messages)) == ()


def test_the_system_message() -> None:
    assert verdicts(published("chatml"))["system message"] == (True, "kept")
    good, note = verdicts(published("phi-3-mini"))["system message"]
    assert good is False
    assert note.startswith("dropped")
    good, note = verdicts(published("gemma-2"))["system message"]
    assert good is False
    assert "System role not supported" in note
    good, note = verdicts(published("qwen-2.5"))["system message"]
    assert good
    assert "a default of the template's own" in note


def test_bos() -> None:
    bos = "{{ bos_token }}"
    assert verdicts(model(CHATML))["BOS"] == (True, "once, by the tokenizer")
    assert verdicts(model(bos + CHATML, adds_bos=False))["BOS"] == (True, "once, by the template")
    good, note = verdicts(model(bos + CHATML))["BOS"]
    assert good is False
    assert "<s> comes from the template and from the tokenizer" in note
    good, note = verdicts(model(bos + bos + CHATML, adds_bos=False))["BOS"]
    assert good is False
    assert "writes <s> 2 times" in note
    assert verdicts(model(CHATML, adds_bos=False))["BOS"][0] is True
    assert verdicts(model(CHATML, adds_bos=None))["BOS"][0] is None
    assert verdicts(model(CHATML, bos=None))["BOS"] == (None, "the files name no BOS token")


def test_tools() -> None:
    assert verdicts(published("qwen-2.5"))["tools"][0] is True
    assert verdicts(published("phi-3.5"))["tools"] == (None, "not supported")
    assert verdicts(published("kimi-k2"))["tools"][0] is None


def test_a_template_that_cannot_be_rendered_is_an_error() -> None:
    with pytest.raises(InputError, match="fails: line 1: TemplateSyntaxError"):
        check_chat_template(model("{% if %}"))


class LlamaServer(ScriptedServer):
    """Answers beside the protocol as llama.cpp's server does, with this template."""

    def __init__(self, template: ModelTemplate, shown: str | None = None, strips: bool = True):
        super().__init__(tokenizes=True)
        self.template = template
        self.shown = template.templates["default"] if shown is None else shown
        self.strips = strips

    def answer(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Answer:
        bos = self.template.bos_token or ""
        said: dict[str, Any]
        if path == "/props":
            said = {"chat_template": self.shown, "bos_token": bos}
        elif path == "/apply-template":
            messages = json.loads(body)["messages"]
            try:
                text = self.template.open().render(messages, add_generation_prompt=True)
            except InputError:
                return Answer(status=500, body=b'{"error": {"message": "no"}}')
            said = {"prompt": text.removeprefix(bos) if self.strips else text}
        elif path == "/tokenize":
            text = bos + json.loads(body)["content"]
            pieces: list[str] = []
            while bos and text.startswith(bos):
                pieces, text = [*pieces, bos], text.removeprefix(bos)
            said = {"tokens": [{"id": 1, "piece": piece} for piece in [*pieces, *text]]}
        else:
            return super().answer(method, path, headers, body)
        return Answer(body=json.dumps(said).encode())


async def ask_server(server: ScriptedServer) -> tuple[bool | None, str]:
    async with server, OpenAIClient(server.url, "m") as client:
        found = await PROBES["chat template"](client, {})
    return found.value, found.note


async def test_a_servers_template() -> None:
    kept = (True, "the system message is kept, BOS comes once")
    assert await ask_server(LlamaServer(published("chatml"))) == kept
    assert await ask_server(LlamaServer(published("llama-3.1"))) == kept
    good, note = await ask_server(LlamaServer(published("phi-3-mini")))
    assert good is False
    assert "drops the system message" in note
    good, note = await ask_server(LlamaServer(published("gemma-2")))
    assert good is False
    assert "refuses a system message" in note
    good, note = await ask_server(LlamaServer(published("llama-3.1"), strips=False))
    assert good is False
    assert "begins with <|begin_of_text|> twice" in note
    good, note = await ask_server(ScriptedServer())
    assert good is None
    assert "only llama.cpp's server" in note


async def test_a_probe_of_an_endpoint_tells_of_the_template() -> None:
    server = LlamaServer(published("phi-3-mini"))
    async with server, OpenAIClient(server.url, "m") as client:
        found = await probe_endpoint(client)
    assert found.findings["chat template"].value is False
    assert found.answers.value
