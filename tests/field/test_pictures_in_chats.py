"""Chats with pictures in the forms of known wires: judges and models under test see them.

The right bytes are those of the file, by Python's base64; their order is that of the chat.
"""

import json
from base64 import b64encode

import pytest

from made_images import jpeg, png
from textevolve.llm.testing import Fault, ScriptedServer, seen_images
from textevolve.messages import RecordedResult, drop_media, result_text

RED = png(colour=(255, 0, 0))
BLUE = png(colour=(0, 0, 255))


def encode(content):
    return b64encode(content).decode()


def url_of(content):
    return f"data:image/png;base64,{encode(content)}"


def openai(content, **more):
    return {"type": "image_url", "image_url": {"url": url_of(content), **(more or {})}}


PARTS = {
    "OpenAI": openai(RED, detail="low"),
    "Responses": {"type": "input_image", "image_url": url_of(RED)},
    "Anthropic": {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": encode(RED)},
    },
    "Gemini": {"inlineData": {"mimeType": "image/png", "data": encode(RED)}},
    "Gemini in Python": {"inline_data": {"mime_type": "image/png", "data": encode(RED)}},
    "Bedrock": {"image": {"format": "png", "source": {"bytes": encode(RED)}}},
    "LangChain": {"type": "image", "base64": encode(RED), "mime_type": "image/png"},
    "LangChain's older form": {"type": "image", "source_type": "base64", "data": encode(RED)},
    "MCP": {"type": "image", "data": encode(RED), "mimeType": "image/png"},
    "Vercel": {"type": "image", "image": url_of(RED)},
    "Vercel's newer form": {"type": "file", "mediaType": "image/png", "data": encode(RED)},
    "Hugging Face": {"type": "image", "url": url_of(RED)},
    "capitals": {"type": "input_image", "image_url": url_of(RED).replace("base64", "BASE64")},
    "a blank": {"type": "input_image", "image_url": url_of(RED).replace("base64", " base64")},
}
ELSEWHERE = {
    "address": openai(RED) | {"image_url": {"url": "https://example.com/cat.png"}},
    "id": {"type": "input_image", "file_id": "file-1"},
    "path": {"type": "image", "path": "red.png"},
    "audio": {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
    "PDF": {"type": "file", "file": {"file_data": "data:application/pdf;base64,JVBERi0="}},
}


def say(role, *content):
    parts = [{"type": "text", "text": part} if isinstance(part, str) else part for part in content]
    return {"role": role, "content": parts}


def call(id):
    function = {"name": "camera", "arguments": "{}"}
    calls = [{"id": id, "type": "function", "function": function}]
    return {"role": "assistant", "content": None, "tool_calls": calls}


@pytest.fixture
def judge(cli, home, server, model):
    """Judges chats, and returns what the command wrote and the bodies of its requests."""

    def run(*chats, options=(), name="messages", more=None):
        lines = [json.dumps({name: chat, **(more or {})}) for chat in chats]
        (home / "rows.jsonl").write_text("\n".join(lines))
        before = server.calls
        outcome = cli("evaluate", "rows.jsonl", "--judge", "probe", "-m", model, *options)
        assert outcome.code == 0, outcome.err
        return outcome, list(server.requests)[before:]

    return run


def shown(bodies):
    """Return the pictures of each body, and all texts."""
    text = json.dumps(bodies).replace("> ", "")
    return [list(seen_images(body)) for body in bodies], text


def named(bodies, names):
    """Return the bodies by the name in the question of their chat."""
    return {name: [body for body in bodies if f"{name}?" in json.dumps(body)] for name in names}


def test_every_wire_is_shown(judge):
    chats = [[say("user", f"{n}?", part), say("assistant", "Red.")] for n, part in PARTS.items()]
    outcome, bodies = judge(*chats)
    for name, asked in named(bodies, PARTS).items():
        pictures, text = shown(asked)
        assert (name, pictures) == (name, [[RED]] * 3)
        assert f"{name}?\\n(image 1)" in text
        assert (name, encode(RED) in text.replace(url_of(RED), "")) == (name, False)
    assert "no text" not in outcome.err


GEMINI = [
    {"role": "user", "parts": [{"text": "Which colour?"}, PARTS["Gemini"]]},
    {"role": "model", "parts": [{"text": "Red."}]},
]
LANGCHAIN = [
    {"type": "human", "content": [{"type": "text", "text": "Which colour?"}, PARTS["OpenAI"]]},
    {"type": "ai", "content": "Red."},
]


@pytest.mark.parametrize("chat", [GEMINI, LANGCHAIN])
def test_messages_of_other_wires(judge, chat):
    assert shown(judge(chat)[1])[0] == [[RED]] * 3


MCP = {"content": [{"type": "text", "text": "done"}, {**PARTS["MCP"], "data": encode(BLUE)}]}


def answer(content):
    """Return a call, and its result with this content."""
    return [call("c1"), {"role": "tool", "tool_call_id": "c1", "content": content}]


RESULTS = {
    "MCP": answer(MCP["content"]),
    "MCP's whole result": answer(MCP),
    "MCP's whole result as a text": answer(json.dumps(MCP)),
    "MCP's parts as a text": answer(json.dumps(MCP["content"])),
    "an MCP picture as a text": answer(json.dumps(MCP["content"][1])),
    "a picture within data": answer({"status": "ok", "screen": openai(BLUE)}),
    "MCP through Gemini": [
        {"role": "model", "parts": [{"functionCall": {"name": "camera", "args": {}}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "camera", "response": MCP}}]},
    ],
    "OpenAI": [
        call("c1"),
        {"role": "tool", "tool_call_id": "c1", "content": [openai(BLUE)]},
    ],
    "Anthropic": [
        say("assistant", {"type": "tool_use", "id": "c1", "name": "camera", "input": {}}),
        say(
            "user",
            {
                "type": "tool_result",
                "tool_use_id": "c1",
                "content": [{"type": "image", "source": {"type": "base64", "data": encode(BLUE)}}],
            },
        ),
    ],
    "Responses": [
        {"type": "function_call", "call_id": "c1", "name": "camera", "arguments": "{}"},
        {
            "type": "function_call_output",
            "call_id": "c1",
            "output": [{"type": "input_image", "image_url": url_of(BLUE)}],
        },
    ],
    "a computer's screen": [
        {"type": "computer_call", "call_id": "c1", "action": {"type": "screenshot"}},
        {
            "type": "computer_call_output",
            "call_id": "c1",
            "output": {"type": "computer_screenshot", "image_url": url_of(BLUE)},
        },
    ],
}


def test_results_of_tools_are_shown_in_order(judge):
    outcome, bodies = judge(
        *(
            [say("user", openai(RED), f"{name}?"), *turns, say("assistant", "Blue.")]
            for name, turns in RESULTS.items()
        )
    )
    for name, asked in named(bodies, RESULTS).items():
        pictures, text = shown(asked)
        assert (name, pictures) == (name, [[RED, BLUE]] * 3)
        assert text.index("(image 1)") < text.index("(image 2)")
        assert (name, encode(BLUE) in text.replace(url_of(BLUE), "")) == (name, False)
    assert "no text" not in outcome.err


@pytest.mark.parametrize(
    "content",
    [
        '{"rows":  [1, 2]}',
        '{"type": "file", "path": "a.py", "content": "print(1)"}',
        '{"type": "image", "url": "https://example.com/cat.png", "title": "A cat"}',
        '{"a":' * 600 + "1" + "}" * 600,
    ],
)
def test_results_without_a_picture_stay_as_they_are(content):
    assert result_text(RecordedResult("c1", "read", content)) == content


def test_a_sound_in_a_result_is_named(judge):
    sound = {"type": "audio", "data": "UklGRg==", "mimeType": "audio/wav"}
    chat = [say("user", "Which?"), *answer({"content": [sound]}), say("assistant", "A horn.")]
    outcome, bodies = judge(chat)
    assert "(audio)" in shown(bodies)[1]
    assert "UklGRg" not in shown(bodies)[1]
    assert "1 parts of the chats are no text" in outcome.err


@pytest.mark.parametrize("role", ["user", "tool"])
def test_what_is_elsewhere_is_told(judge, role):
    chats = []
    for name, part in ELSEWHERE.items():
        result = [call("c1"), {**say("tool", part), "tool_call_id": "c1"}]
        asked = say("user", f"{name}?", *[part] * (role == "user"))
        chats.append([asked, *result * (role == "tool"), say("assistant", "Red.")])
    outcome, bodies = judge(*chats)
    assert f"{len(ELSEWHERE)} parts of the chats are no text" in outcome.err
    assert "an address, a path or an id" in " ".join(outcome.err.split())
    assert shown(bodies)[0] == [[]] * 3 * len(ELSEWHERE)


def test_pictures_of_the_answer_are_the_candidates(judge):
    chat = [say("user", openai(RED), "Make it blue."), say("assistant", "Here.", openai(BLUE))]
    pictures, text = shown(judge(chat)[1])
    assert pictures == [[RED, BLUE]] * 3
    assert "(image 2)\\nHere.\\n(image 2)" in text


def test_later_turns_show_nothing(judge):
    chat = [say("user", "Hello?"), say("assistant", "Hi."), say("user", openai(RED))]
    assert shown(judge(chat)[1])[0] == [[]] * 3


def test_each_reply_sees_what_came_before_it(judge):
    chat = [say("user", openai(RED)), say("assistant", "Red."), say("user", openai(BLUE))]
    _, bodies = judge([*chat, say("assistant", "Blue.")], options=("--each-reply",))
    assert sorted(map(len, shown(bodies)[0])) == [1] * 3 + [2] * 3


def test_chats_beside_an_output_and_a_column(judge):
    chat = [say("user", openai(BLUE), openai(RED), "Which?")]
    pictures, text = shown(judge(chat, more={"output": "Red.", "images": [url_of(RED)]})[1])
    assert pictures == [[RED, BLUE]] * 3
    assert "(image 2)\\n(image 1)\\nWhich?" in text


def test_too_many_are_told(judge):
    parts = [openai(png(colour=(1, 1, n))) for n in range(22)]
    outcome, bodies = judge([say("user", *parts), say("assistant", "Dark.")])
    assert [len(pictures) for pictures in shown(bodies)[0]] == [20] * 3
    assert "2 parts of the chats are no text" in outcome.err


def test_another_picture_is_another_run(judge):
    def ask(content):
        return judge([say("user", openai(content), "Which?"), say("assistant", "Red.")])[1]

    assert [len(ask(content)) for content in (RED, BLUE, RED)] == [3, 3, 0]


def test_dry_runs_count_them(cli, home, model):
    tokens = []
    for part in (openai(RED), "(image 1)"):
        chat = [say("user", "Which?", part), say("assistant", "Red.")]
        (home / "rows.jsonl").write_text(json.dumps({"messages": chat}))
        command = ("evaluate", "rows.jsonl", "--judge", "probe", "-m", model, "--dry-run")
        tokens.append(json.loads(cli(*command, "--json").out)["expected"])
    asked, plain = (figures["prompt_tokens"]["median"] for figures in tokens)
    assert asked - plain >= 3 * 765


@pytest.fixture
def compare(cli, home, server, model):
    """Compares a prompt on a chat, and returns what was written and the bodies of the requests."""

    def run(chat, prompt="{talk}", options=(), more=None):
        (home / "p.txt").write_text(prompt)
        (home / "rows.jsonl").write_text(json.dumps({"talk": chat, **(more or {})}))
        before = server.calls
        outcome = cli("compare", "-d", "rows.jsonl", "-p", "p.txt", "-m", model, *options)
        assert outcome.code == 0, outcome.err
        return outcome, list(server.requests)[before:]

    return run


def test_models_under_test_get_them(compare):
    outcome, ((body), *_) = compare(
        [say("user", "Which?", openai(RED))], options=("--judge", "probe")
    )
    assert body["messages"][0]["content"] == [
        {"type": "image_url", "image_url": {"url": url_of(RED)}},
        {"type": "text", "text": "Which?\n(image 1)"},
    ]
    assert "no text" not in outcome.err


def test_they_stay_with_their_messages(compare):
    chat = [
        say("user", openai(RED), "Which?"),
        say("assistant", "Red."),
        say("user", openai(jpeg()), "And this?"),
    ]
    _, bodies = compare(chat, options=("--judge", "probe"))
    first, _, last = bodies[0]["messages"]
    assert list(seen_images({"messages": [first]})) == [RED]
    assert list(seen_images({"messages": [last]})) == [jpeg()]
    assert shown(bodies)[0] == [[RED, jpeg()]] * len(bodies)
    assert len(bodies) > 1


def test_results_go_with_the_last_message_of_the_user(compare):
    result = {"role": "tool", "tool_call_id": "c1", "content": [openai(BLUE)]}
    chat = [say("user", openai(RED), "And now?"), call("c1"), result]
    _, ((body), *_) = compare(chat, options=("--judge", "probe"))
    assert list(seen_images(body)) == [RED, BLUE]
    assert body["messages"][2]["content"] == "(image 2)"


def test_prompts_around_a_chat_get_them(compare):
    chat = [say("user", openai(RED), "Which?")]
    _, ((body), *_) = compare(chat, "Go on: {talk}", options=("--judge", "probe"))
    assert list(seen_images(body)) == [RED]
    assert "Go on: (image 1)" in json.dumps(body)


def test_the_recorded_answer_shows_nothing(compare):
    chat = [say("user", "Draw."), say("assistant", openai(RED))]
    outcome, bodies = compare(chat, options=("--judge", "probe"))
    assert shown(bodies)[0] == [[]] * len(bodies)
    assert "1 of 1 chats have parts that are no text" in outcome.err


def test_only_prompts_that_show_the_chat_get_them(home, compare):
    (home / "q.txt").write_text("{question}")
    more = {"question": "Two and two?"}
    options = ("-p", "q.txt", "--judge", "probe")
    _, bodies = compare([say("user", openai(RED))], options=options, more=more)
    questions = [{"role": "user", "content": "Two and two?"}]
    assert sum(body["messages"] == questions for body in bodies) == 1


def test_conversations_begin_with_them(compare):
    talk = [say("user", openai(RED), "Which?")]
    more = {"turns": ["Hello?", "Sure?"]}
    _, bodies = compare(talk, "You know: {talk}", ("--judge", "probe"), more)
    assert list(seen_images(bodies[0])) == [RED]


def test_applications_get_them(cli, home, server, model, judge):
    chat = [say("user", openai(RED), "Which?")]
    (home / "app.py").write_text(
        "def answer(input, images=()):\n    return f'{len(images)} seen'\n"
    )
    (home / "rows.jsonl").write_text(json.dumps({"messages": chat}))
    outcome = cli(
        *(
            "evaluate",
            "rows.jsonl",
            "--target",
            "python:app.answer",
            "--judge",
            "probe",
            "-m",
            model,
        )
    )
    assert outcome.code == 0, outcome.err
    assert "1 seen" in json.dumps(list(server.requests))


def test_a_judge_of_texts_is_refused(cli, home, server, model):
    chat = [say("user", openai(RED), "Draw."), say("assistant", openai(BLUE))]
    (home / "rows.jsonl").write_text(json.dumps({"messages": chat}))
    outcome = cli("evaluate", "rows.jsonl", "--judge", "faithfulness", "-m", model, "--json")
    assert "the candidates have images" in " ".join((outcome.out + outcome.err).split())


def test_a_model_without_images_ends_the_run(cli, home):
    chat = [say("user", openai(RED), "Which?"), say("assistant", "Red.")]
    (home / "rows.jsonl").write_text(json.dumps({"messages": chat}))
    with ScriptedServer(lambda *_: Fault.NO_IMAGES_OPENAI) as server:
        outcome = cli("evaluate", "rows.jsonl", "--judge", "probe", "-m", f"{server.url}#any")
    assert outcome.code != 0
    assert "image" in outcome.err


@pytest.mark.parametrize("head", ["image/png;BASE64", "image/png; base64", ";base64"])
def test_addresses_in_texts_are_named(head):
    assert "iVBOR" not in str(drop_media(f"See data:{head},{encode(RED)} there"))
