"""A server of ours on a free port of loopback, with the scripted server behind it; and a browser to
look at its pages."""

import asyncio
import json
import threading
import urllib.error
import urllib.request
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest

pytest.importorskip("fastapi")

import uvicorn.server

from textevolve import Settings, TextEvolveError
from textevolve.jobs import scheduler
from textevolve.server import identity
from textevolve.server.app import bind, create_app, make_server, run, url_of
from textevolve.server.options import ServerOptions

ROUTES = []
"""Those of the first application: FastAPI takes 0.2 s to work them out anew for each."""


@contextmanager
def started(options, settings, key=None, open_mcp=None):
    """The URL of a server that runs in a thread of its own."""
    ready = threading.Event()
    app = create_app(options, settings, key, lambda _serving: ready.set(), open_mcp)
    ROUTES[:] = ROUTES or app.router.routes
    app.router.routes[:] = ROUTES
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
def serve(location, model, monkeypatch):
    """Starts a server; `model` is the scripted one, unless another is named. `serve.end()` ends
    all that were started. It looks for due jobs, revoked keys and its end often, so that tests wait
    less."""
    quick = {**vars(asyncio), "sleep": lambda seconds: asyncio.sleep(seconds / 10)}
    monkeypatch.setattr(uvicorn.server, "asyncio", SimpleNamespace(**quick))
    monkeypatch.setattr(scheduler, "LOOK_SECONDS", 0.2)
    monkeypatch.setattr(identity, "KEY_SECONDS", 0.05)
    monkeypatch.setattr(identity, "FLUSH_SECONDS", 0.05)
    with ExitStack() as stack:

        def start(key=None, **given):
            retries = {"attempts": 2, "first": 0.01, "longest": 0.01}
            settings = Settings(store=location, retries=retries)
            options = ServerOptions(**{"model": model, **given})
            return stack.enter_context(started(options, settings, key))

        start.end = stack.close
        yield start


@pytest.fixture
def paths(home):
    """Each path of the server with its methods, those that no document lists too."""
    app = create_app(ServerOptions(), Settings(store=home / "store.db"))
    return dict(_paths_of(app.routes))


def _paths_of(routes, before=""):
    for route in routes:
        inner = getattr(route, "original_router", None)
        if inner is not None:
            yield from _paths_of(inner.routes, before + getattr(route, "prefix", ""))
        elif getattr(route, "methods", None):
            yield before + route.path, sorted(route.methods - {"HEAD"})


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


WIDTHS = (1400, 420)
STRICT = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
"""No page has script or style of its own within it."""
MOST_TABS = 400

FOCUSABLE = """() => {
  const found = [...document.querySelectorAll(
    "a[href], button, input:not([type=radio]), select, textarea, summary, [tabindex='0']")]
    .filter((e) => e.tabIndex >= 0 && !e.disabled && e.checkVisibility());
  for (const one of found) one.dataset.seen = "no";
  return found.length;
}"""
FOCUSED = """() => {
  const at = document.activeElement;
  if (at?.dataset.seen) at.dataset.seen = "yes";
  return document.querySelectorAll("[data-seen='no']").length;
}"""
LEFT = "() => [...document.querySelectorAll(\"[data-seen='no']\")].map((e) => e.outerHTML)"


@pytest.fixture
def page(browser):
    """A page of a browser. `page.said` is what the console, a script that failed, a dialog and
    requests of other sites said; at the end it is empty. What a test expects there it takes out."""
    context = browser.new_context(viewport={"width": WIDTHS[0], "height": 900})
    page = context.new_page()
    page.set_default_timeout(120_000)
    page.said = []
    page.route("**/*", _tighten)
    page.on("console", lambda message: page.said.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: page.said.append(f"script: {error}"))
    page.on(
        "dialog", lambda dialog: (page.said.append(f"dialog: {dialog.message}"), dialog.accept())
    )
    page.on(
        "request",
        lambda request: (
            urlsplit(request.url).hostname == "127.0.0.1"
            or page.said.append(f"request: {request.url}")
        ),
    )
    yield page
    context.close()
    assert page.said == []


def _tighten(route):
    if route.request.resource_type != "document":
        return route.continue_()
    response = route.fetch(max_redirects=0)
    return route.fulfill(
        response=response, headers={**response.headers, "content-security-policy": STRICT}
    )


@pytest.fixture
def check_page():
    """Looks at the page that is open: nothing was complained of, axe-core finds nothing but minor
    things and nothing is wider than the window, wide and light, narrow and dark; and the key Tab
    reaches every control."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()

    def check(page):
        for width, scheme in zip(WIDTHS, ("light", "dark"), strict=True):
            page.set_viewport_size({"width": width, "height": 900})
            page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            matches = [
                (violation["id"], [node["html"] for node in violation["nodes"][:3]])
                for violation in axe.run(page).response["violations"]
                if violation["impact"] != "minor"
            ]
            assert matches == [], f"{page.url}, {width} px, {scheme}: {matches}"
            room = page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert room <= 0, f"{page.url} is {room} px wider than {width} px"
        page.set_viewport_size({"width": WIDTHS[0], "height": 900})
        _check_focus(page)
        assert page.said == []

    return check


def _check_focus(page):
    page.evaluate("document.activeElement.blur()")
    number = page.evaluate(FOCUSABLE)
    for _ in range(min(number + 5, MOST_TABS)):
        page.keyboard.press("Tab")
        if page.evaluate(FOCUSED) == 0:
            return
    if number <= MOST_TABS:
        raise AssertionError(f"{page.url}: Tab does not reach {page.evaluate(LEFT)}")
