"""Studies over HTTP: one endpoint for all kinds, and the runner that works on them.

`wire` has the shapes of requests and answers; nothing here knows a kind of study by name.
"""
