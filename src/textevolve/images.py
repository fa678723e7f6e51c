"""Images as data URLs: detect and check their format, and replace them with short references.

This module opens no file and decodes no pixels.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass

from textevolve.errors import InputError

KINDS = ("png", "jpeg", "gif", "webp")
"""The image formats that can be sent to models, as in the media type `image/png`."""

IMAGE_FORMATS = "an image is a PNG, JPEG, GIF or WebP file"
"""The end of error messages about a file that is not such an image."""

IMAGE_TOKENS = 765
"""The number of tokens that each image counts as: that of 1024 x 1024 pixels by OpenAI's rule for
high detail."""

_SIGNATURES: Mapping[str, re.Pattern[bytes]] = {
    "png": re.compile(rb"\x89PNG\r\n\x1a\n"),
    "jpeg": re.compile(rb"\xff\xd8\xff"),
    "gif": re.compile(rb"GIF8[79]a"),
    "webp": re.compile(rb"RIFF.{4}WEBP", re.DOTALL),
}
_URL = re.compile(r"data:image/(png|jpeg|gif|webp);base64,")
_BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}")
_REFERENCE = re.compile(
    r"data:image/(png|jpeg|gif|webp);bytes=(\d{1,12});(?:size=\d+x\d+;)?key=([0-9a-f]{64}),"
)


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """The format of an image, its `size` in bytes, and its `key`: the SHA-256 hash of its data URL,
    by which the store finds it."""

    kind: str
    size: int
    key: str

    def __str__(self) -> str:
        return f"{self.kind}, {_format_bytes(self.size)}"


def _format_bytes(size: int) -> str:
    if size < 1000:
        return f"{size} bytes"
    return f"{size / 1000:.0f} kB" if size < 999_500 else f"{size / 1e6:.1f} MB"


def image_kind(content: bytes) -> str | None:
    """Return the format of an image from the first bytes of its content, such as `png`; None if it
    is no supported image."""
    return next((kind for kind, begins in _SIGNATURES.items() if begins.match(content)), None)


def image_url(content: bytes, name: str = "the image") -> str:
    """Return an image as a data URL. `content`: its bytes. `name`: how error messages name the
    image.

    Raises:
        InputError: it is not a PNG, JPEG, GIF or WebP image.
    """
    kind = image_kind(content)

    if kind is None:
        begins = content[:4].hex(" ") or "no bytes"
        raise InputError(
            f"{name}: is not an image that models take (it begins with {begins}); {IMAGE_FORMATS}"
        )

    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def check_image(name: str, url: object) -> None:
    """Raise InputError unless the value is a data URL whose bytes are of the format that it states.
    `name`: how the message names the image."""
    if not isinstance(url, str):
        raise InputError(f"{name} is not a data URL but {type(url).__name__}")
    match = _URL.match(url)

    if match is None:
        if _REFERENCE.match(url):
            raise InputError(
                f"{name} refers to an image in a store, and no store is open here; give the image"
                " as a data URL"
            )

        raise InputError(
            f"{name} is not the data URL of an image (data:image/png;base64,...): it begins with"
            f" {url[:24]!r}; `textevolve.read_image` makes one of a file or its bytes"
        )

    if not _BASE64.fullmatch(url, match.end()) or (len(url) - match.end()) % 4:
        raise InputError(f"{name} is not valid Base64")
    if (kind := image_kind(base64.b64decode(url[match.end() :][:64]))) != match[1]:
        raise InputError(
            f"{name} is declared as {match[1]}, but its bytes are {kind or 'no image'};"
            f" {IMAGE_FORMATS}"
        )


def image_facts(url: str) -> ImageFacts:
    """Return format, size and key of an image, from its data URL or from its `image_reference`."""
    if match := _REFERENCE.fullmatch(url):
        return ImageFacts(match[1], int(match[2]), match[3])
    match = _URL.match(url)
    start = match.end() if match else 0
    size = max(0, (len(url) - start) * 3 // 4 - url[-2:].count("="))
    key = hashlib.sha256(url.encode()).hexdigest()
    return ImageFacts(match[1] if match else "image", size, key)


def image_reference(url: str) -> str:
    """Return a short reference with the facts of an image, by which records and exports name it
    instead of its data URL. It is a data URL without data, so that no program displays it as an
    image. A text that is no data URL of an image is returned unchanged."""
    if _URL.match(url) is None:
        return url
    facts = image_facts(url)
    return f"data:image/{facts.kind};bytes={facts.size};key={facts.key},"
