"""Who asks, and what they may: scopes and namespaces.

`guard` finds out who it is before a request is answered; paths say here what they need. What is of
a namespace that somebody does not see is not found, as if it were not there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from fastapi import Request

from textevolve.server.errors import ApiError
from textevolve.store.keys import SCOPES, KeyLimits, KeyScope, StoredKey

NO_LIMITS = KeyLimits()


@dataclass(frozen=True, slots=True)
class Caller:
    """`key`: the id of the key that was sent; empty for this machine, which needs none.
    `namespaces`: those that it sees; None: all, and runs that belong to none."""

    key: str
    name: str
    scopes: frozenset[KeyScope]
    namespaces: frozenset[str] | None = None
    limits: KeyLimits = NO_LIMITS

    def may(self, scope: KeyScope) -> bool:
        return scope in self.scopes or "admin" in self.scopes

    def sees(self, namespace: str) -> bool:
        return self.namespaces is None or namespace in self.namespaces


THIS_MACHINE = Caller("", "this machine", frozenset(SCOPES))
NOBODY = Caller("", "nobody", frozenset(), frozenset())
"""Who has sent no key where one is needed; sees the page that asks for it, and little else."""


def caller_by_key(key: StoredKey) -> Caller:
    """Whom a key stands for."""
    spec = key.spec
    namespaces = frozenset(spec.namespaces) if spec.namespaces else None
    return Caller(key.id, key.name, frozenset(spec.scopes), namespaces, spec.limits)


def caller_of(request: Request) -> Caller:
    """Whoever `guard` found to be asking."""
    return request.scope["textevolve.caller"]


def needs(scope: KeyScope) -> Callable[[Request], Awaitable[Caller]]:
    """A dependency of a path: the caller, who has this scope."""

    async def check(request: Request) -> Caller:  # else it is run in a thread
        caller = caller_of(request)
        if not caller.may(scope):
            raise ApiError(403, "permission_denied", f"the key has no scope '{scope}'")
        return caller

    return check


def check_namespace(caller: Caller, namespace: str) -> None:
    """
    Raises:
        ApiError: the caller does not see it; as where there is none.
    """
    if not caller.sees(namespace):
        raise ApiError(404, "not_found", f"no namespace '{namespace}'")
