"""Jobs: stored studies that run on a schedule. Only one scheduler performs each scheduled run.

`job_spec` has the specification of a job, `schedules` its times, `scheduler` runs jobs that are
due. `textevolve.store.jobs` stores them.
"""
