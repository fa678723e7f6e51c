"""Many pieces of async work: bounded, in order, cancellable. It knows nothing of models or texts.

`local.py` runs them on this event loop, `pipeline.py` in two stages; `sync.py` lets plain code, and
code inside a running loop such as a notebook's, wait for async code.
"""
