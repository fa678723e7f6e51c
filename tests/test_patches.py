"""Patches of other packages: applied by name, undone, refused where the version has moved."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from textevolve import patches
from textevolve.errors import InputError, NotFoundError, SettingsError, TakenError
from textevolve.patches import Patch, apply_patch, list_patches, register_patch, undo_patch

TOY = """
def add(a, b):
    return a - b
"""


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An installed package `toy` of version 1.2.0, and a registry with nothing in it."""
    (tmp_path / "toy.py").write_text(TOY)
    about = tmp_path / "toy-1.2.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1.2.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(patches, "_patches", {})
    monkeypatch.setattr(patches, "_applied", {})
    yield about
    sys.modules.pop("toy", None)


def adds(wrapped, instance, args, kwargs):
    return args[0] + args[1]


def make(**changes) -> Patch:
    arguments = {
        "name": "toy-add",
        "package": "toy",
        "versions": ">=1.2,<1.3",
        "target": "toy:add",
        "why": "it takes away",
        "wrapper": adds,
    }
    return Patch(**{**arguments, **changes})


def test_a_patch_is_applied_and_undone(toy: Path) -> None:
    import toy as package

    original = package.add
    register_patch(make())
    assert (list_patches(), package.add(2, 1)) == ({"toy-add": "not applied"}, 1)
    apply_patch("toy-add")
    apply_patch("toy-add")
    assert (list_patches(), package.add(2, 1)) == ({"toy-add": "applied"}, 3)
    undo_patch("toy-add")
    undo_patch("toy-add")
    assert (list_patches(), package.add(2, 1)) == ({"toy-add": "not applied"}, 1)
    assert package.add is original


def test_another_version_is_refused(toy: Path) -> None:
    (toy / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1.3.0\n")
    register_patch(make())
    register_patch(make(name="gone", package="no-such-package-toy"))
    assert list_patches() == {"toy-add": "another version", "gone": "not installed"}
    with pytest.raises(SettingsError, match=r"1\.3\.0.*written for >=1\.2,<1\.3"):
        apply_patch("toy-add")
    with pytest.raises(SettingsError, match="not installed"):
        apply_patch("gone")


def test_what_cannot_be_registered_or_found(toy: Path) -> None:
    register_patch(make())
    register_patch(make())
    with pytest.raises(TakenError):
        register_patch(make(why="another"))
    with pytest.raises(InputError, match="not a range of versions"):
        register_patch(make(name="a", versions="about 1"))
    with pytest.raises(InputError, match=r"package\.module:Class\.method"):
        register_patch(make(name="a", target="toy.add"))
    with pytest.raises(NotFoundError, match="toy-add"):
        apply_patch("toy-sub")
    register_patch(make(name="a", target="toy:no_such"))
    with pytest.raises(SettingsError, match="there is no toy:no_such"):
        apply_patch("a")
