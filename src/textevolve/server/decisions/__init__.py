"""The decision API, `POST /v1/systemone`: models and judges answer typed questions about a text.

`wires` has the bodies of requests and answers, `serving` the models and judges by their names, and
`serving` lets a judge answer questions. Chats are in `server.openai`.
"""
