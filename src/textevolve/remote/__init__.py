"""The client for studies that run on a TextEvolve server, started from the command line or Python
on this machine.

`wire` has the data types of the HTTP API; `connection` sends requests; `runs` starts runs on the
server, follows them, and stores a temporary copy of their records on this machine.
`trackers` sends scores and runs to Phoenix and MLflow.
"""
