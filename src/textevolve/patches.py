"""A registry of changes to other packages: what they change, why, and for which versions.

A patch wraps one attribute of an installed package. No patch is applied automatically: call
`apply_patch` to apply one, and `undo_patch` to restore the original. A patch is refused for
versions of the package that it was not written for, since its effect there is untested.

TextEvolve has no patches of its own. The package `wrapt` does the wrapping; the extra
`textevolve[patches]` installs it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module, metadata
from typing import Any, Literal, TypeAlias

from textevolve.errors import InputError, NotFoundError, SettingsError, TakenError
from textevolve.mappings import map_values

PatchState: TypeAlias = Literal["applied", "not applied", "another version", "not installed"]
"""The state of a patch: applied or not, or not possible, since the package has another version or
is not installed."""
Wrapper: TypeAlias = Callable[[Any, Any, tuple[Any, ...], dict[str, Any]], Any]
"""A function that is called instead of the original. As in `wrapt`, its arguments are the original,
the object to which it is bound (or None), and the positional and keyword arguments of the call."""


@dataclass(frozen=True, slots=True)
class Patch:
    """A change to one attribute of an installed package.

    `package`: its name in the package index. `versions`: the versions that the patch was written
    for, such as `>=2.1,<2.4`. `target`: the wrapped attribute, as `package.module:Class.method`.
    `why`: the fault that it corrects, with the address of a report if there is one. `wrapper`: the
    function that is called instead.
    """

    name: str
    package: str
    versions: str
    target: str
    why: str
    wrapper: Wrapper


_patches: dict[str, Patch] = {}
"""The registered patches by their names."""
_applied: dict[str, Callable[[], None]] = {}
"""The functions that undo the applied patches, by the names of the patches."""


def register_patch(patch: Patch) -> None:
    """Register a patch without applying it.

    Raises:
        TakenError: another patch has this name.
        InputError: `target` or `versions` cannot be parsed.
    """
    if not all(patch.target.partition(":")):
        raise InputError(f"patch {patch.name}: write its target as package.module:Class.method")
    _allows(patch, "0")
    if _patches.setdefault(patch.name, patch) != patch:
        raise TakenError(f"another patch has the name {patch.name!r} already")


def list_patches() -> dict[str, PatchState]:
    """Return the state of each registered patch by its name."""
    return map_values(_state_of, _patches)


def apply_patch(name: str) -> None:
    """Apply a registered patch in this process; do nothing if it is applied already.

    Raises:
        NotFoundError: no such patch. SettingsError: the package is not installed, or of a version
            that the patch was not written for, or has no such attribute, or `wrapt` is missing.
    """
    if name not in _patches:
        names = ", ".join(_patches) or "none"
        raise NotFoundError(f"there is no patch {name!r}; registered are: {names}")
    patch = _patches[name]

    match _state_of(patch):
        case "not installed":
            raise SettingsError(f"patch {name}: {patch.package} is not installed")
        case "another version":
            raise SettingsError(
                f"patch {name}: {patch.package} is of version {metadata.version(patch.package)},"
                f" and the patch was written for {patch.versions}; check whether the patch is"
                " still needed, then widen its versions or remove it"
            )
        case "not applied":
            _applied[name] = _wrap(patch)
        case "applied":
            pass


def undo_patch(name: str) -> None:
    """Restore the original attribute of an applied patch; do nothing if it is not applied."""
    if name in _applied:
        _applied.pop(name)()


def _state_of(patch: Patch) -> PatchState:
    if patch.name in _applied:
        return "applied"
    try:
        version = metadata.version(patch.package)
    except metadata.PackageNotFoundError:
        return "not installed"

    return "not applied" if _allows(patch, version) else "another version"


def _allows(patch: Patch, version: str) -> bool:
    packaging = _load("packaging.specifiers")
    try:
        return packaging.SpecifierSet(patch.versions).contains(version, prereleases=True)
    except packaging.InvalidSpecifier:
        raise InputError(
            f"patch {patch.name}: {patch.versions!r} is not a range of versions; write one such"
            " as '>=2.1,<2.4'"
        ) from None


def _wrap(patch: Patch) -> Callable[[], None]:
    """Wrap the target of a patch, and return the function that undoes it."""
    wrapt = _load("wrapt")
    module, _, attribute = patch.target.partition(":")
    try:
        parent, last, original = wrapt.resolve_path(module, attribute)
    except (ImportError, AttributeError) as error:
        raise SettingsError(f"patch {patch.name}: there is no {patch.target}: {error}") from error

    inherited = last not in parent.__dict__
    original = parent.__dict__.get(last, original)
    setattr(parent, last, wrapt.FunctionWrapper(original, patch.wrapper))

    def undo() -> None:
        if inherited:
            delattr(parent, last)
        else:
            setattr(parent, last, original)

    return undo


def _load(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise SettingsError('patches need a package: pip install "textevolve[patches]"') from None
