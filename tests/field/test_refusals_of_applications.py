"""An application under test refuses some rows, or redirects, or is closed to the client: a refused
row fails alone, and the run stops only where nothing ever succeeded.

The statuses are those of RFC 9110; the application words its refusals as no model's endpoint does.
"""

import json
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler

import pytest

from applications import serve


class Guarded(BaseHTTPRequestHandler):
    """An application that refuses rows with the word `secret`."""

    def do_POST(self):
        row = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        app = self.server
        app.rows[row["id"]] += 1
        is_refused = app.refuses_all or "secret" in row["question"]
        status = app.status if is_refused else 200
        if is_refused:
            app.may_refuse.wait()
        body = json.dumps(app.refusal if is_refused else {"answer": "Lima"}).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if 300 <= status < 400:
            self.send_header("Location", "/login?next=ask")
        self.end_headers()
        self.wfile.write(body)
        if not is_refused:
            app.answered.release()

    def log_message(self, *_):
        pass


@pytest.fixture
def app():
    with serve(Guarded) as serving:
        serving.rows = Counter()
        serving.status = 403
        serving.refuses_all = False
        serving.may_refuse = threading.Event()
        serving.may_refuse.set()
        serving.answered = threading.Semaphore(0)
        serving.refusal = {"detail": "this tenant may not ask that"}
        serving.url += "/ask"
        yield serving
        serving.may_refuse.set()


def write_rows(home, refused, answered):
    rows = [{"id": f"r{n}", "question": "a secret one", "city": "Lima"} for n in range(refused)]
    rows += [{"id": f"a{n}", "question": "an open one", "city": "Lima"} for n in range(answered)]
    (home / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def compare(cli, home, app, concurrency=1):
    outcome = cli(
        *("compare", "--target", app.url, "-d", "rows.jsonl", "--label", "city"),
        *("--metric", "exact", "--concurrency", str(concurrency), "-o", "cells.jsonl"),
    )
    path = home / "cells.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return outcome, {cell["row"]: cell for cell in map(json.loads, lines)}


SLOW_STATUSES = [pytest.param(status, marks=pytest.mark.slow) for status in (302, 400, 402, 405)]


@pytest.mark.parametrize("status", [403, 404, *SLOW_STATUSES])
def test_refused_row_fails_alone(cli, home, app, status):
    app.status = status
    write_rows(home, 2, 2)  # the refused ones come first
    outcome, cells = compare(cli, home, app)
    assert outcome.code == 3, outcome.err
    assert [cells[row]["score"] for row in ("r0", "r1", "a0", "a1")] == [None, None, 1.0, 1.0]
    assert f"({status})" in cells["r0"]["reason"]
    assert "may not ask that" in cells["r0"]["reason"]
    assert "model" not in cells["r0"]["reason"]
    assert cli("runs", "resume", "last").code == 3
    assert app.rows["a0"] == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        "the context window of this chat is closed",
        "insufficient_quota for exports",
        "content policy of the clinic",
        "prompt is too long for a tweet",
    ],
)
def test_words_mean_no_model(cli, home, app, words):
    app.status = 400
    app.refusal = {"error": {"message": words}}
    write_rows(home, 1, 1)
    outcome, cells = compare(cli, home, app)
    assert outcome.code == 3, outcome.err
    assert f"refused (400): {words}" in cells["r0"]["reason"]


@pytest.mark.slow
def test_redirect_names_its_address(cli, home, app):
    app.status = 302
    write_rows(home, 1, 1)
    _, cells = compare(cli, home, app)
    assert "redirects to /login?next=ask" in cells["r0"]["reason"]


@pytest.mark.slow
@pytest.mark.parametrize(("status", "calls"), [(401, 1), (403, 8), (404, 8)])
def test_closed_application_stops_run(cli, home, app, status, calls):
    app.status = status
    app.refuses_all = True
    write_rows(home, 12, 0)
    outcome, _ = compare(cli, home, app)
    assert outcome.code == 1
    assert f"({status})" in outcome.err
    assert app.rows.total() == calls


@pytest.mark.slow
def test_many_refusals_fail_alone(cli, home, app):
    write_rows(home, 7, 1)
    late = [{"id": f"l{n}", "question": "a late secret", "city": "Lima"} for n in range(9)]
    with (home / "rows.jsonl").open("a") as file:
        file.writelines(json.dumps(row) + "\n" for row in late)
    assert compare(cli, home, app)[0].code == 3
    assert app.rows.total() == 17


def refuse_once_answered(app, rows):
    """Lets the refusals go half a second after so many rows have their answers, which a client on a
    busy machine has read by then."""
    for _ in range(rows):
        app.answered.acquire(timeout=30)
    time.sleep(0.5)
    app.may_refuse.set()


@pytest.mark.slow
def test_earlier_answers_keep_running(cli, home, app):
    """The answer of the first session came before the refusals, which the second meets first."""
    app.may_refuse.clear()
    refusing = threading.Thread(target=refuse_once_answered, args=(app, 2))
    refusing.start()
    write_rows(home, 9, 2)
    assert compare(cli, home, app, concurrency=11)[0].code == 3
    refusing.join()

    outcome, cells = compare(cli, home, app)
    assert outcome.code == 3, outcome.err
    assert "(403)" in cells["r8"]["reason"]
    assert (cells["a0"]["score"], app.rows["a0"], app.rows["r8"]) == (1.0, 1, 2)
