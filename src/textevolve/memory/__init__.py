"""The memory of agents: creating, storing, recalling and integrating memories.

Types are in `record.py` and `cue.py`, the protocol of stores in `index.py`, M(a, x, y, xi) in
`recall.py`. The package has no database, display or command: stores are in `store`, runnable work
in `studies`.
"""
