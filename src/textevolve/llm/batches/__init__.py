"""Model calls in batch jobs: gathered into a file, submitted, polled, answered from its lines.

`gathering` has the model that waits; `submission` what is done with one job; `service` speaks with
the endpoint, and `ledger` says what has to be durable. Not here: the table that keeps the jobs
(`textevolve.store.batches`), and answers, which stand in the journal like all others.
"""
