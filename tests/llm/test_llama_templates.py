"""llama.cpp's own server renders conversations as Jinja does here, with the weights it runs."""

from __future__ import annotations

import itertools
import json
import urllib.request
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from yarl import URL

from textevolve.errors import FatalModelError, InputError, ModelError
from textevolve.llm.chat_formats.detection import CONVERSATIONS
from textevolve.llm.chat_formats.sources import JinjaTemplate, ModelTemplate, read_chat_template
from textevolve.llm.client import OpenAIClient
from textevolve.llm.local import serve
from textevolve.llm.weights import fetch, list_weights
from textevolve.llm.wire import encode
from textevolve.settings import Local, read_settings

pytestmark = pytest.mark.alone
NAME = "smollm2-135m"
FOLDER = Path(__file__).parent / "chat_templates"
TEXTS = ("Hi", "  padded \n", "", "naïve 東京 \U0001f600", "<|im_end|>", "{{ 7 * 7 }}", '"\\n"')


def weights_of(name: str) -> Path:
    """The small weights are fetched; larger ones are taken where they are here."""
    settings, _ = read_settings()
    try:
        here = {row.name: row.path.is_file() for row in list_weights(settings)}
        return fetch(name, settings) if name == NAME or here[name] else pytest.skip("not here")
    except (FatalModelError, ModelError) as error:
        pytest.skip(f"the weights are not to be had: {error}")


@asynccontextmanager
async def serving(name: str) -> AsyncIterator[OpenAIClient]:
    with serve(weights_of(name), Local(slots=1, context=512, threads=1), name=name) as server:
        key = SecretStr(server.api_key)
        async with OpenAIClient(server.base_url, name, key=key) as opened:
            yield opened


async def rendered_there(client: OpenAIClient, messages: Any) -> dict[str, Any]:
    """The server's answer; empty where it refuses the conversation."""
    url = URL(client.base_url.removesuffix("/v1") + "/apply-template")
    status, _, raw = await client.http.exchange("POST", url, encode({"messages": messages}))
    return json.loads(raw) if status == 200 else {}


@pytest.fixture(scope="module")
def model() -> ModelTemplate:
    return read_chat_template(weights_of(NAME))


@pytest.fixture
async def client() -> AsyncIterator[OpenAIClient]:
    async with serving(NAME) as opened:
        yield opened


@pytest.mark.parametrize("name", [NAME, "qwen2.5-coder-1.5b"])
async def test_the_server_renders_what_is_rendered_here(name: str) -> None:
    model = read_chat_template(weights_of(name))
    async with serving(name) as client:
        template = model.open()
        for talk, asks in CONVERSATIONS:
            if not asks:  # the server always asks for an answer
                continue
            answer = await rendered_there(client, talk)
            try:
                ours = template.render(talk, add_generation_prompt=True)
            except InputError:  # the server refuses it, too
                ours = ""
            # llama.cpp leaves out a BOS that its tokenizer adds.
            theirs = answer.get("prompt") or ""
            assert theirs in (ours, ours.removeprefix(template.bos_token or ""))
        for first, second in itertools.product(TEXTS, TEXTS):
            messages: list[dict[str, Any]] = [
                {"role": "user", "content": first},
                {"role": "assistant", "content": second},
                {"role": "user", "content": first},
            ]
            for talk in (messages, [{"role": "system", "content": second}, *messages]):
                said = await rendered_there(client, talk)
                assert said["prompt"] == template.render(talk, add_generation_prompt=True)


@contextmanager
def serve_template(source: str) -> Generator[Callable[[list[dict[str, Any]]], str]]:
    """llama.cpp's server with another template than that of the weights."""
    engine = pytest.importorskip("xllamacpp")
    settings, _ = read_settings()
    params = engine.CommonParams()
    params.model.path = str(fetch(NAME, settings))
    params.chat_template = source
    params.use_jinja = True
    params.hostnames, params.port = ["127.0.0.1"], 0
    params.api_keys = ["key"]
    params.n_parallel, params.n_ctx, params.verbosity = 1, 256, -1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.ui = params.fit_params = params.warmup = False
    server = engine.Server(params)
    address = server.listening_address
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def ask(path: str, body: dict[str, Any] | None = None) -> Any:
        headers = {"Authorization": "Bearer key", "Connection": "close"}
        data = None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(address + path, data, headers)
        with opener.open(asked, timeout=120) as answer:
            return json.load(answer)

    # A server that is stopped before its loop runs never ends. The loop answers for the slots; a
    # template is rendered without it.
    ask("/slots")
    yield lambda messages: ask("/apply-template", {"messages": messages})["prompt"]
    del server


@pytest.mark.parametrize("name", ["chatml", "mistral-v3", "gemma-3", "qwen-3", "deepseek-v3"])
def test_llama_cpp_renders_published_templates_as_they_are_rendered_here(
    name: str, model: ModelTemplate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TEXTEVOLVE_TODAY", raising=False)
    source = (FOLDER / f"{name}.jinja").read_bytes().decode()
    template = JinjaTemplate(source, model.bos_token, model.eos_token)
    with serve_template(source) as apply:
        for messages, asked in CONVERSATIONS:
            if not asked:
                continue
            ours = template.render(messages, add_generation_prompt=True, enable_thinking=True)
            assert apply(messages) == ours


@pytest.mark.parametrize("name", ["gemma-2"])
def test_llama_cpp_merges_a_system_message_that_a_template_has_no_place_for(name: str) -> None:
    source = (FOLDER / f"{name}.jinja").read_bytes().decode()
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    with serve_template(source) as apply:
        assert "Be brief.\nHi" in apply(messages)
