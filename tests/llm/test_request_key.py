"""The identity of a call: another version of the package finds what this one has journaled."""

import pytest

from textevolve.llm.model import Message, Request, request_key

KEYS = [
    (
        {"temperature": 0.7, "max_tokens": 600, "seed": 1, "schema": "{}"},
        "9570ce53c16b11a2df2dc66c03d37f2f92ef49acd7cb4a9bdcab7089a26cc711",
    ),
    (
        {"temperature": 1e16, "seed": 2**70},
        "c8bc77d0963f39f81a1483fcae4ed562c841215455ef20ecf95a8fced8920a40",
    ),
    ({"temperature": 1e-7}, "eafa1f6fc2ca5882791e2f83be6852d06ed1c409182b0ce9bdd2db1fbe50ee1e"),
    (
        {"temperature": float("nan")},
        "b71c1de835f64915434646bc5a72fce1eec6d8ea475332397bb6044f8a5c9b57",
    ),
    (
        {"temperature": -0.0, "sample": 3, "top_logprobs": 5},
        "7a2893d8add246642b01989f314506a31b2dff8263c506dba48363fe841f8391",
    ),
]
"""What a request has besides its text, and its key in the first journals."""


@pytest.mark.parametrize(("given", "key"), KEYS)
def test_the_key_of_a_request_stays_what_it_was(given, key):
    message = Message("user", ("a", "é\ud800\0"))
    assert request_key("http://h/v1#é", Request(messages=(message,), **given)) == key
