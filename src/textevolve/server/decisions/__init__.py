"""The decision API, `POST /v1/systemone`, and what answers it.

Judges and models answer typed questions about a state, as System One has them. Chats are the
business of `server.openai`.
"""
