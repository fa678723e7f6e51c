"""OpenAI's API: chats, responses, embeddings and the list of models, for any client of it.

Agents, judges and the models that the operator named answer under the names of models. Decisions
are the business of `server.decisions`.
"""
