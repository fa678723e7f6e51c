"""Situations of people who render chats with a model's own files: several named templates, special
tokens of the model, and the fields of a request that say how it is rendered.

transformers is the right value where it can read the files.
"""

import json

import pytest

from textevolve.errors import InputError
from textevolve.llm.chat_formats.sources import read_chat_template

TURNS = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}\n{% endfor %}"
TOOLS = [{"type": "function", "function": {"name": "tide", "parameters": {"type": "object"}}}]
USER = [{"role": "user", "content": "When is high tide?"}]
BEGUN = [*USER, {"role": "assistant", "content": "It is at "}]
NAMED = [
    {"name": "default", "template": "D" + TURNS},
    {"name": "tool_use", "template": "T{{ tools | tojson }}" + TURNS},
    {"name": "rag", "template": "R" + TURNS},
]


@pytest.fixture
def folder(tmp_path):
    def write(config=None, **files):
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config or {}))
        for name, text in files.items():
            place = tmp_path / f"{name.replace('_IN_', '/')}.jinja"
            place.parent.mkdir(exist_ok=True)
            place.write_text(text)
        return tmp_path

    return write


@pytest.mark.parametrize("as_files", [False, True])
def test_tools_choose_their_template(folder, as_files):
    if as_files:
        place = folder(
            chat_template=NAMED[0]["template"],
            additional_chat_templates_IN_tool_use=NAMED[1]["template"],
            additional_chat_templates_IN_rag=NAMED[2]["template"],
        )
    else:
        place = folder({"chat_template": NAMED})
    model = read_chat_template(place)
    assert model.render(USER).startswith("D<|user|>")
    assert model.render(USER, tools=TOOLS).startswith('T[{"type": "function"')
    assert model.render(USER, tools=TOOLS, chat_template="rag").startswith("R<|user|>")
    assert model.render(USER, chat_template="default").startswith("D")
    assert model.render(USER, chat_template="{{ messages | length }}") == "1"


def test_unknown_names_are_refused(folder):
    """A name that the model does not have was rendered as if it were a template."""
    model = read_chat_template(folder({"chat_template": NAMED}))
    with pytest.raises(InputError, match=r"no chat template 'rga'; it has default, rag, tool_use"):
        model.render(USER, chat_template="rga")
    with pytest.raises(InputError, match=r"no chat template 'rag'; it has one without a name"):
        read_chat_template(folder({"chat_template": TURNS})).render(USER, chat_template="rag")


def test_no_default_is_said(folder):
    model = read_chat_template(folder({"chat_template": NAMED[1:]}))
    with pytest.raises(InputError, match=r"no default.*rag, tool_use"):
        model.render(USER)
    assert model.render(USER, tools=TOOLS).startswith("T")


def test_gguf_with_named_templates(tmp_path):
    gguf = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_array("tokenizer.ggml.tokens", ["<unk>", "<s>", "</s>", "<pad>"])
    for name, number in (("bos", 1), ("eos", 2), ("padding", 3), ("unknown", 0)):
        writer.add_uint32(f"tokenizer.ggml.{name}_token_id", number)
    writer.add_chat_template([{**NAMED[0], "template": "{{ unk_token }}{{ pad_token }}"}, NAMED[1]])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    model = read_chat_template(tmp_path / "m.gguf")
    assert model.render(USER) == "<unk><pad>"
    assert model.render(USER, tools=TOOLS).startswith("T[")


@pytest.mark.parametrize(
    ("config", "source", "text"),
    [
        ({"pad_token": "<pad>"}, "{{ pad_token }}", "<pad>"),
        ({"unk_token": {"content": "<unk>"}}, "{{ unk_token }}", "<unk>"),
        ({"cls_token": "[CLS]", "sep_token": "[SEP]"}, "{{ cls_token + sep_token }}", "[CLS][SEP]"),
        ({"extra_special_tokens": {"image_token": "<img>"}}, "{{ image_token }}", "<img>"),
        ({"boi_token": "<boi>"}, "{{ boi_token }}", "<boi>"),
        ({"pad_token": None}, "{{ pad_token is defined }}", "False"),
        ({"add_bos_token": True}, "{{ add_bos_token is defined }}", "False"),
    ],
)
def test_special_tokens(folder, config, source, text):
    assert read_chat_template(folder(config, chat_template=source)).render(USER) == text


@pytest.mark.parametrize(
    ("source", "messages", "text"),
    [
        (TURNS, BEGUN, "<|user|>When is high tide?\n<|assistant|>It is at "),
        ("{{ messages[-1].content | trim }}</s>", BEGUN, "It is at"),
        (
            "{{ messages[-1].content[0].text }}!",
            [*USER, {"role": "assistant", "content": [{"type": "text", "text": "At"}]}],
            "At",
        ),
    ],
)
def test_last_message_is_continued(folder, source, messages, text):
    model = read_chat_template(folder(chat_template=source))
    assert model.render(messages, continue_final_message=True) == text


def test_what_cannot_be_continued(folder):
    model = read_chat_template(folder(chat_template="{{ messages[0].content }}"))
    for messages, options in (
        (BEGUN, {}),
        ([{"role": "assistant", "content": None}], {}),
        (USER, {"add_generation_prompt": True}),
    ):
        with pytest.raises(InputError, match="continue_final_message"):
            model.render(messages, continue_final_message=True, **options)


@pytest.mark.parametrize("reply", ["<think>Far.</think>\nAt", "<think></think>At ", "<b>At</b> "])
def test_parts_that_a_template_cuts_are_named(folder, reply):
    """The end of the reply is there, so a sentence about its end would mislead."""
    source = "{{ messages[-1].content.split('>')[-1] }}<|im_end|>"
    model = read_chat_template(folder(chat_template=source))
    with pytest.raises(InputError, match=r"leaves out or changes a part .* thoughts"):
        model.render([*USER, {"role": "assistant", "content": reply}], continue_final_message=True)
    messages = [*USER, {"role": "assistant", "content": "At"}]
    assert model.render(messages, continue_final_message=True) == "At"


CALLS = "{% for c in messages[-1].tool_calls %}{% set c = c.function or c %}"


@pytest.mark.parametrize("is_nested", [True, False])
@pytest.mark.parametrize("writes", ["c.arguments | tojson", "c.arguments"])
@pytest.mark.parametrize(
    ("recorded", "text", "is_quoted"),
    [
        ('{"town": "\\"Rye\\""}', '{"town": "\\"Rye\\""}', False),
        (' {"days": 2} ', '{"days": 2}', False),
        ("", "{}", False),
        ('{"town": "Zü', '{"town": "Zü', True),
        ("[2]", "[2]", True),
    ],
)
def test_arguments_recorded_as_texts(
    folder, cli, home, caplog, is_nested, writes, recorded, text, is_quoted
):
    """As the calls of a recorded chat have them: within a function, as OpenAI's, or beside the
    name. What is no object is written as the text that it is, and named."""
    call = {"name": "tide", "arguments": recorded}
    call = {"id": "c", "type": "function", "function": call} if is_nested else {"id": "c", **call}
    messages = [*USER, {"role": "assistant", "content": None, "tool_calls": [call]}]
    (home / "chat.json").write_text(json.dumps(messages))
    place = folder(chat_template=f"{CALLS}{{{{ {writes} }}}}{{% endfor %}}")
    result = cli("models", "templates", "convert", "chat.json", "-t", str(place))
    is_quoted = is_quoted and "tojson" in writes
    assert result.out.strip() == (json.dumps(text, ensure_ascii=False) if is_quoted else text)
    assert ("message 2: the arguments of a call are no JSON object" in caplog.text) == is_quoted


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "<|user|>When is high tide?\n<|assistant|>It is at \nA-"),
        ({"continue_final_message": True}, "<|user|>When is high tide?\n<|assistant|>It is at "),
        (
            {"add_generation_prompt": False},
            "<|user|>When is high tide?\n<|assistant|>It is at \n-",
        ),
        ({"chat_template": "{{ messages | length }}"}, "2"),
        (
            {"chat_template_kwargs": {"day": "Sunday"}},
            "<|user|>When is high tide?\n<|assistant|>It is at \nASunday-",
        ),
    ],
)
def test_fields_of_requests(cli, home, folder, fields, text):
    source = TURNS + "{% if add_generation_prompt %}A{% endif %}{{ day }}-"
    place = folder(chat_template=source)
    (home / "request.json").write_text(json.dumps({"model": "m", "messages": BEGUN, **fields}))
    result = cli("models", "templates", "convert", "request.json", "-t", str(place))
    assert (result.code, result.out) == (0, text)


def test_known_formats_refuse_them(cli, home):
    body = {"messages": BEGUN, "continue_final_message": True}
    (home / "request.json").write_text(json.dumps(body))
    result = cli("models", "templates", "convert", "request.json", "--to", "chatml")
    assert result.code == 2
    assert "continue_final_message" in result.err
