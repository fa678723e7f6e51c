"""YAML as data: what is refused, and with which line."""

import pytest

from textevolve.errors import InputError
from textevolve.texts.yaml_lines import line_of, parse_yaml


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("rounds: 2\nname: x\nrounds: 3\n", 3),
        ("weights:\n  accuracy: 1\n  accuracy: 2\n", 3),
        ("agents:\n- {name: a}\n- {name: a,\n   name: b}\n", 4),
    ],
)
def test_a_key_that_is_there_twice_is_refused_with_its_line(text, line):
    with pytest.raises(InputError, match=f"^x.yaml:{line}: '[a-z]+' is there twice; keep one$"):
        parse_yaml(text, "x.yaml")


def test_keys_that_differ_aliases_and_halves_of_surrogate_pairs_are_read():
    text = "a: &a {x: 1}\n1: [*a, *a]\n'1': {<<: *a, y: \"half \\ud83d\"}\n"
    node, data = parse_yaml(text, "x.yaml")
    assert data == {"a": {"x": 1}, 1: [{"x": 1}] * 2, "1": {"x": 1, "y": "half \ufffd"}}
    assert line_of(node, ("1", 0)) == 1
    assert parse_yaml("", "x.yaml") == (None, None)


def test_aliases_of_aliases_take_no_longer_than_they_are_written():
    lines = ["a0: &a0 [x]"] + [f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 60)]
    assert len(parse_yaml("\n".join(lines), "x.yaml")[1]) == 60
