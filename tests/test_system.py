"""The package where a system lacks what Linux has: locks, limits, forks, `/proc`, signals."""

import os
import subprocess
import sys

import pytest

from textevolve import system

PROGRAM = """
import asyncio, builtins, os, pkgutil, select, signal, sys
from importlib import import_module

from starlette.testclient import TestClient

def import_all():
    import textevolve

    for module in pkgutil.walk_packages(textevolve.__path__, "textevolve."):
        if not module.name.endswith(("__main__", "dspy_modules")):  # DSPy is not installed
            import_module(module.name)

import_all()  # other packages are loaded as they are on this system
for name in [name for name in sys.modules if name.split(".")[0] == "textevolve"]:
    del sys.modules[name]

real_import = builtins.__import__

def import_present(name, globals=None, *rest, **named):
    ours = str((globals or {}).get("__name__")).startswith("textevolve")
    if ours and name in ("fcntl", "resource", "termios", "pwd", "grp"):
        raise ImportError(name)
    return real_import(name, globals, *rest, **named)

builtins.__import__ = import_present
LACKING = {
    os: "killpg fork forkpty register_at_fork sysconf sched_getaffinity getloadavg",
    signal: "SIGHUP SIGKILL SIGPROF setitimer pthread_sigmask",
    select: "poll epoll",
}
for module, names in LACKING.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)

def hide(event, arguments):
    if event in ("open", "os.listdir") and str(arguments[0]).startswith(("/proc", "/dev/fd")):
        raise FileNotFoundError(2, "hidden", arguments[0])

sys.addaudithook(hide)

import_all()
from textevolve import Client, Settings
from textevolve.server.app import create_app
from textevolve.server.options import ServerOptions

url, store = sys.argv[1:]
settings = Settings(model=f"{url}#scripted", embedder=f"{url}#embeds", store=store)
with Client(settings=settings) as client:
    result = client.evaluate("Explain tides.", ["The moon pulls.", "Wind."], rounds=2)
    assert result.best in (0, 1), result
with Client(settings=settings) as client, client.namespace("acme", create=True) as space:
    space.collections.create("notes", dimension=32)
    space.memories("notes").add("Ann likes the sea.")
    assert space.memories("notes").search("Who likes the sea?")
with TestClient(create_app(ServerOptions(), settings), "http://127.0.0.1:8000") as browser:
    page = browser.get("/")
    assert page.status_code == 200, page.text
print("all of it runs")
"""


@pytest.mark.slow
def test_everything_runs_where_the_system_lacks_what_linux_has(home, server, tmp_path):
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, server.url, str(tmp_path / "store.db")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout.splitlines()[-1:]) == (0, ["all of it runs"]), ran.stderr


def test_a_lock_is_held_by_one_at_a_time_and_ends_with_its_file(tmp_path):
    with (
        (tmp_path / "lock").open("wb") as first_handle,
        (tmp_path / "lock").open("wb") as second_handle,
    ):
        assert system.try_lock(first_handle)
        assert not system.try_lock(second_handle)
        first_handle.close()
        assert system.try_lock(second_handle)


def test_a_process_exists_until_it_is_killed_with_its_group():
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    with subprocess.Popen(command, start_new_session=True) as process:
        assert system.process_exists(process.pid)
        system.kill_group(process.pid)
        assert process.wait() == -system.KILLED
    assert not system.process_exists(process.pid)
    system.kill_group(process.pid)


def test_this_process_has_cores_and_open_files(tmp_path):
    assert system.allowed_cores() <= set(range(os.cpu_count() or 1))
    with (tmp_path / "file").open("wb") as file:
        assert file.fileno() in system.open_descriptors()
