"""Data sets of the Hugging Face hub, or of a mirror of it (`HF_ENDPOINT`), as files on this disk.

`huggingface_hub` downloads and caches them, with the user's token. The files that the hub has
converted to Parquet are read; no code of a data set is ever run.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from textevolve.errors import InputError, SettingsError
from textevolve.reach import check_address

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
    api: Any = HfApi(endpoint=os.environ.get("HF_ENDPOINT") or None)
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
        reason = " ".join(str(error).split())[:300] or type(error).__name__
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
        logging.getLogger("textevolve").warning(
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
