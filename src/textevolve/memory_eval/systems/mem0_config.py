"""What mem0 is configured with: our defaults, and over them a file with parts of its own
configuration. Nothing of mem0 is imported here."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import yaml

from textevolve.errors import InputError, SettingsError
from textevolve.llm.providers import LOCAL, resolve
from textevolve.settings import Settings

MODEL = "TEXTEVOLVE_MEM0_MODEL"
EMBEDDER = "TEXTEVOLVE_MEM0_EMBEDDER"
"""Variables that name mem0's two models, as any model is named."""
DEFAULT_EMBEDDER = "text-embedding-3-small"
_PARTS = ("llm", "embedder", "vector_store", "reranker")


@dataclass(frozen=True, slots=True)
class Mem0Plan:
    """`given` is the file. `hash` stands for everything but the keys: another configuration is
    another system."""

    given: Mapping[str, Any]
    chat: str | None
    embedder: str | None
    hash: str

    @property
    def shared(self) -> bool:
        """Whether the file names a vector store, which all users then share."""
        return "vector_store" in self.given

    def needs(self, part: str) -> bool:
        """Whether our default is needed for a part: the file leaves it out, or changes only what it
        names. With a `provider` it stands for itself."""
        return "provider" not in self.given.get(part, {})


def read_plan(path: str | None, settings: Settings) -> Mem0Plan:
    """
    Raises:
        InputError: the file cannot be used. SettingsError: no model is named for mem0.
    """
    given = _read_file(path) if path else {}
    chat, embedder = os.environ.get(MODEL) or settings.model, os.environ.get(EMBEDDER)
    said = json.dumps([chat, embedder, _without_keys(given)], sort_keys=True, default=str)
    plan = Mem0Plan(given, chat, embedder, hashlib.sha256(said.encode()).hexdigest()[:12])
    if chat is None and plan.needs("llm"):
        raise SettingsError(f"mem0: no model is named for it; set {MODEL} to PROVIDER/MODEL")
    if chat is None and embedder is None and plan.needs("embedder"):
        raise SettingsError(f"mem0: no model for embeddings is named; set {EMBEDDER} to one")
    for part, variable, spec in (("llm", MODEL, chat), ("embedder", EMBEDDER, embedder or chat)):
        if plan.needs(part) and spec is not None and spec.strip().split("/")[0] == LOCAL:
            raise SettingsError(
                f"mem0: {spec} is served inside this program; set {variable} to a model behind an"
                " address"
            )
    return plan


def fill_in(plan: Mem0Plan, settings: Settings) -> dict[str, Any]:
    """mem0's configuration, with the keys.

    Raises:
        SettingsError: a model cannot be used, or its key is missing.
    """
    config = dict(plan.given)
    if plan.needs("llm"):
        assert plan.chat is not None
        config["llm"] = _over(_openai(plan.chat, settings), plan.given.get("llm", {}))
    if plan.needs("embedder"):
        spec = plan.embedder or plan.chat
        assert spec is not None
        ours = _openai(spec, settings, None if plan.embedder else DEFAULT_EMBEDDER)
        config["embedder"] = _over(ours, plan.given.get("embedder", {}))
    return config


def keys_in(value: Any) -> tuple[str, ...]:
    """Every key in a configuration that is long enough to be one."""
    if not isinstance(value, Mapping):
        return ()
    found: list[str] = []
    for name, part in cast("Mapping[str, Any]", value).items():
        if name == "api_key" and isinstance(part, str) and len(part) >= 8:
            found.append(part)
        found += keys_in(part)
    return tuple(found)


def _openai(spec: str, settings: Settings, model: str | None = None) -> dict[str, Any]:
    endpoint = resolve(spec, settings)
    endpoint = endpoint.members[0] if endpoint.members else endpoint
    said = {
        "model": model or endpoint.model,
        "openai_base_url": endpoint.base_url,
        "api_key": endpoint.key.secret.get_secret_value().strip() if endpoint.key else "none",
    }
    return {"provider": "openai", "config": said}


def _over(ours: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    return {**ours, "config": {**ours["config"], **(given.get("config") or {})}}


def _without_keys(value: Any) -> Any:
    if isinstance(value, dict):
        parts = cast("dict[str, Any]", value)
        return {name: _without_keys(part) for name, part in parts.items() if name != "api_key"}
    return value


def _read_file(path: str) -> dict[str, Any]:
    try:
        found: Any = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    except (UnicodeDecodeError, yaml.YAMLError, RecursionError):
        raise InputError(f"{path}: neither valid YAML nor JSON") from None
    if not isinstance(found, dict):
        raise InputError(f"{path}: must be a mapping with parts of mem0's configuration")
    given = cast("dict[str, Any]", found)
    for part in _PARTS:
        section = cast("dict[str, Any]", given.get(part, {}))
        if not isinstance(section, dict) or not isinstance(section.get("config", {}), dict):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InputError(f"{path}: {part} must be a mapping with provider and config")
    return given
