"""The bodies of chats, decisions and batch jobs, each written and read at one place.

Our client, our server and the scripted server share them. The package has no connections, prices or
wrappers; those are in `textevolve.llm`.
"""
