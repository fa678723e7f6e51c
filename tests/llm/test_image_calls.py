"""Images on their way to a model: the body, refusals, budgets, decisions, the scripted server."""

import hashlib

import pytest

from made_images import jpeg, png
from textevolve.errors import BudgetError, CapabilityError, RejectedError, UnavailableError
from textevolve.images import image_facts, image_url
from textevolve.llm.client import OpenAIClient
from textevolve.llm.decision_wires import Deciding
from textevolve.llm.decisions import decide, predicate
from textevolve.llm.model import Message, Request
from textevolve.llm.refusals import Refusal, failure
from textevolve.llm.testing import (
    Answer,
    Fault,
    ScriptedServer,
    echo_images,
    refuse_images,
    seen_images,
)
from textevolve.llm.wire import chat_body
from textevolve.llm.wrappers import Budget, Budgeted, Retrying
from textevolve.settings import Retries

ONE, OTHER = png(), jpeg(64, 48)
URLS = (image_url(ONE), image_url(OTHER))
ASKED = Request(messages=(Message("system", ("s",)), Message("user", ("a ", "b"), URLS)))


def test_images_stand_as_parts_before_the_text():
    plain, shown = chat_body("m", ASKED, "max_tokens")["messages"]
    assert plain == {"role": "system", "content": "s"}
    assert shown["content"] == [
        {"type": "image_url", "image_url": {"url": URLS[0]}},
        {"type": "image_url", "image_url": {"url": URLS[1]}},
        {"type": "text", "text": "a b"},
    ]


async def test_the_scripted_server_tells_which_images_came():
    async with ScriptedServer(echo_images) as server, OpenAIClient(server.url, "m") as client:
        response = await client(ASKED)
        plain = await client(Request(messages=(Message("user", ("no images",)),)))
    first, second, text = response.text.splitlines()
    assert first == f"png {len(ONE)} bytes {hashlib.sha256(ONE).hexdigest()[:12]}"
    assert second.startswith(f"jpeg {len(OTHER)} bytes ")
    assert text == "a b"
    assert "bytes" not in plain.text
    assert [one.kind for one in seen_images(server.requests[0])] == ["png", "jpeg"]
    assert response.usage.prompt_tokens == 5 + sum(image_facts(url).tokens for url in URLS)


NO_IMAGES = (
    "image input is not supported - hint: if this is unexpected, you may need to provide the"
    " mmproj",
    "Invalid content type. image_url is only supported by certain models.",
    "At most 0 image(s) may be provided in one request.",
    "meta/llama-3 is not a multimodal model",
    "Failed to deserialize the JSON body into the target type: messages[0]: unknown variant"
    " `image_url`, expected `text` at line 1 column 3",
    "messages[0].content must be a string",
    "No endpoints found that support image input",
    "this model is missing data required for image input",
    "Image input is not enabled for this model",
    "This model does not support images",
    "The model doesn't support image input",
    "model `x` does not support vision",
)
OF_ONE_IMAGE = (
    "You uploaded an unsupported image. Please make sure your image has of one the following"
    " formats",
    "Invalid base64 image_url.",
    "image exceeds 5 MB maximum: 6291456 bytes > 5242880 bytes",
    "Could not process image",
    "The media type image/gif is not supported",
    "Failed to load image or audio file",
)


@pytest.mark.parametrize("said", NO_IMAGES)
@pytest.mark.parametrize("status", [400, 404, 422, 500])
def test_a_model_without_eyes_is_known_by_its_words(said, status):
    found = failure("m", status, Refusal(said), images=True)
    assert isinstance(found, CapabilityError)
    assert str(found).startswith("m: this model takes no images (")
    assert not isinstance(failure("m", status, Refusal(said)), CapabilityError)


@pytest.mark.parametrize("said", OF_ONE_IMAGE)
def test_one_bad_image_is_not_the_end_of_a_run(said):
    assert type(failure("m", 400, Refusal(said), images=True)) is RejectedError
    assert type(failure("m", 500, Refusal(said), images=True)) is UnavailableError


@pytest.mark.parametrize("fault", [Fault.NO_IMAGES_OPENAI, Fault.NO_IMAGES_LLAMACPP])
async def test_a_refusal_is_told_once_and_not_tried_again(fault):
    async with (
        ScriptedServer(lambda _body, _number: fault) as server,
        OpenAIClient(server.url, "blind", name="scripted/blind") as client,
    ):
        model = Retrying(client, Retries(attempts=4, first=0.001, longest=0.001))
        with pytest.raises(CapabilityError, match="scripted/blind: this model takes no images"):
            await model(ASKED)
    assert server.calls == 1


async def test_a_script_that_refuses_images_answers_all_else():
    async with ScriptedServer(refuse_images) as server, OpenAIClient(server.url, "m") as client:
        with pytest.raises(CapabilityError):
            await client(ASKED)
        assert (await client(Request(messages=(Message("user", ("x",)),)))).text


async def test_images_count_in_a_budget():
    large = image_url(png(2048, 2048))
    request = Request(messages=(Message("user", ("x",), (large,)),), max_tokens=5)
    async with ScriptedServer() as server, OpenAIClient(server.url, "m") as client:
        model = Budgeted(client, Budget(tokens=40))
        with pytest.raises(BudgetError):
            await model(request)
        assert server.calls == 0
        await Budgeted(client, Budget(tokens=40))(
            Request(messages=(Message("user", ("x",)),), max_tokens=5)
        )


async def test_an_emulated_decision_keeps_the_images_of_a_state_that_is_cut():
    async with (
        ScriptedServer(lambda _body, _number: Answer(yes=0.7)) as server,
        OpenAIClient(server.url, "m") as client,
    ):
        model = Deciding(client, None, most_characters=200)
        found = await decide(model, "long " * 500, [predicate("q", "So?")], images=URLS)
    assert found.cut > 0
    assert found.answer("q").share == pytest.approx(0.7, abs=1e-6)
    assert [one.kind for one in seen_images(server.requests[-1])] == ["png", "jpeg"]
