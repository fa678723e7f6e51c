"""Studies that make and change an agent's memories and persona. Steps that all of them share are in
`base.py`."""
