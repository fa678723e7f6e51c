"""The studies: the kinds of tasks that users can run, such as `evaluate` or `compare`. Each kind
has a module that defines its specification (the user's options), its records (one result per case),
the summary of the records, and the report.

`study.py` defines the `Study` type, `driver.py` runs any study, and `kinds.py` is the registry of
kinds. Studies do not depend on their callers (command line, Python, a YAML file), nor on how
reports are drawn.
"""
