"""Measuring judges on items that people have judged: how often they agree, and how sure that is."""
