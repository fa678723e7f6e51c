"""What a run may take, before anything is spent: a range of calls, tokens and cost by formula.

A study whose own code can be rehearsed is estimated by `studies/rehearsal.py`, not here. Nothing
here asks a model, keeps, draws or prints.
"""
