"""`textevolve models`: what is listed, checked and refused, without fetching anything."""

import asyncio
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from typer.testing import CliRunner

from textevolve.cli.app import app
from textevolve.cli.results import fetch_weights
from textevolve.errors import SettingsError
from textevolve.llm.opening import open_model
from textevolve.settings import Settings

RUN = CliRunner()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TEXTEVOLVE_WEIGHTS", str(tmp_path))
    (tmp_path / "none.toml").write_text("")
    monkeypatch.setenv("TEXTEVOLVE_CONFIG", str(tmp_path / "none.toml"))
    return tmp_path


def test_list_shows_the_catalogue_and_own_files(folder: Path):
    (folder / "mine.gguf").write_bytes(b"GGUF")
    answer = RUN.invoke(app, ["models", "list"]).stdout
    assert "qwen2.5-coder-1.5b   1.12 GB  Apache-2.0  not there" in answer
    assert "mine" in answer
    assert str(folder) in answer


@pytest.mark.parametrize(
    ("package", "model", "extra"),
    [("xllamacpp", "local/qwen2.5-coder-1.5b", "local"), ("onnxruntime", "local/minilm", "memory")],
)
def test_a_missing_package_is_told_before_weights_are_fetched(
    package: str, model: str, extra: str, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    async def fetched() -> None:
        async with AsyncExitStack() as stack:
            await open_model(model, settings, stack)

    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr("textevolve.llm.weights.fetch_file", lambda *_: pytest.fail("fetched"))
    settings, answer = Settings(), rf"{model} needs {package}.*textevolve\[{extra}\]"
    with pytest.raises(SettingsError, match=answer):
        fetch_weights([model], settings)
    with pytest.raises(SettingsError, match=answer):
        asyncio.run(fetched())
