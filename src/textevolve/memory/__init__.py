"""What agents know: memories, how they come to be, how they are found, and what becomes of them.

Types in `record.py` and `cue.py`, the store behind a protocol in `index.py`, M(a, x, y, xi) in
`recall.py`. No database, no display and no command: stores are in `store`, whatever can be run in
`studies`.
"""
