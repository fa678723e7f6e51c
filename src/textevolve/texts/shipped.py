"""The files of this package, such as prompts and profiles."""

from __future__ import annotations

from importlib import resources


def read_shipped(package: str, path: str) -> str:
    """Return the text of a file in the folder of a package."""
    return resources.files(package).joinpath(path).read_text(encoding="utf-8")


def list_shipped(package: str, folder: str, suffix: str) -> tuple[str, ...]:
    """Return the names of the files in a folder without their suffix, in alphabetical order; files
    with another suffix are left out."""
    names = [file.name for file in resources.files(package).joinpath(folder).iterdir()]
    return tuple(sorted(name.removesuffix(suffix) for name in names if name.endswith(suffix)))
