"""Judging each step of an agent's run, beside it: never in its way, never changing it.

After ArbiterOS. Here live the history, the evaluators of nodes and what watches a run; LangGraph is
known to one file. Keeping a run and the command line live above.
"""
