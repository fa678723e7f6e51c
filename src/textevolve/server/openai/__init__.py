"""OpenAI's API: chats, responses, embeddings and the list of models, for any client of that API.

A client names an agent, a judge or a model of the operator as its model, and that one answers.
`api` has the paths; `agents`, `judges` and `relaying` produce the answers; `requests`, `responses`
and `streams` read and write the formats. Decisions are in `server.decisions`.
"""
