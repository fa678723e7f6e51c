"""Who asks, and what they may: scopes and namespaces.

`guard` finds out who it is before a request is answered; paths say here what they need. What is of
a namespace that somebody does not see is not found, as if it were not there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from fastapi import Request

from textevolve.server.errors import ApiError

Scope: TypeAlias = Literal["read", "run", "label", "admin"]
"""`read`: runs, agents, memories. `run`: models, chats and studies, which cost money. `label`: say
what is right. `admin`: all of that, resources, jobs and keys."""

SCOPES: tuple[Scope, ...] = get_args(Scope)


@dataclass(frozen=True, slots=True)
class Caller:
    """`key`: the id of the key that was sent; empty for this machine, which needs none.
    `namespaces`: those that it sees; None: all, and runs that belong to none."""

    key: str
    name: str
    scopes: frozenset[Scope]
    namespaces: frozenset[str] | None = None

    def may(self, scope: Scope) -> bool:
        return scope in self.scopes or "admin" in self.scopes

    def sees(self, namespace: str) -> bool:
        return self.namespaces is None or namespace in self.namespaces


THIS_MACHINE = Caller("", "this machine", frozenset(SCOPES))


def caller_of(request: Request) -> Caller:
    """Whoever `guard` found to be asking."""
    return request.scope["textevolve.caller"]


def needs(scope: Scope) -> Callable[[Request], Awaitable[Caller]]:
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
