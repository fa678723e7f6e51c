"""A real local model, the smallest of the catalogue, served and asked through our client."""

import asyncio
import json
import struct
import urllib.request
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import gguf
import pytest
from pydantic import SecretStr

from textevolve.errors import AccessError, SettingsError, TooLongError
from textevolve.llm import hardware, local
from textevolve.llm.client import OpenAIClient
from textevolve.llm.gguf import read_header
from textevolve.llm.local import LocalServer, serve
from textevolve.llm.model import Message, Request, Response
from textevolve.settings import Local

# One thread where much is computed: two on two cores that another test shares wait for each other,
# which was measured to take six times as long.
SMALL = Local(slots=2, context=1024, threads=1)
ALONE = Local(slots=1, context=1024, threads=1)
SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {"score": {"type": "integer", "minimum": 0, "maximum": 10}},
        "required": ["score"],
        "additionalProperties": False,
    }
)


@pytest.fixture(scope="module")
def server(smollm: Path) -> Iterator[LocalServer]:
    with serve(smollm, SMALL, name="smollm2-135m") as started:
        yield started


@pytest.fixture
async def model(server: LocalServer) -> AsyncIterator[OpenAIClient]:
    async with connect(server) as client:
        yield client


def connect(
    server: LocalServer, key: str | None = None, extra: Mapping[str, Any] | None = None
) -> OpenAIClient:
    secret = SecretStr(key or server.api_key)
    name = f"local/{server.name}"
    return OpenAIClient(
        server.base_url, server.name, name=name, key=secret, extra=extra, watched=True
    )


def ask(text: str, **options: object) -> Request:
    fields = {"max_tokens": 12, "temperature": 0.0, **options}
    return Request(messages=(Message("user", (text,)),), **fields)  # pyright: ignore[reportArgumentType]


# Answers


async def test_it_answers_and_counts_tokens(model: OpenAIClient):
    answered = await model(ask("What is the capital of France?"))
    assert answered.text.strip()
    assert answered.usage.prompt_tokens > 5
    assert 0 < answered.usage.completion_tokens <= 12


@pytest.mark.slow
async def test_a_json_schema_is_followed(model: OpenAIClient):
    answered = await model(ask("Tell me a story.", schema=SCHEMA, max_tokens=40))
    assert answered.finish_reason == "stop"
    assert 0 <= json.loads(answered.text)["score"] <= 10


@pytest.mark.slow
async def test_a_text_is_forced_in_the_same_tokens_whatever_stands_before(model: OpenAIClient):
    text = "\u7ffb\u8bd1 \U0001f9d1\u200d\U0001f680, 'so'\n\t<|im_end|>."
    responses: list[Response] = []
    for before in ("Seven.", "The moon pulls at the sea."):
        responses.append(await model(ask(before, forced=text, schema=SCHEMA, top_logprobs=1)))
    assert [response.text for response in responses] == [text, text]
    assert "".join(token.token for token in responses[0].logprobs) == text
    first_texts, second_texts = (
        [token.token for token in response.logprobs] for response in responses
    )
    assert first_texts == second_texts
    assert responses[0].logprobs != responses[1].logprobs


async def test_a_prompt_that_is_too_long_is_refused(model: OpenAIClient):
    with pytest.raises(TooLongError, match="1024"):
        await model(ask("word " * 3000))


@pytest.mark.slow
async def test_prefixes_that_alternate_in_one_slot_stay_cached(smollm: Path):
    prefixes = [" ".join(f"{word} {n} is of no importance." for n in range(12)) for word in "ABC"]
    with serve(smollm, ALONE) as alone:
        async with connect(alone) as model:
            for prefix in prefixes:
                await model(ask(f"{prefix} Say one.", max_tokens=2))
            for prefix in prefixes:
                again = await model(ask(f"{prefix} Say two.", max_tokens=2))
                assert again.usage.cached_tokens > 0.9 * again.usage.prompt_tokens


@pytest.mark.slow
async def test_its_slots_change_as_it_gets_on(smollm: Path):
    """What time limits follow: a long prompt part by part, an answer token by token."""
    with serve(smollm, ALONE) as alone:
        async with connect(alone) as model:
            idle = await model._look()  # pyright: ignore[reportPrivateUsage]
            assert json.loads(idle)[0]["is_processing"] is False
            assert await model._look() == idle  # pyright: ignore[reportPrivateUsage]
            prompt = " ".join(f"Item {n} is of no importance." for n in range(35))
            call = asyncio.create_task(model(ask(prompt, max_tokens=8)))
            seen: set[bytes] = set()
            while not call.done():
                seen.add(await model._look())  # pyright: ignore[reportPrivateUsage]
                await asyncio.sleep(0.005)
            assert (await call).usage.prompt_tokens > local.BATCH
    slots = [json.loads(state)[0] for state in seen]
    assert len({slot.get("n_prompt_tokens_processed", 0) for slot in slots}) >= 2
    assert len({slot["next_token"][0]["n_decoded"] for slot in slots if "next_token" in slot}) >= 2


# Key and address


async def test_the_key_guards_it_and_is_not_shown(server: LocalServer):
    async with connect(server, "wrong") as stranger:
        with pytest.raises(AccessError):
            await stranger(ask("Hello"))
    assert server.api_key not in repr(server)
    assert server.base_url.startswith("http://127.0.0.1:")


# Sharing and stopping


def answers(server: LocalServer) -> bool:
    address = server.base_url.removesuffix("/v1") + "/health"
    try:
        with urllib.request.urlopen(address, timeout=10) as answer:
            return answer.status == 200
    except OSError:
        return False


def test_equal_settings_share_a_server_until_the_last_lets_go(smollm: Path):
    settings = Local(slots=1, context=512)
    first_local_server, second_local_server = serve(smollm, settings), serve(str(smollm), settings)
    assert first_local_server.base_url == second_local_server.base_url
    first_local_server.stop()
    first_local_server.stop()
    assert answers(second_local_server)
    second_local_server.stop()
    assert not answers(second_local_server)


# What can be wrong


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"<html>", "not a GGUF file"), (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2**60), "cut off")],
)
def test_a_file_that_is_no_model(tmp_path: Path, content: bytes, reason: str):
    file = tmp_path / "bad.gguf"
    file.write_bytes(content)
    with pytest.raises(SettingsError, match=rf"bad\.gguf: not usable as weights: .*{reason}"):
        serve(file, SMALL)


def test_too_little_memory(smollm: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(local, "available_memory", lambda: 100_000_000)
    with pytest.raises(SettingsError, match=r"needs about 0\.\d GB of memory .* 0\.1 GB is free"):
        serve(smollm, Local(slots=3, context=8192))


# The header and the machine


def header(path: Path, **entries: Any) -> Path:
    """A header with these entries of the architecture."""
    writer = gguf.GGUFWriter(path, "new")
    for name, value in entries.items():
        add = writer.add_array if isinstance(value, list) else writer.add_uint32
        add(f"new.{name.replace('__', '.')}", value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def test_the_header_of_a_real_file(smollm: Path):
    gguf_header = read_header(smollm)
    # 30 layers, 3 heads of 64 for keys and as many for values, 2 bytes each
    assert gguf_header.trained_context == 8192
    assert gguf_header.cache_bytes_per_token == 30 * 3 * 64 * 2 * 2


def test_a_header_with_sizes_of_its_own_for_each_layer(tmp_path: Path):
    file = header(
        tmp_path / "x.gguf",
        block_count=3,
        context_length=4096,
        embedding_length=512,
        attention__head_count=8,
        attention__head_count_kv=[8, 2, 2],
        attention__key_length=128,
        attention__value_length=64,
    )
    assert read_header(file).cache_bytes_per_token == 2 * (8 + 2 + 2) * (128 + 64)


def test_the_default_context_yields_to_a_smaller_model(tmp_path: Path):
    file = header(tmp_path / "x.gguf", context_length=2048)
    assert local._choose_context(file, Local()) == 2048  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(SettingsError, match="2048"):
        local._choose_context(file, Local(context=8192))  # pyright: ignore[reportPrivateUsage]


def test_a_containers_limits_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(hardware, "_CGROUP", tmp_path)
    (tmp_path / "memory.max").write_text("1000000\n")
    (tmp_path / "memory.current").write_text("700000\n")
    (tmp_path / "memory.stat").write_text("anon 500000\ninactive_file 100000\n")
    (tmp_path / "cpu.max").write_text("100000 100000\n")
    assert hardware.available_memory() == 400_000
    assert hardware.physical_cores() == 1


@pytest.mark.parametrize(("idle", "free"), [(0.05, 1), (0.2, 2), (9.9, 4)])
def test_threads_are_as_many_as_cores_stand_idle(
    monkeypatch: pytest.MonkeyPatch, idle: float, free: int
) -> None:
    """Over a tenth of a second, on four cores, of which `idle` seconds in all were idle."""
    clock, counted = iter([0.0, 0.1]), iter([100.0, 100.0 + idle])
    monkeypatch.setattr(hardware, "physical_cores", lambda: 4)
    monkeypatch.setattr(hardware, "_idle_seconds", lambda: next(counted))
    monkeypatch.setattr(hardware.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(hardware.time, "sleep", lambda _seconds: None)
    assert hardware.free_cores() == free
