"""Everything that a person can run, each kind written once: a specification in, records as they
come, a summary, a report.

`study.py` says what a study is, `driver.py` runs any of them, `kinds.py` names those that there
are; beside them there is one file for each kind. How they are asked for (command line, Python, a
file) and how a report is drawn are not their business.
"""
