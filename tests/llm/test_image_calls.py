"""Images on their way to a model: the body, refusals, budgets, decisions, the scripted server."""

import pytest

from made_images import jpeg, png
from textevolve.errors import CapabilityError, RejectedError, UnavailableError
from textevolve.images import image_url
from textevolve.llm.model import Message, Request
from textevolve.llm.refusals import Refusal, failure
from textevolve.llm.wire import chat_body

ONE, OTHER = png(), jpeg()
URLS = (image_url(ONE), image_url(OTHER))
ASKED = Request(messages=(Message("system", ("s",)), Message("user", ("a ", "b"), URLS)))


def test_images_stand_as_parts_before_the_text():
    plain, output = chat_body("m", ASKED, "max_tokens")["messages"]
    assert plain == {"role": "system", "content": "s"}
    assert output["content"] == [
        {"type": "image_url", "image_url": {"url": URLS[0]}},
        {"type": "image_url", "image_url": {"url": URLS[1]}},
        {"type": "text", "text": "a b"},
    ]


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ("image input is not supported - hint: you may need to provide the mmproj", 500),
        ("Invalid content type. image_url is only supported by certain models.", 400),
        ("At most 0 image(s) may be provided in one request.", 400),
        ("meta/llama-3 is not a multimodal model", 404),
        ("messages[0]: unknown variant `image_url`, expected `text` at line 1 column 3", 422),
        ("The model doesn't support image input", 400),
    ],
)
def test_a_model_without_eyes_is_known_by_its_words(said, status):
    model_error = failure("m", status, Refusal(said), images=True)
    assert isinstance(model_error, CapabilityError)
    assert str(model_error).startswith("m: this model takes no images (")
    assert not isinstance(failure("m", status, Refusal(said)), CapabilityError)


@pytest.mark.parametrize("said", ["Invalid base64 image_url.", "Could not process image"])
def test_one_bad_image_is_not_the_end_of_a_run(said):
    assert type(failure("m", 400, Refusal(said), images=True)) is RejectedError
    assert type(failure("m", 500, Refusal(said), images=True)) is UnavailableError
