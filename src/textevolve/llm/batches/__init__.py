"""Model calls in batch jobs: gathered into a file, submitted, polled, answered from its lines.

The table that keeps the jobs is `textevolve.store.journal`; answers stand in the journal.
"""
