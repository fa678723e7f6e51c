"""Many pieces of async work: bounded, in order, cancellable. It knows nothing of models or texts.

`local.py` runs them on this event loop; `sync.py` lets plain code, and
code inside a running loop such as a notebook's, wait for async code.
"""
