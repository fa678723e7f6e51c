"""`textevolve models templates`: what is printed is what a model reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from textevolve.llm.chat_formats.catalogue import CHAT_FORMATS

TEMPLATES = Path(__file__).parent.parent / "llm" / "chat_templates"
MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
CHATML = (
    "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
    "<|im_start|>assistant\n"
)


@pytest.fixture
def conversation(home):
    place = home / "conversation.json"
    place.write_text(json.dumps(MESSAGES))
    return place


@pytest.fixture
def model(home):
    """A model's folder."""
    folder = home / "model"
    folder.mkdir()
    config = {
        "chat_template": (TEMPLATES / "llama-3.1.jinja").read_text(),
        "bos_token": "<|begin_of_text|>",
        "eos_token": "<|eot_id|>",
        "add_bos_token": True,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def test_list_and_show(cli):
    assert all(name in cli("models", "templates", "list").out for name in CHAT_FORMATS)
    listed = json.loads(cli("models", "templates", "list", "--json").out)
    assert [row["name"] for row in listed] == list(CHAT_FORMATS)
    assert '"<|im_start|>user\\n"' in cli("models", "templates", "show", "chatml").out
    payload = json.loads(cli("models", "templates", "show", "chatml", "--json").out)
    assert payload["user"] == {"before": "<|im_start|>user\n", "after": "<|im_end|>\n"}
    wrong = cli("models", "templates", "show", "chatm")
    assert wrong.code == 2
    assert "did you mean 'chatml'?" in wrong.err


def convert(cli, *arguments):
    return cli("models", "templates", "convert", *arguments)


def test_a_conversation_is_written_by_a_format_or_a_template(cli, home, conversation, model):
    assert convert(cli, conversation, "--to", "chatml").out == CHATML
    (home / "own.jinja").write_text(cli("models", "templates", "show", "chatml", "--jinja").out)
    assert convert(cli, conversation, "-t", home / "own.jinja").out == CHATML
    whole = home / "request.json"
    tool = {"type": "function", "function": {"name": "find_tide", "parameters": {}}}
    whole.write_text(json.dumps({"model": "m", "messages": MESSAGES, "tools": [tool]}))
    text = convert(cli, whole, "-t", model).out
    assert text.startswith("<|begin_of_text|><|start_header_id|>system")
    assert "find_tide" in text
    assert "the known formats cannot write tools" in convert(cli, whole, "--to", "chatml").err


def test_a_hostile_template_is_an_error_of_one_line(cli, home, conversation):
    (home / "hostile.jinja").write_text("{{ 'a' * 10**10 }}")
    outcome = convert(cli, conversation, "-t", home / "hostile.jinja")
    assert outcome.code == 2
    assert outcome.err == "error: the chat template takes more than 512 MiB of memory\n"


def test_convert(cli, home, conversation):
    (home / "prompt.txt").write_text(CHATML)
    zephyr = "<|system|>\nBe brief.</s>\n<|user|>\nHi</s>\n<|assistant|>\n"
    assert (
        cli("models", "templates", "convert", home / "prompt.txt", "--to", "zephyr").out == zephyr
    )
    assert cli("models", "templates", "convert", conversation, "--to", "zephyr").out == zephyr
    back = json.loads(cli("models", "templates", "convert", home / "prompt.txt").out)
    assert back == {"messages": MESSAGES}
    (home / "words.txt").write_text("Only words.")
    assert (
        "name its format, or the model's file, with --from"
        in cli("models", "templates", "convert", home / "words.txt").err
    )
    wrong = cli("models", "templates", "convert", home / "prompt.txt", "--from", "zephyr")
    assert wrong.code == 2
    assert "not in the format zephyr" in wrong.err


def test_check(cli, model, home):
    outcome = cli("models", "templates", "check", model)
    assert outcome.code == 0
    assert "system message  kept" in outcome.out
    payload = json.loads(cli("models", "templates", "check", model, "--json").out)
    assert (payload["format"], payload["system"]) == ("llama-3.1", "")
    assert cli("models", "templates", "check", TEMPLATES / "phi-3-mini.jinja").code == 1
