"""Jobs: stored studies that run on a schedule. Several schedulers may share the jobs; each
scheduled time is run by only one of them.

`job_spec` has the specification of a job, `schedules` computes its times, `scheduler` runs the jobs
that are due, and `job_report` describes jobs. `textevolve.store.jobs` stores them.
"""
