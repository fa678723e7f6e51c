"""The application: what is open while it runs, its paths, and how errors leave it."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles

import textevolve
from textevolve.errors import TextEvolveError
from textevolve.server.decisions import api as decisions_api
from textevolve.server.decisions.serving import Serving, open_serving
from textevolve.server.errors import ApiError, as_api_error, respond
from textevolve.server.guard import Guard
from textevolve.server.labelling import api as labelling_api
from textevolve.server.options import ServerOptions
from textevolve.server.pages import routes as pages
from textevolve.server.pages.drawing import refuse
from textevolve.server.state import ServerState
from textevolve.server.studies import api as studies_api
from textevolve.server.studies.feed import open_feed
from textevolve.server.studies.runner import open_runner
from textevolve.settings import Settings
from textevolve.store import ResourceStore, open_store

log = logging.getLogger("textevolve.server")


def create_app(
    options: ServerOptions,
    settings: Settings,
    key: str | None = None,
    ready: Callable[[Serving], None] = lambda _serving: None,
) -> FastAPI:
    """The server as an ASGI application. `key`: what clients must send; `ready` is called with
    what is served once it is open.

    Raises, when it starts:
        InputError: a judge or an alias cannot be used.
        SettingsError: a model cannot be had.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        async with open_state(options, settings) as app.state.server:
            ready(app.state.server.serving)
            yield

    # The pages of FastAPI's documentation load scripts from elsewhere.
    app = FastAPI(
        title="TextEvolve",
        version=textevolve.__version__,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    app.include_router(decisions_api.router)
    app.include_router(labelling_api.router)
    app.include_router(studies_api.router)
    app.include_router(pages.router, include_in_schema=False)
    app.mount("/static/report", StaticFiles(packages=[("textevolve.report", "templates")]))
    app.mount("/static", StaticFiles(packages=[("textevolve.server.pages", "static")]))
    app.add_api_route("/health", _say_healthy)
    app.add_exception_handler(RequestValidationError, _refuse_invalid)
    app.add_exception_handler(HTTPException, _refuse_http)
    for kind in (ApiError, TextEvolveError, RecursionError):
        app.add_exception_handler(kind, _refuse)
    app.add_exception_handler(Exception, _fail)
    app.add_middleware(Guard, key=key)
    return app


@asynccontextmanager
async def open_state(options: ServerOptions, settings: Settings) -> AsyncGenerator[ServerState]:
    """Opens all that requests need, in this order, and closes it in the other one."""
    if options.store:
        settings = settings.model_copy(update={"store": Path(options.store)})
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(open_store(settings.store))
        resources = ResourceStore(settings.memory_location)
        stack.callback(resources.close)
        serving = await stack.enter_async_context(open_serving(options, settings))
        # Studies that name no model ask the one that judges without one of their own ask.
        own = settings.model_copy(update={"model": serving.bench.default_model or settings.model})
        runner = await stack.enter_async_context(open_runner(store, own, options))
        feed = await stack.enter_async_context(open_feed(store, runner.status_of))
        yield ServerState(options, settings, store, resources, serving, runner, feed)


async def _say_healthy() -> Response:
    return respond({"status": "ok", "version": textevolve.__version__})


async def _refuse_invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return refuse(request, error)


async def _refuse_http(request: Request, error: Exception) -> Response:
    """No such path, a method that it does not have, a body that cannot be read."""
    assert isinstance(error, HTTPException)
    codes = {404: "not_found", 405: "method_not_allowed"}
    code = codes.get(error.status_code, "invalid_request")
    return refuse(request, ApiError(error.status_code, code, str(error.detail)))


async def _refuse(request: Request, error: Exception) -> Response:
    return refuse(request, as_api_error(error))


async def _fail(request: Request, error: Exception) -> Response:
    log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return refuse(request, as_api_error(error))
