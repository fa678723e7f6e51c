"""The catalogue's data, and what a name of local weights stands for."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from textevolve.errors import SettingsError
from textevolve.llm.catalogue import Weights, Wheels, locate, read_catalogue, user_files


@pytest.mark.parametrize("change", [{"wheels": "--index-url"}, {"version": "1 --pre"}])
def test_what_pip_would_read_as_an_option_is_refused(change: dict[str, str]):
    fields = {"wheels": "name{number}", "version": "1.0", "member": "*.bin", **change}
    with pytest.raises(ValidationError):
        Wheels.model_validate(fields)


@pytest.mark.parametrize("file", ["../up.gguf", "a/b.gguf", "plain.bin", "-d.gguf"])
def test_a_file_is_a_plain_name(file: str):
    known = read_catalogue()["smollm2-135m"].model_dump()
    with pytest.raises(ValidationError):
        Weights.model_validate(known | {"file": file})


@pytest.mark.parametrize("name", ["smollm2-135m", "SmolLM2-135M-Instruct.Q4_1"])
def test_a_name_or_the_stem_of_its_file_is_found(name: str, tmp_path: Path):
    located = locate(name, tmp_path)
    assert located.path == tmp_path / "SmolLM2-135M-Instruct.Q4_1.gguf"
    assert located.weights == read_catalogue()["smollm2-135m"]


def test_a_file_put_into_the_folder_is_usable_by_its_stem(tmp_path: Path):
    (tmp_path / "mine.gguf").write_bytes(b"GGUF")
    assert locate("mine", tmp_path).path == tmp_path / "mine.gguf"
    assert locate("mine", tmp_path).weights is None
    assert [own_user_file.name for own_user_file in user_files(tmp_path)] == ["mine"]


def test_an_unknown_name_gets_a_near_one_and_what_to_do(tmp_path: Path):
    with pytest.raises(SettingsError, match=r"did you mean 'qwen2\.5-coder-1\.5b'\?.*path"):
        locate("qwen2.5-coder-1.5", tmp_path)
