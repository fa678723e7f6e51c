"""Run many pieces of async work: bounded, in order, cancellable, and independent of models and
texts.

`local.py` runs them on this event loop; `sync.py` lets plain code, and
code inside a running loop such as a notebook's, wait for async code.
"""
