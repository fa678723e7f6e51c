"""The decision APIs: `POST /v1/systemone` and `POST /v1/decisions`, and what answers them.

Judges and models answer typed questions about a state, as System One and OpenAI's Decisions API
have them. Chats are the business of `server.openai`.
"""
