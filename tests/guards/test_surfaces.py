"""Whatever a user can see is as it was frozen in `frozen/`, or the change is on purpose."""

import pytest

from guards.surfaces import SURFACES, walk_commands


@pytest.mark.parametrize("name", SURFACES)
def test_what_a_user_can_see_is_as_frozen(frozen, name, home):
    frozen(name, SURFACES[name]())


def test_the_walk_reaches_commands_of_groups_within_groups():
    paths = [path for path, _ in walk_commands()]
    assert len(paths) == len(set(paths)) > 100
    assert {"textevolve", "textevolve runs resume", "textevolve agents evolve"} <= set(paths)
