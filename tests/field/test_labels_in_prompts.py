r"""Situations of people whose prompt names the column with the right answers, as the usual prompt
for sums, `\boxed{answer}`, does: the model must not read the answer, and braces stay braces.

The right text of each request was written down by hand.
"""

import json

import pytest

from field.asked import record, write_rows
from textevolve import Client, InputError

ROWS = [{"question": "2 and 2?", "text": "a sum", "answer": "LEAK4"}]
SHOWN = ["{answer}", "{{ answer }}", "{{answer}}", '{"result": {answer}}', "\\boxed{{answer}}"]
HIDDEN_EXPRESSIONS = ["{answer:>5}", "{answer!r}", "{{ answer | trim }}", "{row.answer}"]


@pytest.fixture
def files(home):
    write_rows(home / "rows.jsonl", ROWS)
    return home


def compare(cli, model, *more):
    return cli(
        *("compare", "-d", "rows.jsonl", "--label", "answer", "--metric", "exact", "-m", model),
        *more,
    )


@pytest.mark.parametrize("written", [*SHOWN, *HIDDEN_EXPRESSIONS])
def test_prompts_show_no_label(cli, files, model, server, written):
    (files / "p.txt").write_text(f"Solve {{question}} {written}")
    outcome = compare(cli, model, "-p", "p.txt")
    assert (outcome.code, server.calls) == (2, 0)
    assert "answer" in outcome.err


@pytest.mark.parametrize(
    "texts",
    [
        {text: text for text in ("\\boxed{answer}", "{ answer }", "\\text{ answer }")},
        {
            "\\boxed{text}": "\\boxed{text}",
            "\\boxed{{text}}": "\\boxed{a sum}",
            "\\frac{{text}}{{ question }}": "\\frac{a sum}{2 and 2?}",
            "\\nText{text}": "\\nTexta sum",
            "{ text }": "{ text }",
        },
    ],
    ids=["without a placeholder", "commands of LaTeX"],
)
def test_braces_stay(cli, files, model, server, texts):
    bodies = record(server)
    prompts = []
    for number, written in enumerate(texts):
        (files / f"p{number}.txt").write_text(f"Solve {{question}} {written}")
        prompts += ["-p", f"p{number}.txt"]
    assert compare(cli, model, *prompts).code == 0
    sent = sorted(body["messages"][-1]["content"] for body in bodies)
    assert sent == sorted(f"Solve 2 and 2? {text}" for text in texts.values())


def test_chat_files_show_no_label(cli, files, model, server):
    chat = [
        {"role": "user", "content": "{question}"},
        {"role": "assistant", "content": "It is {answer}."},
        {"role": "user", "content": "Sure?"},
    ]
    (files / "p.json").write_text(json.dumps(chat))
    outcome = compare(cli, model, "-p", "p.json")
    assert (outcome.code, server.calls) == (2, 0)
    assert "shows the label {answer}" in outcome.err


def test_system_messages_show_no_label(cli, files, model, server):
    (files / "p.txt").write_text("{question}")
    outcome = compare(cli, model, "-p", "p.txt", "--system", "Say {{ answer }}.")
    assert (outcome.code, server.calls) == (2, 0)
    assert "shows the label {answer}" in outcome.err


def test_applications_get_no_label(cli, files, server):
    (files / "app.yaml").write_text(
        f'target: {server.url}/app\nbody: {{"q": "{{question}}", "a": "{{answer}}"}}\n'
    )
    outcome = cli(
        *("compare", "-d", "rows.jsonl", "--label", "answer", "--metric", "exact"),
        *("--target", "app.yaml"),
    )
    assert (outcome.code, server.calls) == (2, 0)
    assert "shows the label {answer}" in outcome.err


def test_existing_outputs_are_hidden(cli, files, model, server):
    (files / "p.txt").write_text("Improve {text} for {question}")
    outcome = compare(cli, model, "-p", "p.txt", "--outputs", "text")
    assert (outcome.code, server.calls) == (2, 0)
    assert "{text}, a column of existing outputs" in outcome.err


def test_judges_read_no_label_in_inputs(cli, files, model, server):
    bodies = record(server, "Yes")
    (files / "p.txt").write_text("Solve {question}")
    compare(cli, model, "-p", "p.txt", "--judge", "single")
    assert bodies
    assert "LEAK4" not in json.dumps(bodies)


def test_python_shows_no_label(home, model, server):
    with Client(store=home / "store.db") as client, pytest.raises(InputError, match="the label"):
        client.compare(ROWS, {"p": "{question} {answer}"}, label="answer", models=[model])
    assert server.calls == 0


def test_calibrate_shows_no_label(cli, home, model, server):
    rows = [{"question": f"{n} and {n}?", "answer": str(2 * n)} for n in range(12)]
    write_rows(home / "rows.jsonl", rows)
    for written in (*SHOWN, *HIDDEN_EXPRESSIONS):
        (home / "t.txt").write_text(f"Solve {{question}} {written}")
        outcome = cli(
            *("calibrate", "t.txt", "-d", "rows.jsonl", "--label", "answer"),
            *("--metric", "exact", "-m", model, "--budget", "30"),
        )
        assert (outcome.code, server.calls) == (2, 0), written
