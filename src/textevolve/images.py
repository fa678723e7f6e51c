"""Images as data URLs: detect and check their format, find them in the parts of chats, and replace
them with short references.

This module opens no file and decodes no pixels.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from textevolve.errors import InputError
from textevolve.json_texts import is_mapping
from textevolve.messages import EMBEDDED, SHOWN, describe_part

KINDS = ("png", "jpeg", "gif", "webp")
"""The image formats that can be sent to models, as in the media type `image/png`."""

IMAGE_FORMATS = "an image is a PNG, JPEG, GIF or WebP file"
"""The end of error messages about a file that is not such an image."""

IMAGE_TOKENS = 765
"""The number of tokens that each image counts as: that of 1024 x 1024 pixels by OpenAI's rule for
high detail."""

IMAGE_LIMIT = 20 * 2**20
"""The largest size of an image in bytes, which is the most that model endpoints accept."""
IMAGES_PER_CASE = 20

_FIELDS = ("image_url", "url", "bytes", "base64", "data", "path", "image", "source", *EMBEDDED)
"""The fields of an object that stands for an image, in messages of chat protocols and in data
sets."""

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


def open_image(value: object) -> object:
    """Return the bytes of an image from its data URL, from Base64, or from an object that has one
    of these or bytes; any other value, such as a path, as it is."""
    while is_mapping(value):
        fields = value
        value = next((fields[name] for name in _FIELDS if fields.get(name) is not None), None)
    if not isinstance(value, str):
        return value

    # Base64 has neither a comma nor a per cent sign, so the marker may be written in any way.
    content = decode_base64(unquote(value.rpartition(",")[2]))

    return content if image_kind(content) else value


def decode_base64(text: str) -> bytes:
    """Return what a text is the Base64 of; nothing for any other text. As in browsers, white space
    and missing padding do not matter: mail programs wrap the lines."""
    plain = "".join(text.split())
    try:
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except ValueError:
        return b""


class Pictures:
    """Write the parts of chats that are no text, and collect the pictures among them.

    A picture whose bytes are in its part becomes a mark with its number, such as `(image 2)`. Other
    parts are named: nothing is fetched or opened that a chat only refers to.

    Attributes:
        urls: The pictures so far as data URLs, each once, in the order of their numbers.
        most: The maximum number of pictures. By default all parts are named.
    """

    def __init__(self, urls: Iterable[str] = (), most: int = 0) -> None:
        self.urls = list(urls)
        self.most = most

    def __call__(self, part: Mapping[str, object]) -> str:
        content = open_image(part) if self.most else None
        if not isinstance(content, bytes) or len(content) > IMAGE_LIMIT or not image_kind(content):
            return describe_part(part)

        url = image_url(content)
        if url not in self.urls:
            if len(self.urls) >= self.most:
                return describe_part(part)
            self.urls.append(url)

        return f"{SHOWN}{self.urls.index(url) + 1})"


def named_images(text: str, urls: Sequence[str]) -> tuple[str, ...]:
    """Return the images whose marks are in a text. `urls`: all, in the order of their numbers."""
    return tuple(url for number, url in enumerate(urls, 1) if f"{SHOWN}{number})" in text)


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
