"""Batch jobs: model calls are collected into a file, submitted as one job to the endpoint, and
answered from the job's results, more cheaply and later than single calls.

`gathering` collects, submits and polls; `ledger` has the stored form of a job.
`textevolve.store.journal` stores the jobs, and the journal stores their answers.
"""
