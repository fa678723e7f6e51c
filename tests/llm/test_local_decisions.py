"""A decision model in the process: llama.cpp's own System One, by the names of the catalogue and of
one's own files.

The weights are the smallest of the catalogue under a header that makes them a decision model whose
options are letters (llama.cpp's type `openjev`). What it decides means nothing.
"""

import json
from contextlib import AsyncExitStack
from pathlib import Path

import gguf
import pytest

from textevolve.errors import CapabilityError, TooLongError
from textevolve.llm.decisions import choice, decide, predicate, score
from textevolve.llm.model import Message, Request
from textevolve.llm.opening import open_client
from textevolve.llm.providers import resolve
from textevolve.settings import Local, Settings

TEMPLATE = (
    "<|im_start|>user\n{{ state }}\n\n{{ instructions }}\n"
    "{% for option in options %}{{ option.label }}: {{ option.key }}\n{% endfor %}"
    "Answer with one letter.<|im_end|>\n<|im_start|>assistant\n"
)
QUESTIONS = (
    predicate("blue", "Is the sky blue?"),
    choice("colour", "Which colour has the sky?", ["blue", "green", "red"]),
    score("bright", "How bright is it?", ["dark", "dim", "bright"]),
)


def make_decider(weights: Path, made: Path) -> None:
    """Writes the same weights with two more entries in their header."""
    reader = gguf.GGUFReader(weights)
    writer = gguf.GGUFWriter(made, "llama")
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        inner = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), field.types[0], inner)
    writer.add_string("llama.decision.type", "openjev")
    writer.add_string("tokenizer.chat_template.systemone", TEMPLATE)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A header alone, which says that it is of a decision model."""
    writer = gguf.GGUFWriter(tmp_path / "mine.gguf", "llama")
    writer.add_string("llama.decision.type", "openjev")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return tmp_path


@pytest.fixture
def settings(folder: Path) -> Settings:
    return Settings(weights_folder=folder, local=Local(slots=1, context=1024, threads=1))


@pytest.mark.parametrize("by", ["name", "path"])
def test_a_file_of_ones_own_is_known_by_its_header(folder: Path, settings: Settings, by: str):
    spec = "local/mine" if by == "name" else f"local/{folder / 'mine.gguf'}"
    endpoint = resolve(spec, settings)
    assert (endpoint.decisions, endpoint.chats) == ("systemone", False)


@pytest.mark.slow
async def test_it_decides_and_does_not_chat(settings: Settings, smollm: Path):
    make_decider(smollm, settings.weights_folder / "mine.gguf")
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
