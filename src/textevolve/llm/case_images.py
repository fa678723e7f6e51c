"""Build the messages of a prompt that contain the images of a case; no other module does this.

The images of a message come before its text: first those of the input, then those of the
candidates. They are numbered from 1 in that order. Their names are written next to the marks around
a text, where no candidate can write. Prompts without images are unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable

from textevolve.evaluation import Case
from textevolve.images import IMAGE_TOKENS
from textevolve.llm.fence import fence, quote
from textevolve.llm.model import Message, Request
from textevolve.llm.template import load_template
from textevolve.llm.token_count import CHARACTERS_A_TOKEN


def image_tokens(request: Request) -> int:
    """Estimate the tokens of a request's images."""
    return IMAGE_TOKENS * sum(len(message.images) for message in request.messages)


def prompt_tokens(request: Request) -> int:
    """Estimate the tokens of a request's texts and images."""
    texts = [part for message in request.messages for part in message.parts]
    length = sum(map(len, texts)) + len(request.questions or "")
    return -(-length // CHARACTERS_A_TOKEN) + image_tokens(request)


def image_rules(case: Case) -> tuple[str, ...]:
    """Return the system message's part on how to read images; empty if the case has no images."""
    return (
        (load_template("textevolve.llm", "images").render(),)
        if case.images or any(case.candidate_images)
        else ()
    )


def images_of(case: Case, candidates: Iterable[int]) -> tuple[str, ...]:
    """Return the images of a message with the input and these candidates, in this order."""
    candidate_images = case.candidate_images
    if not candidate_images:
        return case.images
    return (*case.images, *(url for j in candidates for url in candidate_images[j]))


def user_message(case: Case, parts: tuple[str, ...], candidates: Iterable[int]) -> Message:
    """Build the user message with the texts `parts`, the images of the input and of these
    candidates."""
    return Message("user", parts, images_of(case, candidates))


def name_images(case: Case, candidate: int | None = None, before: Iterable[int] = ()) -> str:
    """Return the names of the images of the input, or of one candidate, such as `image 1` or
    `images 2 to 3`; empty without images. `before`: the candidates whose images come earlier in the
    message."""
    if candidate is None:
        return _name_range(1, len(case.images))
    if not case.candidate_images:
        return ""
    start = 1 + len(images_of(case, before))
    return _name_range(start, len(case.candidate_images[candidate]))


def _name_range(start: int, number: int) -> str:
    if number < 2:
        return f"image {start}" if number else ""
    return f"images {start} to {start + number - 1}"


def fence_with(name: str, text: str, nonce: str, images: str) -> str:
    """Return the text in a fence whose marks also name the images that belong to the text."""
    return fence(f"{name}, {images}" if images else name, text, nonce)


def quote_with(text: str, images: str) -> str:
    """Return the quoted text below a line that names the images that belong to the text."""
    return f"({images})\n{quote(text)}" if images else quote(text)
