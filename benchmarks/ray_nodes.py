"""A Ray cluster whose nodes are processes of this machine, and what can happen to them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

from processes import read_tree
from textevolve.engine import ray as clusters

WAIT_SECONDS = 60.0
NODE = {"num_cpus": 1, "node_ip_address": "127.0.0.1"}


@dataclass
class Nodes:
    """The first is that of drivers, which stays; each has one core for one worker."""

    cluster: Any

    @property
    def address(self) -> str:
        return self.cluster.address

    def kill_worker(self, draw: Random) -> None:
        os.kill(draw.choice(self._await_workers()), signal.SIGKILL)

    def kill_node(self, draw: Random) -> None:
        """One that is not the first goes with all its processes; `add` brings a new one."""
        self._await_workers()
        gone = draw.choice(sorted(self.cluster.worker_nodes, key=lambda node: node.unique_id))
        self.cluster.remove_node(gone, allow_graceful=False)

    def add(self) -> None:
        self.cluster.add_node(**NODE)

    def await_end(self) -> None:
        """Return when the workers of a killed driver are gone, too."""
        workers = self._look(lambda workers_seen: not workers_seen)
        assert not workers, f"workers outlived their driver by {WAIT_SECONDS:g} s: {workers}"

    def _await_workers(self) -> list[int]:
        workers = self._look(bool)
        assert workers, f"no worker within {WAIT_SECONDS:g} s"
        return workers

    def _look(self, is_done: Callable[[list[int]], bool]) -> list[int]:
        """The process ids of the workers, once they are as wanted, or it has been waited too
        long."""
        until = time.monotonic() + WAIT_SECONDS
        while True:
            mine = read_tree([os.getpid()])
            workers = [
                process.pid for process in mine if process.command.startswith("ray::RayWorker")
            ]
            if is_done(workers) or time.monotonic() > until:
                return workers
            time.sleep(0.1)


@contextmanager
def open_nodes(number: int) -> Generator[Nodes]:
    """So many nodes; `--on ray` of this process and of those that it starts means them."""
    clusters.load("ray")  # so that the nodes listen on loopback
    cluster_utils: Any = import_module("ray.cluster_utils")
    cluster = cluster_utils.Cluster(True, head_node_args=NODE | {"include_dashboard": False})
    nodes = Nodes(cluster)
    try:
        for _ in range(number - 1):
            nodes.add()
        token = Path.home() / ".ray" / "auth_token"  # for processes with a home of their own
        if token.exists():
            os.environ["RAY_AUTH_TOKEN"] = token.read_text()
        os.environ["RAY_ADDRESS"] = nodes.address
        yield nodes
    finally:
        for name in ("RAY_ADDRESS", "RAY_AUTH_TOKEN"):
            os.environ.pop(name, None)
        cluster.shutdown()
