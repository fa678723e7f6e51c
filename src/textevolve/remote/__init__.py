"""Studies that a server of ours runs, for those who ask for them here: the command line and Python.

`wire` has the shapes that go over HTTP, for both ends; `connection` asks a server; `sending` finds
the files that a study reads; `runs` begins runs there and follows them. What comes back goes into a
store for the time of a command (`mirror`), so that it is shown, summarised, held against gates and
written by what does that for runs of this machine.
"""
