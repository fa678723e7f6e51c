"""Jobs: stored studies that run on a schedule, each time by one scheduler alone.

`job_spec` has the specification of a job, `schedules` its times, `scheduler` runs jobs that are
due. `textevolve.store.jobs` stores them.
"""
