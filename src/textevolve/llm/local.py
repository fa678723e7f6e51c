"""Local models: llama.cpp's own server, run on loopback inside this process by `xllamacpp`.

The server has the OpenAI protocol, so a local model is called like any other, by `client`. This
module starts, shares and stops servers; `weights` provides the files.
"""

from __future__ import annotations

import atexit
import os
import secrets
import socket
import stat
import sys
import threading
import urllib.request
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from textevolve.errors import SettingsError
from textevolve.llm.catalogue import import_engine, require_packages
from textevolve.llm.gguf import open_gguf, read_header
from textevolve.llm.hardware import available_memory, free_cores
from textevolve.settings import Local
from textevolve.system import open_descriptors

GB = 1_000_000_000
MIB = 1024 * 1024
# Measured: llama.cpp keeps a rearranged copy of most of the weights (1.5B in Q4_K: 0.6 of the
# file), and the buffers for the computation come on top.
REARRANGED_SHARE = 0.6
BUFFERS = 100_000_000
# Finished prompts kept in memory, so that a conversation finds its prefix in whichever slot it
# lands; without this, two prefixes that alternate in a slot push each other out.
LARGEST_PROMPT_CACHE = 8192 * MIB
SMALLEST_PROMPT_CACHE = 128 * MIB
# Prompt tokens between two signs of progress. Measured: log-probabilities are the same as with
# llama.cpp's 2048, which a busy machine needs minutes for.
BATCH = 256
# Decision models of the other types are encoders, or read embeddings, and take a whole prompt at
# once; these read an option's probability as that of a letter. The first: models that only chat.
READ_IN_PARTS = ("", "openjev", "lev", "nimble")
SILENT = -1
START_SECONDS = 60.0


@dataclass(eq=False)
class LocalServer:
    """A reference to a running server, which ends when its last reference is released by `stop`.

    Attributes:
        name: The spec of the model.
        base_url: The address of the API, which ends in `/v1`.
        api_key: The key that the server requires.
    """

    name: str
    base_url: str
    api_key: str = field(repr=False)
    _shared: _Shared | None = field(repr=False)

    def stop(self) -> None:
        """Release the server; the last release ends it and cuts calls in flight. May be called
        repeatedly."""
        with _lock:
            shared = self._shared
            self._shared = None
            if shared is None:
                return
            shared.holds -= 1
            if shared.holds == 0:
                _running.pop(shared.key, None)
                shared.end()

    def __enter__(self) -> LocalServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


_Key = tuple[Path, int, int, int | None]


@dataclass(eq=False)
class _Shared:
    """A running server, which several `LocalServer` references share. `holds`: their number;
    `process`: the id of the process that started it."""

    key: _Key
    native: Any
    address: str
    api_key: str
    process: int
    holds: int = 0

    def end(self) -> None:
        # A forked child has the object but not the threads that it would wait for.
        if self.native is None or self.process != os.getpid():
            return
        _cut_connections(int(self.address.rsplit(":", 1)[1]))
        self.native = None  # the server has no stop of its own: it ends with its last reference


_running: dict[_Key, _Shared] = {}
_lock = threading.RLock()


def serve(
    path: Path | str, local: Local, *, name: str | None = None, most: int | None = None
) -> LocalServer:
    """Start a server for these weights with `local.slots` slots, or share one that is running.
    `most`: the largest useful context of the model, in tokens.

    Blocks while the model is loaded: about a second for 1 GB in the page cache.

    Raises:
        SettingsError: xllamacpp is missing, the file cannot be used, the context is too large, or
            the memory is too small.
    """
    weights = Path(path).expanduser().resolve()
    require_packages(f"local/{name or weights.stem}")
    module = import_engine("xllamacpp", "model")
    context = min(_choose_context(weights, local), most or sys.maxsize)
    key = (weights, local.slots, context, local.threads)

    with _lock:
        shared = _running.get(key)
        if shared is None:
            shared = _start(module, key)
            _running[key] = shared
        shared.holds += 1

    return LocalServer(
        name=name or weights.stem,
        base_url=f"{shared.address}/v1",
        api_key=shared.api_key,
        _shared=shared,
    )


def _choose_context(weights: Path, local: Local) -> int:
    """Return the context of a slot in tokens: that of the settings, or the model's trained context
    if the default setting is larger. A larger context that the user set is a SettingsError."""
    trained = read_header(weights).trained_context
    if trained is None or local.context <= trained:
        return local.context
    if "context" in local.model_fields_set:
        raise SettingsError(
            f"local.context is {local.context} tokens, but {weights.name} was trained on {trained}:"
            f" set it to {trained} or less"
        )

    return trained


def _start(module: ModuleType, key: _Key) -> _Shared:
    weights, slots, context, requested_threads = key
    threads = requested_threads or free_cores()
    cache = _plan_memory(weights, slots, context)
    api_key = secrets.token_urlsafe(24)
    params = module.CommonParams()
    params.model.path = str(weights)
    params.model_alias = {weights.stem}
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [api_key]
    params.ui = False
    params.verbosity = SILENT
    params.n_parallel = slots
    params.n_ctx = slots * context
    params.n_batch = BATCH
    if read_header(weights).decision_type not in READ_IN_PARTS:
        params.n_batch = params.n_ubatch = context
    params.cpuparams.n_threads = threads
    params.cpuparams_batch.n_threads = threads
    params.cont_batching = True
    params.cache_prompt = True
    params.cache_ram_mib = cache // MIB
    # Otherwise llama.cpp would quietly serve a smaller context than the one that was asked for.
    params.fit_params = False
    params.warmup = False

    try:
        native = module.Server(params)
    except (RuntimeError, MemoryError) as error:
        open_gguf(weights)  # raises a plainer error if the file is cut off
        raise SettingsError(
            f"{weights}: llama.cpp cannot load these weights ({error}): they are damaged, or of a"
            " kind that it does not know; fetch them again or choose another model"
        ) from error

    shared = _Shared(key, native, native.listening_address, api_key, os.getpid())
    _await_first_answer(shared)

    return shared


def _await_first_answer(shared: _Shared) -> None:
    """Wait until the server answers: a server that is stopped before its first answer
    never ends."""
    request = urllib.request.Request(
        f"{shared.address}/slots", headers={"Authorization": f"Bearer {shared.api_key}"}
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    try:
        with opener.open(request, timeout=START_SECONDS) as answer:
            answer.read()
    except OSError as error:
        raise SettingsError(
            f"the local server for {shared.key[0].name} has started but does not answer ({error}):"
            " try again"
        ) from error


def _plan_memory(weights: Path, slots: int, context: int) -> int:
    """Return the bytes for the prompt cache: half of the memory left after weights, KV cache and
    buffers, within fixed bounds. Raise a SettingsError if weights, KV cache and buffers need more
    memory than is available."""
    cache = read_header(weights).cache_bytes_per_token * slots * context
    size = weights.stat().st_size
    needed = size + cache + int(REARRANGED_SHARE * size) + BUFFERS
    available = available_memory()
    if available is None:
        return 1024 * MIB
    if needed > available:
        raise SettingsError(
            f"{weights.stem} needs about {needed / GB:.1f} GB of memory (weights {size / GB:.1f},"
            f" {slots} x {context} tokens of context {cache / GB:.1f}) and {available / GB:.1f} GB"
            " is free: lower local.slots or local.context, or take a smaller model"
        )

    return max(SMALLEST_PROMPT_CACHE, min(LARGEST_PROMPT_CACHE, (available - needed) // 2))


def _cut_connections(port: int) -> None:
    """Close the server's side of every connection.

    At its end the server waits for answers in flight, and the whole interpreter waits with it; it
    gives up a closed connection within a second.
    """
    for number in open_descriptors():
        # A file may be closed by another thread at any moment; then there is nothing to cut.
        with suppress(OSError):
            if not stat.S_ISSOCK(os.fstat(number).st_mode):
                continue
            with socket.socket(fileno=os.dup(number)) as connection:
                ours = connection.getsockname() == ("127.0.0.1", port)
                if ours and not connection.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    connection.shutdown(socket.SHUT_RDWR)


@atexit.register
def _stop_all() -> None:
    with _lock:
        for shared in list(_running.values()):
            shared.end()
        _running.clear()
