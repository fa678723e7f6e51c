"""Templates: values are filled in as texts, and nothing in them is evaluated."""

import pytest

from textevolve.errors import InputError
from textevolve.llm.chains.chat_template import take_template, value_text


def test_values_are_filled_in_as_texts_and_never_read_again():
    template = take_template("{x} and {{ y }} {z}")
    (message,) = template.fill({"x": "{y}", "y": [1, "ü"], "z": {"a": None}})
    assert message.text == '{y} and [1, "ü"] {"a": null}'
    assert value_text("as it is") == "as it is"
    with pytest.raises(InputError, match="no value 'y'"):
        template.fill({"x": 1})


def test_nothing_of_an_object_but_its_fields_is_had_by_a_name():
    template = take_template("{x.__class__}{x.upper}")
    assert template.names == ("x.__class__", "x.upper")
    with pytest.raises(InputError, match="has no field '__class__'"):
        template.fill({"x": "text"})
