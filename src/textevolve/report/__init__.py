"""Reports as blocks (`blocks.py`), and the renderers that draw them.

`terminal.py`, `html.py` and `markdown.py` draw a report; `data.py` writes it, and the rows of a
run, as JSON, JSON lines, CSV and Parquet. What stands in a report is each study's business.
"""
