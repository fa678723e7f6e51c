"""The ASGI application: it opens what requests need while it runs, has all paths, and turns errors
into responses.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

import uvicorn
from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

import textevolve
from textevolve.desk.chats import Chats
from textevolve.errors import SettingsError, TextEvolveError
from textevolve.server import resources_api
from textevolve.server.decisions import wires as decisions_api
from textevolve.server.decisions.serving import Serving, open_serving
from textevolve.server.errors import DESCRIPTION, RESPONSES, TAGS, ApiError, as_api_error, respond
from textevolve.server.guard import MCP_PATH, TRUSTED, Guard
from textevolve.server.identity import Identities, open_limits
from textevolve.server.jobs_api import open_scheduler
from textevolve.server.jobs_api import router as jobs_router
from textevolve.server.openai import api as openai_api
from textevolve.server.openai.relaying import Relays
from textevolve.server.options import ServerOptions, is_here
from textevolve.server.pages import agents, jobs, labelling, login, runs
from textevolve.server.pages.drawing import answer_error
from textevolve.server.state import ServerState
from textevolve.server.studies import api as studies_api
from textevolve.server.studies.runner import Runner, keep_running
from textevolve.settings import Settings
from textevolve.store import keys as stored_keys
from textevolve.store.repository import Store, open_resources, open_store
from textevolve.store.writer import TROUBLES

# Serve the application on a port of this machine until the process receives a signal.

GOODBYE = 5
"""The seconds that requests in progress have to finish after a signal."""
LEARNING_SECONDS = 5.0
"""The most seconds at the end of the server in which memories are made of the last chats."""
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

    # Connections inherit it. asyncio sets it only for sockets that name TCP as their protocol, and
    # without it each answer on a kept connection waits 40 ms for the client's acknowledgement.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

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
            proxy_headers=False,  # the application reads them, and knows whom it trusts
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


def create_app(
    options: ServerOptions,
    settings: Settings,
    key: str | None = None,
    ready: Callable[[Serving], None] = lambda _serving: None,
    open_mcp: Callable[[ServerState], AbstractAsyncContextManager[Any]] | None = None,
) -> FastAPI:
    """Return the server as an ASGI application. `key`: a key with all scopes that clients may send,
    besides the stored keys. `ready` is called with the served models and judges once they are open.
    `open_mcp` opens the application for MCP clients; None: they are not answered.

    Raises, when it starts:
        InputError: a judge or an alias cannot be used.
        SettingsError: a model is not available, or keys are required and none exists.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        async with AsyncExitStack() as stack:
            state = await stack.enter_async_context(open_state(options, settings, key))
            app.state.server = state
            await asyncio.to_thread(require_keys, options, state.resources, key)
            if open_mcp is not None:
                app.add_route(MCP_PATH, await stack.enter_async_context(open_mcp(state)))
            ready(state.serving)
            yield

    # The pages of FastAPI's documentation load scripts from elsewhere.
    app = FastAPI(
        title="TextEvolve",
        version=textevolve.__version__,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        summary="TextEvolve over HTTP.",
        description=DESCRIPTION,
        openapi_tags=[{"name": name, "description": text} for name, text in TAGS.items()],
        dependencies=[Depends(HTTPBearer(scheme_name="key", auto_error=False))],
        responses=dict(RESPONSES),
    )
    app.include_router(decisions_api.router, tags=["decisions"])
    app.include_router(studies_api.router)
    app.include_router(openai_api.router)
    app.include_router(jobs_router)
    app.include_router(resources_api.router)
    for pages in (login, runs, agents, jobs, labelling):
        app.include_router(pages.router, include_in_schema=False)
    app.mount("/static/report", StaticFiles(packages=[("textevolve.report", "templates")]))
    app.mount("/static", StaticFiles(packages=[("textevolve.server.pages", "static")]))
    app.add_api_route("/health", _report_health)
    refused = (RequestValidationError, HTTPException, ApiError, TextEvolveError, RecursionError)
    for kind in refused:
        app.add_exception_handler(kind, _answer_http_error)
    app.add_middleware(Guard, options=options, answer_error=_answer_error)
    trusted = os.environ.get("FORWARDED_ALLOW_IPS", "127.0.0.1")
    app.add_middleware(TrustedProxies, trusted_hosts=trusted)

    return app


class TrustedProxies(ProxyHeadersMiddleware):
    """Reads the headers of trusted proxies, and notes in the scope whether one sent the request."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        client = scope.get("client")
        scope[TRUSTED] = bool(client) and client[0] in self.trusted_hosts
        await super().__call__(scope, receive, send)


def require_keys(options: ServerOptions, resources: Store, key: str | None) -> None:
    """Check that a key exists if requests need one.

    Raises:
        SettingsError: requests need a key, and no key exists.
    """
    needed = options.keys or not is_here(options.host)

    if (
        not needed
        or key is not None
        or any(stored_key.live for stored_key in resources.read(stored_keys.list_keys))
    ):
        return

    reason = (
        "--keys" if is_here(options.host) else f"--host {options.host}: other machines could use it"
    )
    raise SettingsError(
        f"{reason}: and there is no key yet; create one with `textevolve config keys add NAME`, or"
        " name an environment variable that holds one with --key-env"
    )


@asynccontextmanager
async def open_state(
    options: ServerOptions, settings: Settings, key: str | None
) -> AsyncGenerator[ServerState]:
    """Open everything that requests need, and close it in reverse order at the end."""
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(open_store(settings.store))
        resources = open_resources(settings)
        stack.callback(resources.close)
        serving = await stack.enter_async_context(open_serving(options, settings))
        limits = await stack.enter_async_context(open_limits(resources))
        relays = Relays(serving, stack)
        stack.push_async_callback(relays.aclose)
        chats = Chats(serving.bench)
        stack.push_async_callback(chats.aclose, LEARNING_SECONDS)
        # Studies that name no model use the default model of the judges.
        study_settings = settings.model_copy(
            update={"model": serving.bench.default_model or settings.model}
        )
        identities = Identities(resources, key)
        runner = Runner(store, study_settings, options, limits, identities)
        await stack.enter_async_context(keep_running(runner))
        state = ServerState(
            options=options,
            settings=settings,
            store=store,
            resources=resources,
            identities=identities,
            serving=serving,
            limits=limits,
            relays=relays,
            chats=chats,
            runner=runner,
        )
        await stack.enter_async_context(open_scheduler(state))
        yield state


async def _report_health() -> Response:
    # A client without a key asks, so it learns no path.
    health = {"status": "ok", "version": textevolve.__version__}
    if TROUBLES:
        health["status"] = "degraded"
        health["store"] = "cannot be written now; `textevolve doctor` says why"

    return respond(health)


NO_PATH = "no such path; a client's base URL ends in /v1, and chats are at /v1/chat/completions"


async def _answer_http_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        return _answer_error(request, error)
    # No such path, a method that it does not have, a body that cannot be read.
    code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "invalid_request")
    message = NO_PATH if error.status_code == 404 else str(error.detail)
    response = answer_error(request, ApiError(error.status_code, code, message))
    response.headers.update(error.headers or {})
    return response


def _answer_error(request: Request, error: Exception) -> Response:
    return answer_error(request, as_api_error(error))
