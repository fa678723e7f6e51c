"""Loading Ray, joining a cluster or starting one, and what is sent between its processes."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

from textevolve.errors import InputError, SettingsError

CONNECT_SECONDS, START_SECONDS = 5.0, 180.0
"""How long is waited for an address, and for the cluster behind it."""
LOCAL_OBJECTS = 100_000_000
"""Bytes of shared memory of a cluster that is started here: letters are small."""


def load(address: str) -> None:
    """Load Ray, for a cluster at this address; it tells nobody of its use. One of this machine
    alone listens on loopback, which Ray has to know when it is loaded.

    Raises:
        SettingsError: it is not installed.
    """
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    if not _named(address):
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    try:
        loaded()
    except ImportError:
        raise SettingsError(
            "--on ray needs the package Ray; install it with: pip install 'textevolve[ray]'"
        ) from None


def loaded() -> Any:
    import ray

    return ray


def _named(address: str) -> str:
    """The address of the cluster that is to be joined; empty: one is started."""
    named = address if "://" in address else os.environ.get("RAY_ADDRESS", "")
    return "" if named == "local" else named


def pickled(what: Any) -> bytes:
    """As bytes for another process, code of the user's own included.

    Raises:
        InputError: it cannot be sent there.
    """
    try:
        return loaded().cloudpickle.dumps(what)
    except Exception as error:  # noqa: BLE001  pickling may raise anything
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise InputError(f"cannot be sent to another process ({why:.200})") from None


def unpickled(packed: bytes) -> Any:
    return loaded().cloudpickle.loads(packed)


@asynccontextmanager
async def join_cluster(address: str) -> AsyncGenerator[None]:
    """Be a driver of the cluster, unless this process is one already. Ray has to be loaded.
    `address`: "ray" is the cluster that RAY_ADDRESS names, or else one that is started on this
    machine and stopped after it; ray://HOST:PORT is that of a cluster's client server.

    Raises:
        SettingsError: nothing answers there.
    """
    named, ray = _named(address), loaded()
    if named:
        await refuse_silent(named)
    if ray.is_initialized():
        yield
        return
    try:
        await asyncio.wait_for(asyncio.to_thread(_join, ray, named), START_SECONDS)
    except TimeoutError:
        raise _unreached(named, f"it did not let us in within {START_SECONDS:g} s") from None
    except Exception as error:
        raise _unreached(named, f"{type(error).__name__}: {error}") from error
    try:
        yield
    finally:
        await asyncio.shield(asyncio.to_thread(ray.shutdown))


def _join(ray: Any, named: str) -> None:
    logging.getLogger("ray").setLevel(logging.CRITICAL)
    quiet: dict[str, Any] = {
        "log_to_driver": False,
        "logging_level": logging.CRITICAL,
        "namespace": "textevolve",
    }
    if named:
        ray.init(named, **quiet)
    else:
        quiet |= {"include_dashboard": False, "object_store_memory": LOCAL_OBJECTS}
        ray.init("local", **quiet)
    with suppress(ImportError, AttributeError, KeyError):
        # It prints of workers that died, on standard output; we say what matters ourselves.
        from ray._private.ray_logging import global_worker_stdstream_dispatcher as printing

        printing.remove_handler("ray_print_logs")


async def refuse_silent(address: str) -> None:
    """Ray waits long for an address where nobody is.

    Raises:
        SettingsError: nothing answers there.
    """
    parts = urlsplit(address if "://" in address else f"//{address}")
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if host is None or port is None:
        if address == "auto":
            return
        raise SettingsError(f"'{address}' is no address of a Ray cluster; write ray://HOST:PORT")
    try:
        opening = asyncio.open_connection(host, port)
        _, writer = await asyncio.wait_for(opening, CONNECT_SECONDS)
    except (TimeoutError, OSError) as error:
        raise _unreached(address, str(error) or f"nothing within {CONNECT_SECONDS:g} s") from None
    writer.close()


def _unreached(address: str, why: str) -> SettingsError:
    why = " ".join(why.split())
    where = f"the Ray cluster at {address} cannot be reached" if address else "Ray does not start"
    return SettingsError(f"{where} ({why:.300}); is it up, and of the same version as here?")
