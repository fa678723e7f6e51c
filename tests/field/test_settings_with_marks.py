"""A settings file was saved by an editor that puts a byte order mark at its beginning."""


def test_marks_of_settings_are_no_content(cli, home, monkeypatch):
    path = home / "marked.toml"
    path.write_bytes(b"\xef\xbb\xbf" + b'store = "marked.db"\r\n')
    monkeypatch.setenv("TEXTEVOLVE_CONFIG", str(path))
    monkeypatch.delenv("TEXTEVOLVE_STORE", raising=False)
    outcome = cli("config")
    assert outcome.code == 0, outcome.err
    assert "marked.db" in outcome.out
