"""A judge was fitted, and then the rubric, the rules or the code of a signal is edited. It does not
score by the new content in silence.

The right answer is told by whether the bytes of the file are those of the fit.
(zeroclaw-labs/zeroclaw#9227)
"""

import pytest
from asked import write_rows

CHANGED = "has changed since the fit"
SIGNALS = {
    "probe+rubric=tone.md": ("tone.md", "It is polite.", "It is rude."),
    "rules:tone.yaml": (
        "tone.yaml",
        "rules: [{kind: length, max: 9}]",
        "rules: [{kind: length, max: 3}]",
    ),
    "metric:tone.py:score": (
        "tone.py",
        "def score(text):\n    return len(text) / 999\n",
        "def score(text):\n    return 1 - len(text) / 999\n",
    ),
}


def fit(cli, home, model, signal):
    (home / SIGNALS[signal][0]).write_text(SIGNALS[signal][1])
    labels = ("pass", "fail")
    rows = [
        {"input": f"Q{n}?", "output": "word " * (n + 1), "label": labels[n % 2]} for n in range(24)
    ]
    write_rows(home / "rows.jsonl", rows)
    command = ["judges", "fit", "rows.jsonl", "--signals", f"{signal},length"]
    return cli(*command, "-m", model, "-o", "my.judge")


@pytest.mark.parametrize("signal", SIGNALS)
def test_edited_content_is_told(cli, home, model, signal):
    outcome = fit(cli, home, model, signal)
    assert outcome.code == 0, outcome.err
    command = ["evaluate", "Q?", "An answer of some words.", "--judge", "my.judge", "-m", model]
    assert CHANGED not in cli(*command).err

    path, _, edited = SIGNALS[signal]
    (home / path).write_text(edited)
    outcome = cli(*command)
    assert f"my.judge: what the signal {signal} reads {CHANGED}" in " ".join(outcome.err.split())


def test_equal_content_is_the_same(cli, home, model):
    """A file that is written again, and a signal without files, give no warning."""
    assert fit(cli, home, model, "probe+rubric=tone.md").code == 0
    text = (home / "my.judge").read_text()
    assert text.count("content: ") == 1  # length reads no file
    (home / "tone.md").write_text("It is polite.")
    command = ["evaluate", "Q?", "An answer.", "--judge", "my.judge", "-m", model]
    assert CHANGED not in cli(*command).err
