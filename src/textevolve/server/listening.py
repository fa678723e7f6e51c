"""Serve the application on a port of this machine until the process receives a signal."""

from __future__ import annotations

import asyncio
import socket

import uvicorn
from fastapi import FastAPI

from textevolve.errors import SettingsError

GOODBYE = 5
"""The seconds that requests in progress have to finish after a signal."""
LOOK_SECONDS = 0.1
MOST_CONNECTIONS = 4096
"""The most connections at a time; the next one is answered with 503."""


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that listens at the address.

    Raises:
        SettingsError: the port is taken, or the address is not this machine's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host.strip("[]"), port), family=family, backlog=2048)
    except OSError as error:
        reason = error.strerror or str(error)
        raise SettingsError(
            f"cannot listen on {host}:{port}: {reason.lower()}; choose another port with --port"
        ) from None
    return listener


def url_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def listen(app: FastAPI, listener: socket.socket) -> None:
    """Serve until a signal arrives; requests in flight then have a moment to finish.

    Raises:
        TextEvolveError: the models, judges or store to serve cannot be opened.
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
            ws="none",
            limit_concurrency=MOST_CONNECTIONS,
        )
    )


async def run(server: uvicorn.Server, app: FastAPI, listener: socket.socket) -> None:
    # Not by uvicorn, which would log what goes wrong there and end the process.
    async with app.router.lifespan_context(app):
        ending = asyncio.create_task(_end_streams(server, app))
        try:
            await server.serve([listener])
        finally:
            ending.cancel()


async def _end_streams(server: uvicorn.Server, app: FastAPI) -> None:
    """End endless streams as soon as a signal arrives, since the server waits for them before it
    closes, and let studies start no more calls."""
    while not server.should_exit:  # noqa: ASYNC110  uvicorn has no event for it
        await asyncio.sleep(LOOK_SECONDS)
    app.state.server.runner.ending.set()
