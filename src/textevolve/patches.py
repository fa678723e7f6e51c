"""Changes to other people's packages while the program runs: which there are, why, and for what.

A patch names the attribute that it wraps, why, the versions of the package that it was written for,
and a test that tells whether the fault is still there. None is applied by itself: whoever needs one
says `apply_patch`, and `undo_patch` puts back what was there. At a version that a patch was not
written for it is refused, since nobody has looked whether it does there what it did.

TextEvolve has none of its own. Others register theirs, or their package names each as an entry
point of the group `textevolve.patches`. `wrapt` does the wrapping: `pip install
"textevolve[patches]"`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module, metadata
from threading import RLock
from typing import Any, Literal, TypeAlias

from textevolve.errors import InputError, NotFoundError, SettingsError, TakenError
from textevolve.user_code import load_point

GROUP = "textevolve.patches"

PatchState: TypeAlias = Literal[
    "applied", "not applied", "not needed", "another version", "not installed"
]
Wrapper: TypeAlias = Callable[[Any, Any, tuple[Any, ...], dict[str, Any]], Any]
"""What is called in place of the original, as `wrapt` has it: with the original, the object it is
bound to (or None), and its arguments."""


@dataclass(frozen=True, slots=True)
class Patch:
    """A change to one attribute of an installed package.

    `package`: its name as it is installed. `versions`: those that the patch was written for, such
    as `>=2.1,<2.4`. `target`: what is wrapped, `package.module:Class.method`. `why`: what is wrong
    there, with the address of its report if there is one. `needed`: True while the fault is there;
    it is asked with nothing patched, and may import the package.
    """

    name: str
    package: str
    versions: str
    target: str
    why: str
    wrapper: Wrapper
    needed: Callable[[], bool]


@dataclass(frozen=True, slots=True)
class PatchStatus:
    """Where a patch stands. `version`: of the package that is installed, None without one. `note`:
    what is to be done, or why a state is what it is; often empty."""

    patch: Patch
    state: PatchState
    version: str | None
    note: str = ""


_patches: dict[str, Patch] = {}
_applied: dict[str, Callable[[], None]] = {}
"""Of each patch that is applied how it is undone."""
_lock = RLock()


def register_patch(patch: Patch) -> None:
    """Make a patch known; nothing is changed by that.

    Raises:
        TakenError: there is another patch of this name.
        InputError: `target` or `versions` cannot be read.
    """
    if not all(patch.target.partition(":")):
        raise InputError(f"patch {patch.name}: write its target as package.module:Class.method")
    _allows(patch, "0")
    with _lock:
        if _patches.setdefault(patch.name, patch) != patch:
            raise TakenError(f"there is another patch of the name {patch.name!r} already")


def list_patches() -> list[PatchStatus]:
    """Where each patch stands, those of installed packages included. Tests of the need are run,
    which may import what they are about.

    Raises:
        InputError: an entry point cannot be loaded, or is no patch.
    """
    _register_installed()
    return [_status(patch) for patch in list(_patches.values())]


def apply_patch(name: str) -> None:
    """Wrap what the patch is for, in this process; what is applied already stays as it is.

    Raises:
        NotFoundError: no such patch. SettingsError: the package is not installed, or of a version
            that the patch was not written for, or has no such attribute, or `wrapt` is missing.
    """
    with _lock:
        patch = _find(name)
        if name in _applied:
            return
        version = _version_of(patch)
        if version is None or not _allows(patch, version):
            raise SettingsError(f"patch {name}: {_describe_version(patch, version)}")
        _applied[name] = _wrap(patch)


def undo_patch(name: str) -> None:
    """Put back what was there; nothing is done where the patch is not applied.

    Raises:
        NotFoundError: no such patch.
        SettingsError: something else has been put over it since, which would be lost.
    """
    with _lock:
        _find(name)
        if name in _applied:
            _applied[name]()
            del _applied[name]


def _register_installed() -> None:
    for point in metadata.entry_points(group=GROUP):
        patch = load_point(point)
        if not isinstance(patch, Patch):
            raise InputError(f"entry point {point.name} of the group {GROUP} names no Patch")
        register_patch(patch)


def _find(name: str) -> Patch:
    if name not in _patches:
        _register_installed()
    if name not in _patches:
        known = ", ".join(_patches) or "none"
        raise NotFoundError(f"there is no patch {name!r}; registered are: {known}")
    return _patches[name]


def _status(patch: Patch) -> PatchStatus:
    version = _version_of(patch)
    if patch.name in _applied:
        return PatchStatus(patch, "applied", version)
    if version is None or not _allows(patch, version):
        state = "not installed" if version is None else "another version"
        return PatchStatus(patch, state, version, _describe_version(patch, version))
    try:
        needed, note = patch.needed(), ""
    except Exception as error:  # noqa: BLE001  somebody else's code; what it says is shown
        needed, note = True, f"its test failed: {type(error).__name__}: {error}"
    if not needed:
        return PatchStatus(patch, "not needed", version, "the fault is gone; remove the patch")
    return PatchStatus(patch, "not applied", version, note)


def _version_of(patch: Patch) -> str | None:
    try:
        return metadata.version(patch.package)
    except metadata.PackageNotFoundError:
        return None


def _describe_version(patch: Patch, version: str | None) -> str:
    if version is None:
        return f"{patch.package} is not installed"
    return (
        f"{patch.package} is of version {version}, and the patch was written for {patch.versions}; "
        "look whether it is still needed, and widen its versions or remove it"
    )


def _allows(patch: Patch, version: str) -> bool:
    packaging = _load("packaging.specifiers")
    try:
        return packaging.SpecifierSet(patch.versions).contains(version, prereleases=True)
    except packaging.InvalidSpecifier:
        raise InputError(
            f"patch {patch.name}: {patch.versions!r} are no versions; write such as '>=2.1,<2.4'"
        ) from None


def _wrap(patch: Patch) -> Callable[[], None]:
    """Wrap what a patch is for; gives how that is undone."""
    wrapt = _load("wrapt")
    module, _, attribute = patch.target.partition(":")
    try:
        parent, last, original = wrapt.resolve_path(module, attribute)
    except (ImportError, AttributeError) as error:
        raise SettingsError(f"patch {patch.name}: there is no {patch.target}: {error}") from error
    members: dict[str, Any] = parent.__dict__
    inherited = last not in members
    original = members.get(last, original)
    wrapped = wrapt.FunctionWrapper(original, patch.wrapper)
    setattr(parent, last, wrapped)

    def undo() -> None:
        if parent.__dict__.get(last) is not wrapped:
            raise SettingsError(
                f"patch {patch.name}: {patch.target} has been changed again since; undo that first"
            )
        if inherited:
            delattr(parent, last)
        else:
            setattr(parent, last, original)

    return undo


def _load(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise SettingsError('patches need: pip install "textevolve[patches]"') from None
