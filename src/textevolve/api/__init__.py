"""The Python interface: clients, and the functions of `textevolve` that are methods of a default
client.

A client's methods are verbs such as `evaluate`, `compare` and `calibrate`. Each reads the settings,
chooses a model, opens the store and executes a run, whose results it returns. `verbs.py` has the
async methods (`AsyncClient`), `client.py` the blocking ones (`Client`). The public names are
imported from `textevolve`, which loads each one when it is first used.
"""
