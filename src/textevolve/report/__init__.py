"""Reports as blocks (`blocks.py`), and the renderers that draw them.

`terminal.py`, `html.py` and `markdown.py` draw a report; `data.py` writes the rows of a run as JSON
lines, CSV and Parquet; `junit.py` writes test results for build servers. Each study decides on the
content of its report.
"""
