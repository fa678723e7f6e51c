"""What a client's study may name on this server: `Reach` made from the operator's options.

The checks themselves stand where files are opened, code is loaded and models are found
(`textevolve.reach`).
"""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase

from textevolve.llm.catalogue import PROVIDER, SUFFIX
from textevolve.llm.providers import known_providers
from textevolve.reach import Reach
from textevolve.server.options import ServerOptions
from textevolve.server.studies.uploads import files_folder
from textevolve.settings import Settings
from textevolve.store import Store
from textevolve.store.served import ServedRun


def reach_of(served: ServedRun, options: ServerOptions, settings: Settings, store: Store) -> Reach:
    """What a run may reach."""
    sent = served.launch.get("files")
    seen = served.launch.get("namespaces")

    def sees(namespace: str) -> bool:
        return seen is None or namespace in seen

    return Reach(
        folder=files_folder(store.location) / sent if sent else None,
        own=lambda name: name == settings.profile,
        models=allowed_models(options, settings, trusted=bool(served.launch.get("trusted"))),
        code=lambda name: name in options.allow_code,
        addresses=lambda address: _matches(address, options.allow_address),
        namespaces=sees,
    )


def allowed_models(
    options: ServerOptions, settings: Settings, *, trusted: bool
) -> Callable[[str], bool]:
    """Those that are served, those of the settings, and what the operator allows; whoever needs no
    key (`trusted`) may ask each provider that there is, but no address and no file of weights."""
    own = {*options.model, settings.model, settings.embedder}

    def allowed(spec: str) -> bool:
        if spec in own or _matches(spec, options.allow_model):
            return True
        name, _, model = spec.partition("/")
        if not trusted or "://" in spec or name not in known_providers(settings):
            return False
        is_path = any(one in model for one in "/\\~") or model.endswith(SUFFIX)
        return name != PROVIDER or not is_path

    return allowed


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
