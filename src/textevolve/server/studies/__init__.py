"""Studies over HTTP: the same paths for all kinds of studies, and the runner that executes them.

`api` has the paths, `runner` executes studies, `reading` and `feed` return their results, and
`uploads` stores the files of requests. The formats of requests and answers are in `remote.wire`. No
code here depends on the kind of a study.
"""
