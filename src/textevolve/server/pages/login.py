"""The pages to log in with a key, which begins a browser's session, and to log out."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from textevolve.server.guard import make_cookie, read_cookie
from textevolve.server.identity import SESSION_SECONDS, caller_of
from textevolve.server.pages.drawing import draw, read_form
from textevolve.server.state import Server

SEE_OTHER = 303

router = APIRouter()


@router.get("/login")
async def show_login(request: Request, next: str = "/runs") -> Response:
    if caller_of(request).scopes:
        return RedirectResponse(_local_path(next), SEE_OTHER)
    return draw(request, "login.html", next=_local_path(next), said="")


@router.post("/login")
async def log_in(request: Request, server: Server) -> Response:
    form = await read_form(request)
    where = _local_path(form.get("next", ""))
    token = await server.identities.begin_session(form.get("key", "").strip())
    if token is None:
        return draw(
            request,
            "login.html",
            401,
            next=where,
            said="This key is not valid, or no longer valid.",
        )

    answer = RedirectResponse(where, SEE_OTHER)
    answer.headers["set-cookie"] = make_cookie(request.scope, "session", token, SESSION_SECONDS)

    return answer


@router.post("/logout")
async def log_out(request: Request, server: Server) -> Response:
    token = read_cookie(request.scope, "session")
    if token:
        await server.identities.end_session(token)
    answer = RedirectResponse("/login", SEE_OTHER)
    answer.headers["set-cookie"] = make_cookie(request.scope, "session", "", 0)
    return answer


def _local_path(path: str) -> str:
    """Return the path if it is one of this server except the login page, otherwise `/runs`, so a
    link to our page cannot redirect to another site."""
    plain = path.startswith("/") and path.isascii() and path.isprintable()
    if not plain or "\\" in path or path.startswith(("//", "/login")):
        return "/runs"
    return path
