"""Runs: one study that was started, its records in the store, and what is computed from them.

`driver.py` performs and resumes runs, `study.py` has the type of studies with their registry and
files, `stored.py` their stored form, `gates.py` the limits that make a build fail, `report.py` what
readers and programs see, `estimate.py` the cost before a run, `cluster.py` the spread of a run over
machines, `chains.py` chains in the place of a model. Nothing here knows a kind of study.
"""
