"""A client keeps its connection, and each of its answers waits 40 ms for an acknowledgement."""

import socket

from textevolve.server.app import bind


def test_answers_do_not_wait():
    listener = bind("127.0.0.1", 0)
    with listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
