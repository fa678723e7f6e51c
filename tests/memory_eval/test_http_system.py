"""Memory systems over HTTP: the reference server, and one that misbehaves."""

import importlib.util
import json
import threading
import traceback
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from textevolve.errors import AccessError, AnswerError, ModelError, RejectedError
from textevolve.memory_eval.dataset import DialogueTurn
from textevolve.memory_eval.finding import open_system
from textevolve.memory_eval.systems import Capabilities
from textevolve.settings import Retries, Settings

pytestmark = pytest.mark.usefixtures("home")

EXAMPLE = Path(__file__).parents[2] / "examples" / "memory_server.py"
KEY = "memory-key-DoNotShow-0123456789"
TURNS = [DialogueTurn("user", "I moved to Lyon. I like tea."), DialogueTurn("assistant", "Nice.")]
QUICK = Settings(retries=Retries(attempts=3, first=0.0))


def example():
    spec = importlib.util.spec_from_file_location("memory_server", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextmanager
def serving(server):
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Misbehaving:
    """Answers each request with the next of `answers`: (status, body), or a transport's fault."""

    def __init__(self, *answers):
        self.answers, self.requests = list(answers), []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                raw = self.rfile.read(int(self.headers["Content-Length"]))
                outer.requests.append((self.path, json.loads(raw), dict(self.headers)))
                status, body, *headers = outer.answers[
                    min(len(outer.requests), len(outer.answers)) - 1
                ]
                if not isinstance(status, int):
                    self.close_connection = True
                    return
                content = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                for name, value in headers:
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True

    @contextmanager
    def start(self):
        with serving(self.server) as url:
            yield url


@contextmanager
def misbehaving(*answers):
    service = Misbehaving(*answers)
    with service.start() as url:
        yield service, url


async def test_the_reference_server_keeps_and_finds_by_user():
    with serving(example().make_server()) as url:
        system = open_system(url + "#answers")
        assert system.name == f"http:{url}"
        assert system.capabilities == Capabilities(answers=True, durable=True)
        assert await system.add(TURNS, "a") == ("I moved to Lyon.", "I like tea.")
        assert await system.search("What tea?", "a", 5) == ("I like tea.",)
        assert await system.search("What tea?", "b", 5) == ()
        assert await system.answer("What tea?", ["I like tea."]) == "I like tea."
        assert await system.answer("What tea?", []) == "unknown"
        await system.aclose()


async def test_the_key_of_memory_services_is_sent_and_never_seen(monkeypatch):
    with serving(example().make_server(key=KEY)) as url:
        system = open_system(url)
        with pytest.raises(AccessError, match=r"refuses the key"):
            await system.add(TURNS, "a")
        await system.aclose()
        monkeypatch.setenv("TEXTEVOLVE_MEMORY_KEY", KEY)
        system = open_system(url)
        assert await system.search("tea", "a", 5) == ()
        assert KEY not in repr(system)
        await system.aclose()


async def test_a_service_that_repeats_the_key(monkeypatch):
    monkeypatch.setenv("TEXTEVOLVE_MEMORY_KEY", KEY)
    with misbehaving((500, {"error": {"message": f"bad key {KEY}"}})) as (service, url):
        system = open_system(url, QUICK)
        with pytest.raises(ModelError) as caught:
            await system.add(TURNS, "a")
        await system.aclose()
    assert service.requests[0][2]["Authorization"] == f"Bearer {KEY}"
    assert KEY not in "".join(traceback.format_exception(caught.value))
    assert "\n" not in str(caught.value)


async def test_what_is_sent():
    with misbehaving((200, {"memories": ["m"]})) as (service, url):
        system = open_system(url + "/v2/")
        await system.add([DialogueTurn("user", "half \ud83d", "Jan 06")], "a")
        await system.search("Where?", "a", 10)
        await system.aclose()
    (add, added, headers), (search, searched, asking) = service.requests
    assert (add, search) == ("/v2/add", "/v2/search")
    turn = {"role": "user", "content": "half \ud83d", "timestamp": "Jan 06"}
    assert added == {"user": "a", "dialogue": [turn]}
    assert searched == {"user": "a", "query": "Where?", "limit": 10}
    assert "Authorization" not in headers
    assert "Idempotency-Key" in headers
    assert "Idempotency-Key" not in asking  # asked after another session it is another question


FAILING = [(429, {"error": "slow down"}, ("Retry-After", "0")), ("cut", b"")]


@pytest.mark.parametrize("fault", FAILING, ids=lambda fault: str(fault[0]))
async def test_what_fails_for_a_while_is_tried_again_as_the_same_request(fault):
    with misbehaving(fault, (200, {"memories": ["m"]})) as (service, url):
        system = open_system(url, QUICK)
        assert await system.add(TURNS, "a") == ("m",)
        await system.aclose()
    (_, first, head), (_, second, again) = service.requests
    assert first == second
    assert head["Idempotency-Key"] == again["Idempotency-Key"]


async def test_an_answer_of_another_shape_is_a_failure_and_is_not_asked_for_again():
    with misbehaving((200, {"memories": None})) as (service, url):
        system = open_system(url, QUICK)
        with pytest.raises(AnswerError) as caught:
            await system.add(TURNS, "a")
        await system.aclose()
    assert str(caught.value) == f"http:{url}/add: gave nothing, not a list of texts"
    assert len(service.requests) == 1


async def test_a_wrong_address_stops_all_and_a_later_404_only_its_operation():
    with misbehaving((404, {"error": "no"}), (200, []), (404, b"no such user")) as (_, url):
        system = open_system(url, QUICK)
        with pytest.raises(AccessError, match=r"refused \(404\): no; check"):
            await system.add(TURNS, "a")
        assert await system.search("Where?", "a", 3) == ()
        with pytest.raises(RejectedError, match=r"refused \(404\): no such user"):
            await system.search("Where?", "b", 3)
        await system.aclose()
