"""What the scripted server sees of images: which came, and scripts that tell of them or refuse."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from textevolve.images import image_kind
from textevolve.llm.testing.answers import Answer, content_text
from textevolve.llm.testing.faults import Fault, misbehave


@dataclass(frozen=True, slots=True)
class SeenImage:
    """`sha256` of its bytes; `kind` by them, whatever its data URL says; empty where it is none."""

    kind: str
    size: int
    sha256: str

    def __str__(self) -> str:
        return f"{self.kind or 'no image'} {self.size} bytes {self.sha256[:12]}"


def seen_images(body: Mapping[str, Any]) -> Iterator[SeenImage]:
    """The images in a request's messages, in their order."""
    for message in body.get("messages") or ():
        content: Any = message.get("content")
        parts = cast("list[dict[str, Any]]", content) if isinstance(content, list) else []
        for part in parts:
            if part.get("type") == "image_url":
                data = base64.b64decode(part["image_url"]["url"].partition(",")[2])
                yield SeenImage(image_kind(data) or "", len(data), hashlib.sha256(data).hexdigest())


def echo_images(body: Mapping[str, Any], _number: int) -> str | None:
    """A script that answers with what came: a line for each image, then the text of the last
    message. A request without images is answered as by no script."""
    found = [str(one) for one in seen_images(body)]
    if not found:
        return None
    return "\n".join([*found, content_text(body["messages"][-1].get("content"))])


def refuse_images(body: Mapping[str, Any], _number: int) -> Answer | None:
    """A script that takes no images, as llama.cpp's server with a model that has no projector."""
    return misbehave(Fault.NO_IMAGES_LLAMACPP) if any(seen_images(body)) else None
