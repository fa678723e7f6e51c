"""The one door to language models: messages in, text or a checked object out.

Here: the `Model` protocol and its request and response, the client of the OpenAI protocol, the
wrappers around it (retry, limit, budget, journal), structured answers, prompt templates, providers,
local models and the public scripted server for tests. Not here: what is asked (the rooms' prompts)
and where a journal is kept (`textevolve.store`).
"""
