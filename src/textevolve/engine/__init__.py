"""Run many pieces of async work: with bounded concurrency, in order, and cancellable. Nothing here
knows models or texts.

`local.py` runs work on the current event loop, `ray.py` on the nodes of a Ray cluster. `sync.py`
lets plain code wait for async code, also while an event loop is running, as in a notebook.
"""
