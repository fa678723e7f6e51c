"""Agents that have a persona and memories, and the users and chats that they talk with.

`resources.py` has the specifications of namespaces, agents, collections and users, `chat.py` and
`session.py` have chats, and `persona.py` changes personas. How memories are recalled is in the
package `memory`; how all of it is stored is in `store`.
"""
