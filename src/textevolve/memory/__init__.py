"""What an agent knows. So far only the interface by which a judge asks for it (`recall.py`).

The store of memories, their creation and integration come later and will live here; who recalls,
and what for, is the caller's business.
"""
