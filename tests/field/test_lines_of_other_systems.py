"""A rubric or an input was saved on Windows, whose lines end in CR LF; a settings file names a path
of Windows in double quotes; a document has a decomposed name, as on macOS.

The texts and names that a person sees in both files are equal, which is the right value.
"""

import unicodedata

import pytest
from asked import record

from textevolve.llm.testing import ScriptedServer


@pytest.mark.parametrize(
    "arguments",
    [
        ("evaluate", "x", "y", "--judge", "probe", "--rubric", "@saved.txt"),
        ("evaluate", "@saved.txt", "y", "--judge", "probe"),
        ("evaluate", "x", "@saved.txt", "--judge", "probe"),
    ],
)
def test_models_get_plain_ends_of_lines(cli, home, arguments):
    (home / "saved.txt").write_bytes(b"\xef\xbb\xbfIs it kind?\r\nIs it brief?\r\n")
    with ScriptedServer() as server:
        bodies = record(server, "Yes")
        cli(*arguments, "--model", f"{server.url}#any")
    sent = str(bodies)
    assert "Is it brief?" in sent
    assert "\\r" not in sent
    assert "\ufeff" not in sent


def test_decomposed_names_are_the_same_document(cli, home, model):
    composed = "Geb\u00fchren.md"
    cli("memories", "collections", "create", "fees", "--kind", "semantic", "--embedder", model)
    for name in (unicodedata.normalize("NFD", composed), composed):
        (home / name).write_text("A book costs three euros.\n")
        assert cli("memories", "read", name, "-c", "fees").code == 0
        (home / name).unlink()
    assert cli("memories", "list", "fees").out.count("three euros") == 1


@pytest.mark.parametrize("path", ["C:\\Users\\ann\\runs.db", "C:\\new.db", "D:\\temp\\runs.db"])
def test_paths_in_double_quotes_are_refused(cli, home, monkeypatch, path):
    (home / "windows.toml").write_text(f'store = "{path}"\n')
    monkeypatch.setenv("TEXTEVOLVE_CONFIG", str(home / "windows.toml"))
    monkeypatch.delenv("TEXTEVOLVE_STORE", raising=False)
    outcome = cli("config")
    assert outcome.code == 2
    assert "windows.toml" in outcome.err
    assert "single quotes" in outcome.err
