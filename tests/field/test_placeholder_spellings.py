"""Situations of people who bring prompts from Python or Jinja: a column with a format or a filter,
a template whose application knows one spelling only, a name that looks the same in Unicode.

The right text of each request and of each template was written down by hand.
"""

import json
import unicodedata

import pytest

from field.asked import record, write_rows
from textevolve import Chain, Client, InputError
from textevolve.llm.chains.steps import ask
from textevolve.texts.placeholders import check_spelling, fill, find_spellings, restore_spelling

EXPRESSIONS = [
    "{price:.2f}",
    "{price:>9}",
    "{price:,}",
    "{word!r}",
    "{word!s:>9}",
    "{word[0]}",
    "{word.upper}",
    "{word.upper()}",
    "{word|upper}",
    "{row.word}",
    "{row['word']}",
    "{{ word | upper }}",
    "{{word|trim}}",
    "{{ word.upper() }}",
    "{{ upper(word) }}",
    "{{row.word}}",
    "{{ row['word'] }}",
    "{{ word if word else price }}",
    "{{- word -}}",
    "{% if word %}yes{% endif %}",
    "{{#if word}}yes{{/if}}",
]
TEXTS = [
    '{"word": "a", "price": 1}',
    '{{"word": 1}}',
    "{word: string, price: number}",
    "{price: .2f}",
    "{ price:.2f }",
    "{word, price}",
    "{% raw %} {# word #}",
    "{{ 7*7 }} {self.word} {words!r}",
    "[a-z]{2,3} ${x} {}",
]


@pytest.mark.parametrize("written", EXPRESSIONS)
def test_expressions_are_refused(written):
    with pytest.raises(InputError, match=r"write \{(word|price)\}"):
        check_spelling(f"{{word}} {written}", ["word", "price"], "p.txt")


@pytest.mark.parametrize("written", TEXTS)
def test_other_braces_are_text(written):
    check_spelling(f"{{word}} {written}", ["word", "price"], "p.txt")
    assert fill(written, {"word": "W", "price": "1"}) == written


@pytest.mark.parametrize("written", ["{price:.2f}", "{{ word | upper }}", "{row.word}"])
def test_compare_refuses_expressions(cli, home, model, server, written):
    write_rows(home / "rows.jsonl", [{"word": "a", "price": 1.5}])
    (home / "p.txt").write_text(f"Say {{word}} {written}")
    outcome = cli("compare", "-p", "p.txt", "-d", "rows.jsonl", "-m", model, "--metric", "regex:.")
    assert (outcome.code, server.calls) == (2, 0)
    assert "a placeholder is a name alone" in outcome.err


@pytest.mark.parametrize("written", ["{price:.2f}", "{{ word | upper }}"])
def test_chains_refuse_expressions(cli, home, model, server, written):
    chain = {"name": "c", "steps": [{"ask": "out", "prompt": f"Say {{word}} {written}"}]}
    (home / "c.yaml").write_text(json.dumps(chain))
    write_rows(home / "rows.jsonl", [{"word": "a", "price": 1.5}])
    outcome = cli("run", "chains", "run", "c.yaml", "-d", "rows.jsonl", "-m", model)
    assert (outcome.code, server.calls) == (2, 0)
    assert "a placeholder is a name, its field or its item" in outcome.err


def test_chains_keep_braces_of_latex():
    step = ask("out", "Solve {question} in \\boxed{answer}, as \\boxed{{question}}.")
    chain = Chain("c", step)
    assert list(chain.inputs) == ["question"]
    (message,) = step.template.fill({"question": "Q"})
    assert message.text == "Solve Q in \\boxed{answer}, as \\boxed{Q}."


@pytest.mark.parametrize(
    ("seed", "rewrite", "expected"),
    [
        ("Code for {{ word }}.", "The code for {word}.", "The code for {{ word }}."),
        ("Code for {word}.", "The code for {{word}}.", "The code for {word}."),
        ("Code for {{word}}.", "The code for {{ word }}.", "The code for {{word}}."),
        ("{{ a b }} {x}", "{x} {a b}", "{x} {{ a b }}"),
        ("{word} {{ word }}", "{{ word }} {word}", "{{ word }} {word}"),
    ],
)
def test_rewrites_keep_the_spelling(seed, rewrite, expected):
    names = ("word", "a b", "x")
    assert restore_spelling(rewrite, seed, names) == expected
    assert find_spellings(seed, ["absent"]) == {"absent": ["{absent}"]}


def test_names_compare_in_any_form(home, model, server):
    bodies = record(server)
    column = unicodedata.normalize("NFD", "größe")
    with Client(store=home / "store.db") as client:
        client.compare([{column: "9"}], {"p": "Say {größe}."}, models=[model], metric="regex:.")
    assert bodies[0]["messages"][-1]["content"] == "Say 9."
