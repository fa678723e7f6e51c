"""Studies that a server of ours runs, for those who ask for them here: the command line and Python.

`wire` has the shapes that go over HTTP, for both ends; `connection` asks a server; `runs` begins
runs there, follows them, and keeps their records in a store for the time of a command.
"""
