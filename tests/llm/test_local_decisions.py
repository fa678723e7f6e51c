"""A decision model in the process: llama.cpp's own System One, by the names of the catalogue and of
one's own files.

The weights are the smallest of the catalogue under a header that makes them a decision model whose
options are letters (llama.cpp's type `openjev`). What it decides means nothing.
"""

import io
import json
import struct
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from textevolve.errors import CapabilityError, FatalModelError, TooLongError
from textevolve.llm.decisions import choice, decide, predicate, score
from textevolve.llm.model import Message, Request
from textevolve.llm.opening import open_client
from textevolve.llm.providers import resolve
from textevolve.llm.weights import fetch, list_weights
from textevolve.settings import Local, Settings, read_settings

TEMPLATE = (
    "<|im_start|>user\n{{ state }}\n\n{{ instructions }}\n"
    "{% for option in options %}{{ option.label }}: {{ option.key }}\n{% endfor %}"
    "Answer with one letter.<|im_end|>\n<|im_start|>assistant\n"
)
ALIGNMENT = 32
SCALARS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
STRING, ARRAY = 8, 9
QUESTIONS = (
    predicate("blue", "Is the sky blue?"),
    choice("colour", "Which colour has the sky?", ["blue", "green", "red"]),
    score("bright", "How bright is it?", ["dark", "dim", "bright"]),
)


class Header:
    """Goes over a GGUF file's header; only how long its parts are is wanted."""

    def __init__(self, data: bytes) -> None:
        self.stream = io.BytesIO(data)

    def number(self, layout: str) -> int:
        return struct.unpack(layout, self.stream.read(struct.calcsize(layout)))[0]

    def skip(self, count: int) -> None:
        self.stream.seek(count, io.SEEK_CUR)

    def value(self, kind: int) -> None:
        if kind == STRING:
            self.skip(self.number("<Q"))
        elif kind == ARRAY:
            inner, count = self.number("<I"), self.number("<Q")
            if inner in SCALARS:
                self.skip(count * SCALARS[inner])
            else:
                for _ in range(count):
                    self.value(inner)
        else:
            self.skip(SCALARS[kind])


def make_decider(weights: Path, made: Path) -> None:
    """Writes the same weights with two more entries at the beginning of their header."""
    data = weights.read_bytes()
    header = Header(data)
    header.skip(4)
    version, tensors, entries = header.number("<I"), header.number("<Q"), header.number("<Q")
    start = header.stream.tell()
    for _ in range(entries):
        header.value(STRING)
        header.value(header.number("<I"))
    for _ in range(tensors):
        header.value(STRING)
        header.skip(8 * header.number("<I") + 12)
    end = header.stream.tell()
    more = {"llama.decision.type": "openjev", "tokenizer.chat_template.systemone": TEMPLATE}
    added = b"".join(
        text(key) + struct.pack("<I", STRING) + text(value) for key, value in more.items()
    )
    count = struct.pack("<IQQ", version, tensors, entries + len(more))
    head = data[:4] + count + added + data[start:end]
    head += bytes(-len(head) % ALIGNMENT)
    made.write_bytes(head + data[end + -end % ALIGNMENT :])


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    settings, _ = read_settings()
    try:
        weights = fetch("smollm2-135m", settings)
    except FatalModelError as error:
        pytest.skip(f"the smallest weights cannot be had here: {error}")
    made = tmp_path_factory.mktemp("weights") / "mine.gguf"
    make_decider(weights, made)
    yield made.parent
    made.unlink()


@pytest.fixture
def settings(folder: Path) -> Settings:
    return Settings(weights_folder=folder, local=Local(slots=1, context=1024, threads=1))


@pytest.mark.parametrize("by", ["name", "path"])
def test_a_file_of_ones_own_is_known_by_its_header(folder: Path, settings: Settings, by: str):
    spec = "local/mine" if by == "name" else f"local/{folder / 'mine.gguf'}"
    endpoint = resolve(spec, settings)
    assert (endpoint.decisions, endpoint.chats) == ("systemone", False)


def test_it_is_listed_as_one_that_does_not_chat(settings: Settings):
    (row,) = [row for row in list_weights(settings) if row.name == "mine"]
    assert row.decides
    assert "does not chat" in row.note


@pytest.mark.slow
async def test_it_decides_and_does_not_chat(settings: Settings):
    async with AsyncExitStack() as stack:
        client, _, _ = await open_client("local/mine", settings, stack)
        assert client.decision_wire == "systemone"
        decision = await decide(client, "The sky is blue today.", QUESTIONS)
        for question in QUESTIONS:
            answer = decision.answer(question.name)
            assert len(answer.probabilities) == len(question.options)
            assert sum(answer.probabilities) == pytest.approx(1)
        assert decision.usage.prompt_tokens > 0
        assert decision.usage.cost == 0
        again = await decide(client, "The sky is blue today.", QUESTIONS)
        assert json.dumps(dict(again.answers), default=str) == json.dumps(
            dict(decision.answers), default=str
        )
        with pytest.raises(TooLongError, match="1024 tokens"):
            await decide(client, "The sky is blue. " * 400, QUESTIONS)
        with pytest.raises(CapabilityError, match="does not chat"):
            await client(Request(messages=(Message("user", ("Hello",)),)))
