"""Studies: everything that a person can run, with a module for each kind: a specification in,
records as they come, a summary, a report.

`study.py` defines a study, `driver.py` runs any of them, and `kinds.py` is the registry of kinds.
Studies do not depend on their callers (command line, Python, a file), nor on how reports are drawn.
"""
