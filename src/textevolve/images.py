"""Images as data URLs: which there are, what is known of one, and how it is named where it is not
shown. No file is opened here, and of the pixels nothing is looked at but how many there are.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import math
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from textevolve.errors import InputError

KINDS = ("png", "jpeg", "gif", "webp")
"""What is sent to models: `image/png` and so on."""

SAID = "an image is a PNG, JPEG, GIF or WebP file"

UNKNOWN_SIDE = 1024
"""Pixels to each side of an image whose size its header does not tell, where tokens are counted."""

_SIGNATURES: Mapping[str, re.Pattern[bytes]] = {
    "png": re.compile(rb"\x89PNG\r\n\x1a\n"),
    "jpeg": re.compile(rb"\xff\xd8\xff"),
    "gif": re.compile(rb"GIF8[79]a"),
    "webp": re.compile(rb"RIFF.{4}WEBP", re.DOTALL),
}
_SVG = re.compile(rb"\s*(?:\xef\xbb\xbf)?\s*(?:<\?xml.*?)?<(?:!DOCTYPE\s+)?svg\b", re.DOTALL | re.I)
_URL = re.compile(r"data:image/(png|jpeg|gif|webp);base64,")
_BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}")
_REFERENCE = re.compile(
    r"data:image/(png|jpeg|gif|webp);bytes=(\d{1,12});size=(\d{1,6})x(\d{1,6});key=([0-9a-f]{64}),"
)
_HEADER = 2**18
"""Characters of Base64 in which the size of a JPEG is looked for, whose camera may tell much."""
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """`size` in bytes; `width` and `height` in pixels, 0 where they are not known. `key`: SHA-256
    of the data URL, under which a store keeps it."""

    kind: str
    size: int
    width: int
    height: int
    key: str

    @property
    def tokens(self) -> int:
        """About how many tokens a model makes of it: OpenAI's rule for high detail. It is scaled
        down to fit 2048 x 2048, then to 768 on its shorter side; 85, and 170 for each square of
        512 pixels that it touches."""
        width, height = self.width or UNKNOWN_SIDE, self.height or UNKNOWN_SIDE
        scale = min(1.0, 2048 / max(width, height))
        scale = min(scale, 768 / min(width, height))
        return 85 + 170 * math.ceil(width * scale / 512) * math.ceil(height * scale / 512)

    def __str__(self) -> str:
        sides = f"{self.width} x {self.height}, " if self.width and self.height else ""
        return f"{self.kind}, {sides}{_say_bytes(self.size)}"


def _say_bytes(size: int) -> str:
    if size < 1000:
        return f"{size} bytes"
    return f"{size / 1000:.0f} kB" if size < 999_500 else f"{size / 1e6:.1f} MB"


def image_kind(content: bytes) -> str | None:
    """Which kind of image a file's content is, by its first bytes; None where it is none."""
    return next((kind for kind, begins in _SIGNATURES.items() if begins.match(content)), None)


def image_url(content: bytes, name: str = "the image") -> str:
    """The data URL of an image's content. `name` is what messages call it.

    Raises:
        InputError: it is no image of the kinds that are sent.
    """
    kind = image_kind(content)
    if kind is None:
        raise InputError(f"{name}: {_say_other(content)}; {SAID}")
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def _say_other(content: bytes) -> str:
    if not content:
        return "is empty"
    if _SVG.match(content[:2000]):
        return "is an SVG drawing, which models do not take and pages must not show: convert it"
    begins = content[:4].hex(" ")
    return f"is no image that can be sent (it begins with the bytes {begins})"


def check_image(name: str, url: object) -> None:
    """Raises InputError where it is not the data URL of an image of these kinds, by its bytes.
    `name` is what the message calls it."""
    if not isinstance(url, str):
        raise InputError(f"{name} is not a data URL but {type(url).__name__}")
    found = _URL.match(url)
    if found is None:
        if _REFERENCE.match(url):
            raise InputError(f"{name} names an image of a store, which is not at hand here")
        raise InputError(
            f"{name} is no data URL of an image (data:image/png;base64,...): it begins with"
            f" {url[:24]!r}; `textevolve.read_image` makes one of a file or its bytes"
        )
    if not _BASE64.fullmatch(url, found.end()) or (len(url) - found.end()) % 4:
        raise InputError(f"{name} is not valid Base64")
    if (kind := image_kind(_decode(url, 64))) != found[1]:
        raise InputError(f"{name} says that it is {found[1]} and is {kind or 'no image'}; {SAID}")


def _decode(url: str, most: int) -> bytes:
    """The first bytes of a data URL's content, from so many characters of it."""
    text = url[url.index(",") + 1 :][: most // 4 * 4]
    try:
        return base64.b64decode(text)
    except binascii.Error:
        return b""


def image_facts(url: str) -> ImageFacts:
    """What is known of an image, from its data URL or from what `image_reference` made of it."""
    if found := _REFERENCE.fullmatch(url):
        kind, size, width, height, key = found.groups()
        return ImageFacts(kind, int(size), int(width), int(height), key)
    found = _URL.match(url)
    kind = found[1] if found else "image"
    start = found.end() if found else 0
    size = max(0, (len(url) - start) * 3 // 4 - url[-2:].count("="))
    header = _decode(url, _HEADER if kind == "jpeg" else 64) if found else b""
    width, height = _measure(kind, header) if found else (0, 0)
    return ImageFacts(kind, size, width, height, hashlib.sha256(url.encode()).hexdigest())


def image_reference(url: str) -> str:
    """A short name in the place of a data URL, which says what is known of the image: what records
    and exports have. It is a data URL without data, so that nothing is shown for it by mistake."""
    if _URL.match(url) is None:
        return url
    facts = image_facts(url)
    sides = f"{facts.width}x{facts.height}"
    return f"data:image/{facts.kind};bytes={facts.size};size={sides};key={facts.key},"


def key_in_reference(url: str) -> str | None:
    """The key of the image that a reference is of; None for anything else."""
    found = _REFERENCE.fullmatch(url)
    return found and found[5]


def is_shown(url: str) -> bool:
    """Whether it is a data URL that a page may show."""
    found = _URL.match(url)
    return found is not None and _BASE64.fullmatch(url, found.end()) is not None


def _measure(kind: str, content: bytes) -> tuple[int, int]:
    """Width and height in pixels; 0 and 0 where the header does not tell."""
    try:
        width, height = _MEASURES[kind](content)
    except (struct.error, IndexError, ValueError):
        return 0, 0
    return (width, height) if 0 < width < 10**6 and 0 < height < 10**6 else (0, 0)


def _measure_png(content: bytes) -> tuple[int, int]:
    return struct.unpack_from(">II", content, 16)


def _measure_gif(content: bytes) -> tuple[int, int]:
    return struct.unpack_from("<HH", content, 6)


def _measure_jpeg(content: bytes) -> tuple[int, int]:
    place = 2
    while content[place] == 0xFF:
        marker = content[place + 1]
        if marker in _JPEG_FRAMES:
            height, width = struct.unpack_from(">HH", content, place + 5)
            return width, height
        alone = marker == 0xFF or 0xD0 <= marker <= 0xD8 or marker == 1
        place += 1 if marker == 0xFF else 2
        if not alone:
            (length,) = struct.unpack_from(">H", content, place)
            place += max(2, length)
    raise ValueError("no frame")


def _measure_webp(content: bytes) -> tuple[int, int]:
    match content[12:16]:
        case b"VP8 ":
            width, height = struct.unpack_from("<HH", content, 26)
            return width & 0x3FFF, height & 0x3FFF
        case b"VP8L":
            (bits,) = struct.unpack_from("<I", content, 21)
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case _:
            low, high = content[24:27], content[27:30]
            return int.from_bytes(low, "little") + 1, int.from_bytes(high, "little") + 1


_MEASURES: Mapping[str, Callable[[bytes], tuple[int, int]]] = {
    "png": _measure_png,
    "gif": _measure_gif,
    "jpeg": _measure_jpeg,
    "webp": _measure_webp,
}
