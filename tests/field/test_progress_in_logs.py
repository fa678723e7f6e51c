"""A build server asks for colours (FORCE_COLOR), and keeps in its log whatever is written."""

from asked import write_rows


def test_nothing_is_drawn_again_and_again(cli, home, monkeypatch, server, model):
    monkeypatch.setenv("FORCE_COLOR", "1")
    server.latency = 0.2
    write_rows(home / "rows.jsonl", [{"id": str(n), "n": n, "sum": "1"} for n in range(9)])
    (home / "double.txt").write_text("Double {n}.")
    command = ("compare", "-p", "double.txt", "-d", "rows.jsonl", "--label", "sum")
    outcome = cli(*command, "--metric", "exact", "-m", model, "--concurrency", "2")
    assert outcome.code == 0, outcome.err
    assert "\r" not in outcome.err
    assert "\x1b[2K" not in outcome.err  # which clears a line
    assert "\x1b[?25l" not in outcome.err  # which hides the cursor
    assert "9 of 9 done" in outcome.err
    assert "\x1b[" in outcome.out  # the colours are there
