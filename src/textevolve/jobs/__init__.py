"""Jobs: stored studies that run on a schedule, each time by one scheduler alone.

`job_spec` says what a job is, `schedules` when it is due, `performing` how one is run by the driver
of studies, `scheduler` how all are. What is kept of them is in `textevolve.store.jobs`.
"""
