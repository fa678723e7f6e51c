"""Runs the application on a port of this machine until it is told to end."""

from __future__ import annotations

import asyncio
import socket

import uvicorn
from fastapi import FastAPI

from textevolve.errors import SettingsError

GOODBYE = 5
"""Seconds that requests have to end after a signal."""
LOOK_SECONDS = 0.1


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens there.

    Raises:
        SettingsError: the port is taken, or the address is not this machine's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host.strip("[]"), port), family=family, backlog=2048)
    except OSError as error:
        said = error.strerror or str(error)
        raise SettingsError(
            f"cannot listen on {host}:{port}: {said.lower()}; take another with --port"
        ) from None


def url_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def listen(app: FastAPI, listener: socket.socket) -> None:
    """Serves until a signal comes; then what is under way has a moment to end.

    Raises:
        TextEvolveError: what is to be served cannot be opened.
    """
    with listener:
        asyncio.run(run(make_server(app), app, listener))


def make_server(app: FastAPI) -> uvicorn.Server:
    return uvicorn.Server(
        uvicorn.Config(
            app,
            log_config=None,
            log_level="critical",  # what fails is logged by the application
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=GOODBYE,
            server_header=False,
        )
    )


async def run(server: uvicorn.Server, app: FastAPI, listener: socket.socket) -> None:
    # Not by uvicorn, which would log what goes wrong there and end the process.
    async with app.router.lifespan_context(app):
        ending = asyncio.create_task(_tell_ending(server, app))
        try:
            await server.serve([listener])
        finally:
            ending.cancel()


async def _tell_ending(server: uvicorn.Server, app: FastAPI) -> None:
    """Streams without an end of their own end as soon as a signal comes: the server waits for
    them before it lets go of what is open."""
    while not server.should_exit:  # noqa: ASYNC110  uvicorn has no event for it
        await asyncio.sleep(LOOK_SECONDS)
    app.state.server.end()
