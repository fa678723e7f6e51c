"""Which ids were seen, in few bytes (`SeenIds`)."""

import random

from textevolve.studies.columns import SeenIds


def test_what_was_seen_is_known_whatever_became_of_its_run():
    draw = random.Random(4)
    seen, known = SeenIds(latest=8), set[str]()
    for _ in range(2_000):
        id = str(draw.randrange(1_500))
        assert seen.add(id) == (id in known)
        known.add(id)
