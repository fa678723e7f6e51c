"""Each path asks for what it needs, and what a caller may not see is not there."""

import re
from contextlib import closing

import pytest
from plain_http import fetch

from textevolve.server.access import THIS_MACHINE, Caller, check_namespace
from textevolve.server.app import create_app
from textevolve.server.errors import ApiError
from textevolve.server.options import ServerOptions
from textevolve.settings import Settings
from textevolve.store import ResourceStore
from textevolve.store import keys as stored_keys
from textevolve.store.keys import KeySpec

FREE = (
    "/",
    "/health",
    "/login",
    "/logout",
    "/openapi.json",
    "/v1/models",
    "/v1/models/{name:path}",
)
"""What every key may ask for."""
LABELLING = ("/labelling", "/v1/labelling")


def paths_of(routes, before=""):
    """Each path of an application with its methods, those of routers within it too."""
    for route in routes:
        inner = getattr(route, "original_router", None)
        if inner is not None:
            yield from paths_of(inner.routes, before + getattr(route, "prefix", ""))
        elif getattr(route, "methods", None):
            yield before + route.path, sorted(route.methods - {"HEAD"})


def test_every_path_asks_who_it_is(serve, home):
    """Somebody who may only label comes to nothing else."""
    app = create_app(ServerOptions(), Settings(store=home / "store.db"))
    found = dict(paths_of(app.routes))
    assert {"/runs", "/v1/systemone", "/v1/models"} <= found.keys()
    with closing(ResourceStore(str(home / "store.db"))) as resources:
        key = resources.write(stored_keys.add_key, "labeller", KeySpec(scopes=("label",)))[1]
    url = serve(judge="probe", keys=True)
    for path, methods in found.items():
        if path in FREE or path.startswith(LABELLING):
            continue
        for method in methods:
            target, bearer = re.sub(r"{[^}]*}", "1", path), {"Authorization": f"Bearer {key}"}
            body = None if method == "GET" else {}
            reply = fetch(f"{url}{target}", method, body, **bearer)
            assert (method, path, reply.status) == (method, path, 403)
            anybody = fetch(f"{url}{target}", method, body)
            assert (method, path, anybody.status) == (method, path, 401)


def test_what_is_not_seen_is_not_there():
    bound = Caller("key_1", "ann", frozenset({"admin"}), frozenset({"acme"}))
    check_namespace(bound, "acme")
    for caller in (bound, Caller("key_2", "bob", frozenset(), frozenset())):
        with pytest.raises(ApiError) as refused:
            check_namespace(caller, "other")
        assert (refused.value.status, refused.value.code) == (404, "not_found")
        assert refused.value.message == "no namespace 'other'"
    check_namespace(THIS_MACHINE, "other")


def test_admin_holds_all_scopes_and_no_other_does():
    admin = Caller("key_1", "ann", frozenset({"admin"}))
    assert all(admin.may(scope) for scope in ("read", "run", "label", "admin"))
    runner = Caller("key_2", "bob", frozenset({"run", "read", "label"}))
    assert not runner.may("admin")
