"""Results for others to read: tables for programs, a report for people, and words for both.

`tables.py` writes JSONL, CSV and Parquet, `report.py` one HTML file, `wording.py` puts figures into
words. Nothing here asks a model or reads the store.
"""
