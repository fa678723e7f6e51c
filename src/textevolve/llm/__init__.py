"""Access to language models: messages in, text or a checked object out. All calls of the package
pass through here.

The package has the `Model` protocol with its request and response, the client of the OpenAI
protocol, the wrappers around a model (retries, limits, budget, journal), structured answers, prompt
templates, providers, local models, and the public scripted server for tests. The prompts are in the
packages that send them, and `textevolve.store` stores the journal.
"""
