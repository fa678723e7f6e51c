"""A caller's scopes and namespaces."""

import pytest

from textevolve.server.errors import ApiError
from textevolve.server.identity import THIS_MACHINE, Caller, check_namespace


def test_what_is_not_seen_is_not_there():
    bound = Caller("key_1", "ann", frozenset({"admin"}), frozenset({"acme"}))
    check_namespace(bound, "acme")
    for caller in (bound, Caller("key_2", "bob", frozenset(), frozenset())):
        with pytest.raises(ApiError) as refused:
            check_namespace(caller, "other")
        assert (refused.value.status, refused.value.code) == (404, "not_found")
        assert refused.value.message == "no namespace 'other'"
    check_namespace(THIS_MACHINE, "other")
