"""Who remembers: agents with a persona and memories, and whom they talk with.

What namespaces, agents, collections and users are is in `resources.py`; chats and personas have
their own files. What a memory is and how it is found is the business of `memory`; how all of it is
kept, of `store`.
"""
