import collections
import dataclasses
import enum
import json
import threading
import types

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from textevolve.node_eval.snapshots import SnapshotLimits, find_loss, take_snapshot

LIMITS = SnapshotLimits()
SMALL = SnapshotLimits(characters=10, items=4, total=30, depth=4)


class Hostile:
    """Everything about it raises, and counts that it was asked."""

    asked = 0

    def _refuse(self, *_):
        type(self).asked += 1
        raise RuntimeError("no")

    __repr__ = __str__ = __deepcopy__ = __copy__ = __reduce_ex__ = __getattr__ = _refuse
    __len__ = __iter__ = __eq__ = __bool__ = _refuse
    __hash__ = object.__hash__


@dataclasses.dataclass
class Point:
    x: int
    password: str = "p"


class Message(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    content: str
    tags: list[str] = []


class Colour(enum.Enum):
    RED = "red"


class Text(str):
    __slots__ = ()

    def __str__(self):
        raise RuntimeError("no")


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(st.sampled_from(["a", "b", "tokens", "keys"]), inner)
    ),
    max_leaves=12,
)


@given(plain)
def test_plain_data_comes_back_equal_and_shares_nothing_that_can_change(state):
    copied = take_snapshot(state, LIMITS)
    assert copied == state
    assert find_loss(copied) is None

    def containers(value):
        if isinstance(value, dict | list | tuple):
            if not isinstance(value, tuple):
                yield id(value)
            for one in value.values() if isinstance(value, dict) else value:
                yield from containers(one)

    assert not set(containers(copied)) & set(containers(state))


@pytest.mark.slow
@given(st.lists(plain | st.builds(threading.Lock) | st.builds(Point, st.integers())))
def test_every_snapshot_is_json_and_bounded(state):
    text = json.dumps(take_snapshot({"state": state}, SMALL))
    assert len(text) < 5000


def test_what_cannot_be_kept_is_described():
    state = {"lock": threading.Lock(), "bytes": b"abc", "made": (n for n in [1]), "f": len}
    assert take_snapshot(state, LIMITS) == {
        "lock": "<lock: not kept>",
        "bytes": "<bytes: not kept>",
        "made": "<generator: not kept>",
        "f": "<builtin_function_or_method: not kept>",
    }
    assert next(state["made"]) == 1


def test_objects_that_raise_are_described_and_not_asked():
    Hostile.asked = 0
    mark = "<Hostile: not kept>"
    assert take_snapshot([Hostile(), {"a": Hostile()}], LIMITS) == [mark, {"a": mark}]
    assert Hostile.asked == 0


def test_objects_with_fields_are_read_by_key_and_by_attribute():
    snapshot = take_snapshot([Point(1), Message(content="hi", tags=["a"], token="t")], LIMITS)
    assert snapshot == [
        {"x": 1, "password": "***"},
        {"content": "hi", "tags": ["a"], "token": "***"},
    ]
    assert (snapshot[0].x, snapshot[1].content, take_snapshot(snapshot, LIMITS)[1].tags) == (
        1,
        "hi",
        ["a"],
    )
    with pytest.raises(AttributeError):
        _ = snapshot[0].y
    assert take_snapshot(snapshot, LIMITS)[0].x == 1


def test_other_kinds_become_plain():
    state = [
        *(Colour.RED, Text("a"), (1, 2), {1}, collections.deque([1]), {(1, 2): 3, Colour.RED: 1}),
        *(collections.defaultdict(list, a=[1]), types.MappingProxyType({"a": 1})),
    ]
    snapshot = take_snapshot(state, LIMITS)
    assert snapshot == [
        "red",
        "a",
        (1, 2),
        [1],
        [1],
        {"(1, 2)": 3, "red": 1},
        {"a": [1]},
        "<mappingproxy: not kept>",
    ]
    assert type(snapshot[6]) is dict
    assert type(snapshot[1]) is str


def test_cycles_and_depth_end():
    state = {"a": []}
    state["a"].append(state)
    assert "nested deeper than 4" in str(take_snapshot(state, SMALL))
    deep = []
    for _ in range(100_000):
        deep = [deep]
    assert "nested deeper than 4" in str(take_snapshot(deep, SMALL))
    shared = [1]
    assert take_snapshot([shared, shared], LIMITS) == [[1], [1]]


def test_limits_keep_the_beginning_of_texts_and_both_ends_of_containers():
    snapshot = take_snapshot({"text": "a" * 50, "list": list(range(100))}, SMALL)
    assert snapshot["text"] == "a" * 10 + "<40 more characters: not kept>"
    assert snapshot["list"] == [0, 1, "<96 more items: not kept>", 98, 99]
    assert take_snapshot(snapshot["text"], SMALL) == snapshot["text"]
    many = take_snapshot({str(n): n for n in range(100)}, SMALL)
    assert many == {"0": 0, "1": 1, "2": 2, "…": "<97 more keys: not kept>"}
    assert "too many items" in str(take_snapshot([[[1] * 4] * 4] * 4, SMALL))


@pytest.mark.parametrize(
    "key",
    [
        *("api_key", "apiKey", "API-KEY", "OPENAI_API_KEY", "x-api-key", "token", "access_token"),
        *("password", "db_password", "Authorization", "client_secret", "private_key", "Cookie"),
        *("sessionToken", "passphrase", "credentials", "secretAccessKey"),
    ],
)
def test_secrets_are_masked_by_their_keys(key):
    snapshot = take_snapshot({"headers": [{key: "s3cr3t"}]}, LIMITS)
    assert snapshot == {"headers": [{key: "***"}]}


@pytest.mark.parametrize(
    "key",
    [
        *("key", "keys", "max_tokens", "tokens", "token_count", "keyword", "author", "secretary"),
        *("", "_", "1", "monkey", "primary_key"),
    ],
)
def test_other_keys_are_not(key):
    assert take_snapshot({key: "value"}, LIMITS) == {key: "value"}


@pytest.mark.parametrize("flat", [False, True])
def test_secrets_in_a_tools_arguments_are_masked_that_are_json_as_a_text(flat):
    def snapshot(arguments):
        call = {"name": "login", "arguments": arguments}
        taken_snapshot = take_snapshot(call if flat else {"calls": [call]}, LIMITS)
        return (taken_snapshot if flat else taken_snapshot["calls"][0])["arguments"]

    message = '{"user": {"password": "***"}, "keys": [{"token": "***"}]}'
    for _ in range(2):  # the second time keys are known
        given_arguments = {"user": {"password": "hunter2"}, "keys": [{"token": "t-1"}]}
        assert snapshot(json.dumps(given_arguments)) == message
        for other in ('{"n":1}', "no JSON", '{"password": ', "[" * 100_000, ""):
            assert snapshot(other)[:20] == other[:20]
