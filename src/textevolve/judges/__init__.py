"""All judges. Each is an object whose fields are its options, registered by its name; opened, it is
an `Evaluator`.

`judge.py` has what all judges are, their registry and their texts; `opening.py` opens them for a
run; `context.py` has the bases of judges that ask a model, and of judges that call none. Each other
file declares judges: `debates.py` by a debate of `textevolve.debate`; `pairwise.py` by comparisons
in both orders; `probe.py` by yes / no questions about one candidate at a time; `decide.py` by typed
questions in one request; `measures.py` by likelihoods and embeddings; `statements.py` by the parts
of a text; `plain.py` without a model; `cascade.py` and `fitted.py` by other judges.
`textevolve.bench` measures judges.
"""
