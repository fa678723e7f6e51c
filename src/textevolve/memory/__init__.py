"""The memory of agents: creating, storing, recalling and integrating memories.

`record.py` and `cue.py` have the data types, `index.py` the protocol of stores, `recall.py` the
recall M(a, x, y, xi) of an agent's memories for an input. `creation.py` creates memories from
dialogues (`extraction.py`, `reconciliation.py`), `corpus.py` from documents, and `integration.py`
derives insights from memories. The package has no database, display or command: `store` has the
stores, and `studies` the runs.
"""
