"""llama.cpp's own server renders conversations as Jinja does here, with the weights it runs."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from yarl import URL

from textevolve.errors import FatalModelError, InputError, ModelError
from textevolve.llm.chat_formats.catalogue import CONVERSATIONS
from textevolve.llm.chat_formats.sources import read_chat_template
from textevolve.llm.client import OpenAIClient
from textevolve.llm.local import serve
from textevolve.llm.weights import fetch, list_weights
from textevolve.protocol.chat import encode
from textevolve.settings import Local, read_settings

pytestmark = pytest.mark.slow
NAME = "smollm2-135m"
TEXTS = ("Hi", "  padded \n", "", "naïve 東京 \U0001f600", "<|im_end|>", "{{ 7 * 7 }}", '"\\n"')


def weights_of(name: str) -> Path:
    """The small weights are fetched; larger ones are taken where they are here."""
    settings = read_settings()
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


async def test_the_server_renders_what_is_rendered_here() -> None:
    template = read_chat_template(weights_of(NAME))
    async with serving(NAME) as client:
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
                spoken_answer = await rendered_there(client, talk)
                assert spoken_answer["prompt"] == template.render(talk, add_generation_prompt=True)
