"""Studies: the tasks that users can run, such as `evaluate` or `compare`. Each kind has a module
that defines its specification, its records, their summary and its report.

`study.py` defines a study, `driver.py` runs any of them, and `kinds.py` is the registry of kinds.
Studies do not depend on their callers (command line, Python, a file), nor on how reports are drawn.
"""
