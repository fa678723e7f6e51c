"""The package as users install it: built, put into a bare environment, used outside a checkout."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
UV = Path(sys.executable).with_name("uv")
PYTHONS = ("3.11", "3.12", "3.13", "3.14")


def run(*words, **options):
    ran = subprocess.run(words, capture_output=True, text=True, check=False, **options)
    assert ran.returncode == 0, f"{words}: {ran.stdout}{ran.stderr}"
    return ran.stdout


def find_python(version):
    """A Python of this version that starts, on the path or among those of pyenv."""
    installed = Path.home().glob(f".pyenv/versions/{version}.*/bin/python")
    for path in (shutil.which(f"python{version}"), *map(str, installed)):
        if (
            path
            and not subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode
        ):
            return path
    return None


def with_index():
    """The environment, with pip's index for uv, which does not read pip's settings."""
    pip = (sys.executable, "-m", "pip", "config", "get", "global.index-url")
    setting = subprocess.run(pip, capture_output=True, text=True, check=False).stdout.strip()
    index = os.environ.get("PIP_INDEX_URL") or setting
    return {**os.environ, **({"UV_DEFAULT_INDEX": index} if index else {})}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder of a wheel and a source distribution."""
    folder = tmp_path_factory.mktemp("built")
    run(sys.executable, "-m", "hatchling", "build", "-d", str(folder), cwd=ROOT)
    return folder


def checksums(wheel):
    return {file.filename: file.CRC for file in zipfile.ZipFile(wheel).infolist()}


@pytest.mark.slow
def test_what_is_built_holds_the_package_and_nothing_of_this_machine(built):
    (wheel,), (source,) = built.glob("*.whl"), built.glob("*.tar.gz")
    names = zipfile.ZipFile(wheel).namelist()
    shipped = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src").rglob("*.*")}
    files = {name for name in shipped if (ROOT / "src" / name).is_file() and name[-4:] != ".py"}
    assert {name for name in files if "__pycache__" not in name} <= set(names)
    assert {name.split("/")[0].split("-")[0] for name in names} == {"textevolve"}
    with tarfile.open(source) as archive:
        tops = {name.split("/")[1] for name in archive.getnames() if "/" in name}
        archive.extractall(built, filter="data")
    assert {"src", "tests", "docs", "examples", "README.md", "LICENSE"} <= tops
    assert not tops & {".venv", "build", ".git"}
    (unpacked,) = built.glob("*/")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", cwd=unpacked)
    (again,) = unpacked.glob("dist/*.whl")
    assert checksums(again) == checksums(wheel)


@pytest.mark.slow
@pytest.mark.parametrize("python", PYTHONS)
def test_an_installed_package_does_its_main_jobs(built, tmp_path, python):
    executable = find_python(python)
    if executable is None:
        pytest.skip(f"there is no Python {python} here")
    bare, (package,) = tmp_path / "bare", built.glob("*.whl")
    run(UV, "venv", "-q", "-p", executable, str(bare))
    interpreter = bare / "bin" / "python"
    target = f"textevolve[memory,server] @ {package.as_uri()}"
    run(UV, "pip", "install", "-q", "-p", interpreter, target, env=with_index())
    script, rows = ROOT / "tools" / "try_install.py", ROOT / "examples" / "tickets.csv"
    home = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    output = run(interpreter, script, rows, "memory", "server", cwd=tmp_path, env=home)
    assert f"works here, with Python {python}" in output
