"""How often Python looks for garbage while a run goes on (`rare_collections`)."""

import gc

import pytest

from textevolve.engine.local import CALM, USUAL, rare_collections


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
