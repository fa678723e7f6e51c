"""How modules are loaded, and how often Python looks for garbage while a run goes on."""

import gc
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from textevolve.loading import CALM, USUAL, rare_collections


@pytest.fixture(autouse=True)
def usual_thresholds():
    before = gc.get_threshold()
    gc.set_threshold(*USUAL)
    yield
    gc.set_threshold(*before)


def test_the_setting_comes_back_after_the_last_of_several_blocks():
    with rare_collections():
        with rare_collections():
            assert gc.get_threshold() == CALM
        assert gc.get_threshold() == CALM
    assert gc.get_threshold() == USUAL


def test_a_program_that_has_set_its_own_is_left_alone():
    gc.set_threshold(5_000, 7, 7)
    with rare_collections():
        assert gc.get_threshold() == (5_000, 7, 7)
    assert gc.get_threshold() == (5_000, 7, 7)


def test_modules_are_loaded_without_a_collection_and_become_old_at_once():
    script = """
import gc, sys
from textevolve.loading import late_module, load_module

collections = []
gc.callbacks.append(lambda phase, info: collections.append(info))
names = load_module("turtle").__dict__
assert not collections and gc.isenabled() and not gc.get_freeze_count()
assert not any(item is names for item in gc.get_objects(generation=0))

calendar = late_module("calendar")
assert "calendar" not in sys.modules
assert calendar.isleap(2024) and "calendar" in sys.modules

gc.freeze()
load_module("mailbox")
assert gc.get_freeze_count(), "what the program has frozen was thawed"

gc.disable()
load_module("wave")
assert not gc.isenabled(), "what the program has turned off was turned on"
"""
    subprocess.run([sys.executable, "-c", script], check=True)


ROOT = Path(__file__).parent.parent
LATE = re.compile(r'late_module\("([\w.]+)"\)')


def find_late():
    """Yield the files that load a module late, each with the module's name."""
    for path in (ROOT / "src").rglob("*.py"):
        for target in LATE.findall(path.read_text()):
            yield path, target


def test_modules_that_are_loaded_late_are_in_the_same_layer_or_below():
    """import-linter does not see them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = project["tool"]["importlinter"]["contracts"]
    (layers,) = [contract["layers"] for contract in contracts if "layers" in contract]
    heights = {}
    for number, layer in enumerate(layers):
        heights |= dict.fromkeys(layer.split(" | "), -number)
    own = [(path, target) for path, target in find_late() if target.startswith("textevolve.")]
    assert own

    for path, target in own:
        loading_room = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts[:2])
        target_room = ".".join(target.split(".")[:2])
        assert heights[target_room] <= heights[loading_room], f"{path} loads {target}"


def test_packages_that_are_loaded_late_have_one_loader():
    packages = [(target, path.name) for path, target in find_late() if "textevolve" not in target]
    assert sorted(packages) == [
        ("aiohttp", "connections.py"),
        ("gguf", "quantize.py"),
        ("numpy", "loading.py"),
        ("regex", "loading.py"),
    ]
