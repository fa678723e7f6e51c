"""A server of ours on a free port of loopback, with the scripted server behind it."""

import asyncio
import json
import threading
import urllib.error
import urllib.request
from contextlib import ExitStack, contextmanager

import pytest

pytest.importorskip("fastapi")

from textevolve.errors import TextEvolveError
from textevolve.server.app import create_app
from textevolve.server.listening import bind, make_server, run, url_of
from textevolve.server.options import ServerOptions
from textevolve.settings import Retries, Settings


@contextmanager
def started(options, settings, key=None):
    """The URL of a server that runs in a thread of its own."""
    ready = threading.Event()
    app = create_app(options, settings, key, lambda _serving: ready.set())
    listener = bind("127.0.0.1", 0)
    server = make_server(app)
    failures = []

    def work():
        try:
            asyncio.run(run(server, app, listener))
        except TextEvolveError as error:
            failures.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        assert ready.wait(60)
        if failures:
            raise failures[0]
        yield url_of(listener)
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


@pytest.fixture
def serve(home, model):
    """Starts a server; `model` is the scripted one, unless another is named. `serve.end()` ends
    all that were started."""
    with ExitStack() as stack:

        def start(key=None, **given):
            settings = Settings(
                store=home / "store.db", retries=Retries(attempts=2, first=0.01, longest=0.01)
            )
            options = ServerOptions(**{"model": model, **given})
            return stack.enter_context(started(options, settings, key))

        start.end = stack.close
        yield start


@pytest.fixture
def ask():
    """One request by the plainest client: its status and the JSON that came."""

    def read(response):
        text = response.read()
        if "ndjson" in response.headers.get("Content-Type", ""):
            return [json.loads(line) for line in text.splitlines()]
        return json.loads(text) if text else None

    def send(url, body=None, method=None, **headers):
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        if data is not None:
            headers = {"Content-Type": "application/json", **headers}
        request = urllib.request.Request(url, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return response.status, read(response)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())

    return send
