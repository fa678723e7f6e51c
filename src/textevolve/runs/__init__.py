"""A run: cases judged under one specification, kept in a store, resumable and replayable.

`intake.py` reads cases from files, `spec.py` says what makes a run what it is, `work.py` does it,
`estimate.py` says beforehand what it may cost. How one case is judged is the debate's business;
nothing here draws or prints.
"""
