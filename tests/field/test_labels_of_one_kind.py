"""A fit to labels that are all alike is refused before a call is paid, and does not end well.

The right count of requests is none, since the labels alone decide. (cvs-health/uqlm#147)
"""

import pytest
from asked import write_rows


@pytest.mark.parametrize("label", ["pass", "fail", 1, 4])
@pytest.mark.parametrize("signals", ["probe", "probe,length"])
def test_equal_labels_are_refused(cli, home, server, model, label, signals):
    rows = [{"input": f"Q{n}?", "output": f"A{n}", "label": label} for n in range(24)]
    write_rows(home / "rows.jsonl", rows)
    command = ["judges", "fit", "rows.jsonl", "--signals", signals, "-m", model, "-o", "my.judge"]
    outcome = cli(*command, *(["--good", "3"] if label == 4 else []))
    assert outcome.code == 2
    assert "all responses have the same label; a fit needs good and bad ones" in outcome.err
    assert server.calls == 0
    assert not (home / "my.judge").exists()
