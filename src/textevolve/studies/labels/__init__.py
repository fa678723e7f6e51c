"""Studies on labels by people: how far judges agree with them, and what follows from that. Steps
that all of them share are in `base.py`."""
