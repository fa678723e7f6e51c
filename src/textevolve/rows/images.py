"""Images in rows and Python programs, which are read as data URLs from paths, bytes, data URLs, and
lists of them.

Images at web addresses are not downloaded: their content may change, and a server that downloads
from addresses of its clients could be made to send requests to hosts that only it can reach.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast
from urllib.parse import unquote, urlsplit

from textevolve.errors import InputError, SettingsError, shorten_error
from textevolve.images import IMAGE_LIMIT, IMAGES_PER_CASE, image_url, open_image
from textevolve.json_texts import is_sequence
from textevolve.ledger import log
from textevolve.proxies import name_exemption
from textevolve.reach import allowed_path, check_address
from textevolve.rows.tables import STANDARD_INPUT

# Data sets of the Hugging Face hub, or of a mirror of it (`HF_ENDPOINT`), as files on this disk.
#
# `huggingface_hub` downloads and caches them, with the user's token. The files that the hub has
# converted to Parquet are read; no code of a data set is ever run.

HUB = "https://huggingface.co"
PREFIX = "hf:"  # the beginning of a path that names a data set of the hub
CONVERTED = "refs/convert/parquet"
"""The branch in which the hub stores each data set as CONFIG/SPLIT/NUMBER.parquet."""

NOT_CONVERTED = "the hub has not converted it to Parquet; download its files and name them"

_NAME = re.compile(r"hf:([\w.-]+(?:/[\w.-]+)?)(?:/([^:\s]+))?(?::([\w.\-\[\]]+))?")
_CONVERTED = re.compile(r"(?:(?P<config>[^/]+)/)(?:partial-)?(?P<split>[^/]+)/\d+\.parquet")


@dataclass(frozen=True, slots=True)
class HubSet:
    """The data set that a text `hf:OWNER/NAME[/CONFIG][:SPLIT]` names; omitted parts are empty."""

    name: str
    config: str
    split: str

    def __str__(self) -> str:
        config = f"/{self.config}" if self.config else ""
        return f"{PREFIX}{self.name}{config}" + (f":{self.split}" if self.split else "")


def parse_name(text: str) -> HubSet:
    match = _NAME.fullmatch(text)
    if match is None:
        raise InputError(
            f"{text}: write a data set of the hub as hf:OWNER/NAME, with /CONFIG and :SPLIT if it"
            " has several, such as hf:openai/gsm8k/main:test"
        )

    return HubSet(match[1], match[2] or "", match[3] or "")


def fetch_files(text: str) -> list[tuple[str, str]]:
    """Download the files of a data set's split, and return each with its name in messages.

    Raises:
        InputError: there is no such data set, configuration or split, or there are several, no
            default, and none is named; or the hub cannot be reached. SettingsError: huggingface_hub
            is not installed.
    """
    dataset = parse_name(text)
    check_address(text)

    try:
        from huggingface_hub import HfApi, errors
    except ModuleNotFoundError:
        raise SettingsError(
            f'{text}: reading data sets of the hub needs: pip install "textevolve[hf]"'
        ) from None

    endpoint = os.environ.get("HF_ENDPOINT") or HUB
    name_exemption(endpoint)
    api: Any = HfApi(endpoint=endpoint)
    about: dict[str, Any] = {
        "repo_id": dataset.name,
        "repo_type": "dataset",
        "revision": CONVERTED,
    }

    try:
        files = choose_converted(dataset, api.list_repo_files(**about))
        paths = [api.hf_hub_download(**about, filename=file) for file in files]
    except InputError:
        raise
    except errors.RevisionNotFoundError:
        raise InputError(f"{dataset}: {NOT_CONVERTED}") from None
    except Exception as error:
        reason = shorten_error(error) or type(error).__name__
        raise InputError(f"{text}: cannot be read from the hub ({reason})") from error

    return [(path, f"{dataset} ({file})") for path, file in zip(paths, files, strict=True)]


def choose_converted(dataset: HubSet, files: Sequence[str]) -> list[str]:
    """Return the files of a split in the data set's branch of converted Parquet files. Log a
    warning if the hub has converted only the first part of the split.

    Raises:
        InputError: there are no files, no configuration or split of that name, or several without
            a default and no name.
    """
    configs: dict[str, dict[str, list[str]]] = {}
    for file in sorted(files):
        if at := _CONVERTED.fullmatch(file):
            configs.setdefault(at["config"], {}).setdefault(at["split"], []).append(file)
    if not configs:
        raise InputError(f"{dataset}: {NOT_CONVERTED}")
    config = _choose(dataset, "configuration", dataset.config, configs, "default")
    split = _choose(dataset, "split", dataset.split, configs[config], "")

    if any("/partial-" in file for file in configs[config][split]):
        log.warning(
            "%s: only the first part of this split is read, since the hub has converted no more",
            dataset,
        )

    return configs[config][split]


def _choose(
    dataset: HubSet, kind: str, name: str, choices: Mapping[str, object], default: str
) -> str:
    """Return the requested name; without one the only name, or else the default. `kind`: the word
    for the choices in messages.

    Raises:
        InputError: there is no such name, or several without a default.
    """
    if name in choices:
        return name
    if not name and len(choices) == 1:
        return next(iter(choices))
    if not name and default in choices:
        return default
    names = ", ".join(choices)
    problem = f"has no {kind} '{name}'" if name else f"has several, so name one {kind}"
    form = "hf:NAME:SPLIT" if kind == "split" else "hf:NAME/CONFIG:SPLIT"
    raise InputError(f"{dataset}: {problem}; there are: {names}; write {form}")


MIB = 2**20

ImageLike: TypeAlias = "str | bytes | os.PathLike[str]"
"""A path, the bytes of a file, or a data URL."""

_ADDRESS = re.compile(r"(https?|ftp|s3|gs)://", re.IGNORECASE)


def folder_of(file: str) -> str:
    """Return the folder from which relative paths in the rows of a file start: its own folder; the
    working folder (empty) for standard input and data sets of the hub."""
    elsewhere = file == STANDARD_INPUT or file.startswith(PREFIX)
    return "" if elsewhere else os.path.dirname(file)


def read_image(given: ImageLike) -> str:
    """Return an image as a data URL. `given`: the path of a file, its bytes, or a data URL.

    Raises:
        InputError: it cannot be read, is too large, or is no PNG, JPEG, GIF or WebP.
    """
    (url,) = read_images([given], "image")
    return url


def read_images(value: object, where: str, folder: str = "") -> tuple[str, ...]:
    """Return the images in a cell of a row as data URLs; empty for an empty cell.

    The cell has a path, a data URL, bytes, an object with one of these under `url`, `bytes` or
    `path`, or a list of them, which may be JSON. `where`: the row and the column, for messages.
    `folder`: the folder from which relative paths start.

    Raises:
        InputError: one of them cannot be read, is too large or is no image; or there are more than
            `IMAGES_PER_CASE`.
    """
    cells = list(list_images(value, where))
    if len(cells) > IMAGES_PER_CASE:
        raise InputError(
            f"{where}: holds {len(cells)} images, and a case may have {IMAGES_PER_CASE}"
        )

    urls: list[str] = []

    for cell in cells:
        content, name = _read_content(cell, where, folder)
        if len(content) > IMAGE_LIMIT:
            raise InputError(f"{name}: an image may have {IMAGE_LIMIT // MIB} MiB; make it smaller")
        urls.append(image_url(content, name))

    return tuple(urls)


def list_images(value: object, where: str) -> Iterator[object]:
    """Yield the images of a cell, which has a single one or a list, without blank entries.

    Raises:
        InputError: the cell starts like a JSON list and is not valid.
    """
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise InputError(f"{where}: begins as a list, and is not valid JSON") from None

    for cell in value if is_sequence(value) else [value]:
        is_nan = isinstance(cell, float) and cell != cell
        if cell is not None and not is_nan and (not isinstance(cell, str) or cell.strip()):
            yield cell


def _read_content(cell: object, where: str, folder: str) -> tuple[bytes, str]:
    """Return the bytes of one image, and its name in messages."""
    cell = open_image(cell)
    if isinstance(cell, bytes | bytearray):
        return bytes(cell), where
    if not isinstance(cell, str | os.PathLike):
        raise InputError(
            f"{where}: an image is a path, bytes, a data URL, or an object with one of these as its"
            " url, bytes or path"
        )

    text = os.fspath(cast("str | os.PathLike[str]", cell)).strip()

    if text[:7].lower() == "file://":
        # A path of Windows begins with its drive, before which an address has a slash.
        path = re.sub("^/(?=[A-Za-z]:)", "", unquote(urlsplit(text).path))
        raise InputError(f"{where}: {text}: an image is named by its path; write {path}")
    if _ADDRESS.match(text):
        raise InputError(
            f"{where}: {text:.80}: images are not fetched from addresses, where they may change:"
            " save the image as a file, or give its data URL"
        )

    if text[:5].lower() != "data:":
        return _read_file(text, where, folder)
    raise InputError(
        f"{where}: a data URL of an image is data:image/png;base64, and valid Base64 of a PNG,"
        " JPEG, GIF or WebP file"
    )


def _read_file(path: str, where: str, folder: str) -> tuple[bytes, str]:
    name = f"{where}: {path:.80}"
    try:
        with open(allowed_path(os.path.join(folder, path)), "rb") as file:
            return file.read(IMAGE_LIMIT + 1), name
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"{name}: cannot be read ({reason}); paths are relative to the file of the rows"
        ) from None
