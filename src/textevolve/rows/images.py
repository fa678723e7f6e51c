"""Images out of what rows and programs give: paths, bytes, data URLs, and lists of them.

Nothing is fetched: what an address shows today may be something else tomorrow, and a server that
fetches what its clients name can be made to ask what only it can reach.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, cast

from textevolve.errors import InputError
from textevolve.images import image_url, is_animated
from textevolve.reach import allowed_path

MIB = 2**20
IMAGE_LIMIT = 20.0
"""MiB of one image: what endpoints take at most."""
IMAGES_PER_CASE = 20
LONGEST_PATH = 1000

ImageLike: TypeAlias = "str | bytes | os.PathLike[str]"
"""A path, the bytes of a file, or a data URL."""

_ADDRESS = re.compile(r"(https?|ftp|file|s3|gs)://", re.IGNORECASE)
_DATA = re.compile(r"data:[^,]{0,100};base64,", re.IGNORECASE)
_FIELDS = ("image_url", "url", "bytes", "path")
"""In an object that stands for an image: as in the protocol's messages, and in data sets."""


def ignore_animated(_where: str) -> None:
    """For those who do not ask which images are animated."""


@dataclass(frozen=True, slots=True)
class ImageReading:
    """Which columns hold images, and how they are read. `columns`: of the input;
    `candidate_columns`: of the candidates. `folder`: where relative paths begin. `most_bytes`: of
    one image; `most_images`: of one case, its input and each candidate counted apart. `files`:
    False where a name would be that of a file of somebody else's, as in what clients send."""

    columns: tuple[str, ...] = ()
    candidate_columns: tuple[str, ...] = ()
    folder: str = ""
    most_bytes: int = int(IMAGE_LIMIT * MIB)
    most_images: int = IMAGES_PER_CASE
    files: bool = True


def read_image(given: ImageLike) -> str:
    """The data URL of an image: of a file by its path, of its bytes, or of a data URL, checked.

    Raises:
        InputError: it cannot be read, is too large, or is no PNG, JPEG, GIF or WebP.
    """
    (url,) = read_images([given], "image", ImageReading())
    return url


def read_images(
    value: object,
    where: str,
    reading: ImageReading,
    note_animated: Callable[[str], None] = ignore_animated,
) -> tuple[str, ...]:
    """The data URLs of what a cell of a row holds: a path, a data URL, bytes, an object with one of
    these under `url`, `bytes` or `path`, or a list of them, which a table has as JSON. Empty where
    there is nothing. `where` begins messages: the place of the row and its column.

    Raises:
        InputError: one of them cannot be read or is no image; or there are too many.
    """
    given = list(list_images(value, where))
    if len(given) > reading.most_images:
        raise InputError(
            f"{where}: holds {len(given)} images, and a case may have {reading.most_images}; raise"
            " --images-per-case"
        )
    found: list[str] = []
    for one in given:
        content, name = _content(one, where, reading)
        _refuse_size(len(content), name, reading)
        found.append(image_url(content, name))
        if is_animated(content):
            note_animated(name)
    return tuple(found)


def list_images(value: object, where: str) -> Iterator[object]:
    """What a cell holds, one after the other; blank ones are left out.

    Raises:
        InputError: it begins as a list in JSON and is none.
    """
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise InputError(f"{where}: begins as a list, and is not valid JSON") from None
    if isinstance(value, list | tuple):
        for one in cast(Sequence[object], value):
            if not _is_blank(one):
                yield one
    elif not _is_blank(value):
        yield value


def _is_blank(value: object) -> bool:
    blank = isinstance(value, str) and not value.strip()
    return value is None or blank or (isinstance(value, float) and value != value)


def _content(given: object, where: str, reading: ImageReading) -> tuple[bytes, str]:
    """The bytes of one image, and what messages call it."""
    if isinstance(given, Mapping):
        fields = cast(Mapping[str, Any], given)
        inner = next((fields[name] for name in _FIELDS if fields.get(name) is not None), None)
        if inner is None or isinstance(inner, list | tuple):
            raise InputError(
                f"{where}: an object that stands for an image has a url, bytes or path"
            )
        return _content(inner, where, reading)
    if isinstance(given, bytes | bytearray):
        return bytes(given), where
    if isinstance(given, os.PathLike):
        return _read_file(str(cast(Path, given)), where, reading)
    if not isinstance(given, str):
        raise InputError(
            f"{where}: an image is a path, bytes or a data URL, not {type(given).__name__}"
        )
    text = given.strip()
    if _ADDRESS.match(text):
        raise InputError(
            f"{where}: {text:.80}: no address is fetched, since it may show something else another"
            " time: save the image as a file, or give its data URL"
        )
    if (found := _DATA.match(text)) is None:
        if text.startswith("data:"):
            raise InputError(f"{where}: a data URL of an image begins as data:image/png;base64,")
        return _read_file(text, where, reading)
    _refuse_size((len(text) - found.end()) * 3 // 4 - 2, where, reading)
    try:
        return base64.b64decode(text[found.end() :], validate=True), where
    except (binascii.Error, ValueError):
        raise InputError(f"{where}: the data URL is not valid Base64") from None


def _read_file(path: str, where: str, reading: ImageReading) -> tuple[bytes, str]:
    if len(path) > LONGEST_PATH:
        raise InputError(
            f"{where}: {path[:24]}...: is no path; before Base64 stands data:image/png;base64,"
        )
    if not reading.files:
        raise InputError(f"{where}: {path:.80}: no file is read here; give the image's data URL")
    name = os.path.join(reading.folder, path)
    said = f"{where}: {path}"
    if "\0" in path:
        raise InputError(f"{where}: cannot be the name of a file")
    try:
        place = allowed_path(name)
        if not os.path.isfile(place):
            what = "is a folder" if os.path.isdir(place) else "there is no such file"
            below = f" in {reading.folder}" if reading.folder and not os.path.isabs(path) else ""
            raise InputError(f"{said}: {what}{below}; paths are relative to the file of the rows")
        with open(place, "rb") as file:
            _refuse_size(os.fstat(file.fileno()).st_size, said, reading)
            return file.read(reading.most_bytes + 1), said
    except InputError as error:
        message = str(error)
        raise InputError(message if message.startswith(where) else f"{where}: {error}") from None
    except OSError as error:
        raise InputError(f"{said}: cannot be read ({error.strerror})") from None


def _refuse_size(size: int, name: str, reading: ImageReading) -> None:
    if size > reading.most_bytes:
        most = reading.most_bytes / MIB
        raise InputError(
            f"{name}: has {size / MIB:.1f} MiB, and an image may have {most:.3g}; make it smaller,"
            " or raise --image-limit"
        )
