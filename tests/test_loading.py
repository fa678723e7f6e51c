"""How modules are loaded, and how often Python looks for garbage while a run goes on."""

import gc
import subprocess
import sys

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
from textevolve.loading import late_module, load

collections = []
gc.callbacks.append(lambda phase, info: collections.append(info))
names = load("turtle").__dict__
assert not collections and gc.isenabled() and not gc.get_freeze_count()
assert not any(item is names for item in gc.get_objects(generation=0))

calendar = late_module("calendar")
assert "calendar" not in sys.modules
assert calendar.isleap(2024) and "calendar" in sys.modules

gc.freeze()
load("mailbox")
assert gc.get_freeze_count(), "what the program has frozen was thawed"

gc.disable()
load("wave")
assert not gc.isenabled(), "what the program has turned off was turned on"
"""
    subprocess.run([sys.executable, "-c", script], check=True)
