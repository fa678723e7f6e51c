"""A file of weights from Hugging Face or a mirror of it (`HF_ENDPOINT`), by plain HTTP.

A download that broke off is resumed, by the next attempt or the next process. Here: getting the
bytes. Not here: the hash (`weights`).
"""

from __future__ import annotations

import http.client
import os
import queue
import re
import threading
import urllib.error
import urllib.request
from contextlib import closing, suppress
from pathlib import Path
from typing import BinaryIO

from textevolve.llm.catalogue import Hub, WeightsFile
from textevolve.llm.transfer import CHUNK, SourceError, Transfer

HUB = "https://huggingface.co"
STALLED = 10.0
"""Seconds without a byte after which a connection is given up."""
UNREACHABLE = 8.0
"""Seconds until the first answer has to be there, with looking up the name."""
ATTEMPTS = 4
"""In a row and without any progress."""
WAIT = 0.5
FINAL = (400, 401, 403, 404, 410, 416, 451)


class _Broken(Exception):
    """The connection or this answer failed in a way that may be better the next time."""


class _WrongRange(_Broken):
    """What is there cannot be gone on with."""


def address(source: Hub, weights: WeightsFile) -> str:
    """Where the file is.

    Raises:
        SourceError: HF_ENDPOINT is not the address of a web server.
    """
    base = os.environ.get("HF_ENDPOINT") or HUB
    if not re.match(r"https?://", base):
        raise SourceError("HF_ENDPOINT is not an http(s) address")
    return (
        f"{base.rstrip('/')}/{source.hub}/resolve/{source.revision}/{source.path or weights.file}"
    )


def download(source: Hub, weights: WeightsFile, part: Path, transfer: Transfer) -> None:
    """Fill `part` to the full size, going on behind what it already has.

    Raises:
        SourceError: the hub cannot be reached, refuses, or has a file of another size.
        OSError: the file cannot be written.
    """
    url = address(source, weights)
    failures, arrived = 0, False
    while (done := _size(part)) != weights.bytes:
        transfer.heed_stop()
        if done > weights.bytes:
            part.unlink()
            done = 0
        try:
            _continue(url, done, part, transfer)
        except _WrongRange:
            part.unlink()
        except _Broken as error:
            grown = _size(part) > done
            arrived = arrived or grown
            failures = 0 if grown else failures + 1
            # A source that has given nothing so far is left at once: another may be quicker.
            if failures == ATTEMPTS or not arrived:
                raise SourceError(str(error)) from error
            transfer.tell(_size(part), f"{error}; going on from there")
            transfer.stop.wait(WAIT * 2**failures)


def _size(part: Path) -> int:
    try:
        return part.stat().st_size
    except FileNotFoundError:
        return 0


def _continue(url: str, done: int, part: Path, transfer: Transfer) -> None:
    with closing(_open(url, done)) as answer:
        start = _start(answer, done, transfer.total)
        with part.open("r+b" if start else "wb") as file:
            file.seek(start)
            _copy(answer, file, start, transfer)


def _copy(answer: http.client.HTTPResponse, file: BinaryIO, done: int, transfer: Transfer) -> None:
    transfer.tell(done)
    while True:
        transfer.heed_stop()
        try:
            block = answer.read1(CHUNK)
        except (OSError, http.client.HTTPException) as error:
            raise _Broken(f"the connection broke off ({_words(error)})") from error
        if not block:
            break
        done += len(block)
        if done > transfer.total:
            raise SourceError("it sends more bytes than the file has")
        file.write(block)
        transfer.tell(done)
    if done < transfer.total:
        raise _Broken("the connection broke off")


def _start(answer: http.client.HTTPResponse, done: int, total: int) -> int:
    """The offset of the first byte of this answer."""
    length = answer.headers.get("Content-Length", "")
    if answer.status == 206:
        found = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", answer.headers.get("Content-Range", ""))
        if found is None or int(found[1]) != done:
            raise SourceError("it answers with another part of the file than was asked for")
        size = found[2]
    else:
        done, size = 0, length
    if size.isdigit() and int(size) != total:
        raise SourceError(f"its file has {size} bytes, not {total}")
    return done


def _open(url: str, done: int) -> http.client.HTTPResponse:
    """The answer, within `UNREACHABLE` seconds: looking up a name has no time limit of its own."""
    headers = {"Accept-Encoding": "identity", "User-Agent": "textevolve"}
    if done:
        headers["Range"] = f"bytes={done}-"
    request = urllib.request.Request(url, headers=headers)
    outcome: queue.SimpleQueue[http.client.HTTPResponse | Exception] = queue.SimpleQueue()
    late = threading.Event()

    def ask() -> None:
        try:
            answer = urllib.request.urlopen(request, timeout=STALLED)
        except Exception as error:  # noqa: BLE001 - raised again by whoever waits
            outcome.put(error)
            return
        outcome.put(answer)
        if late.is_set():
            with suppress(OSError):
                answer.close()

    threading.Thread(target=ask, name="textevolve-hub", daemon=True).start()
    try:
        answer = outcome.get(timeout=UNREACHABLE)
    except queue.Empty:
        late.set()
        raise SourceError(f"no answer within {UNREACHABLE:.0f} seconds") from None
    if isinstance(answer, Exception):
        raise _judge(answer, done) from answer
    return answer


def _judge(error: Exception, done: int) -> Exception:
    if isinstance(error, urllib.error.HTTPError):
        error.close()
        said = f"it answers {error.code} {http.client.responses.get(error.code, '')}".strip()
        if error.code == 416 and done:
            return _WrongRange(said)
        if error.code in FINAL:
            return SourceError(said)
        return _Broken(said)
    if isinstance(error, urllib.error.URLError | OSError | http.client.HTTPException):
        return _Broken(f"it cannot be reached ({_words(error)})")
    return SourceError(f"the address cannot be used ({_words(error)})")


def _words(error: BaseException) -> str:
    reason = getattr(error, "reason", None) or error
    text = getattr(reason, "strerror", None) or str(reason)
    return " ".join(str(text).split())[:200] or type(error).__name__
