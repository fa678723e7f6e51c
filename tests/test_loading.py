"""How modules are loaded."""

import subprocess
import sys


def test_modules_are_loaded_without_a_collection_and_become_old_at_once():
    script = """
import gc
from textevolve.loading import loading

with loading():
    assert not gc.isenabled()
    lists = [[] for _ in range(1000)]
assert gc.isenabled() and not gc.get_freeze_count()
assert not any(item is lists for item in gc.get_objects(generation=0))

gc.freeze()
with loading():
    pass
assert gc.get_freeze_count(), "what the program has frozen was thawed"

gc.disable()
with loading():
    pass
assert not gc.isenabled(), "what the program has turned off was turned on"
"""
    subprocess.run([sys.executable, "-c", script], check=True)
