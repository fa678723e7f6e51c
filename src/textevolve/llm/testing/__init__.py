"""A scripted server of the OpenAI protocol on loopback, for our tests and for those of users.

    async with ScriptedServer() as server:
        client = OpenAIClient(server.url, "scripted")

Without a script it answers any request, the same request always in the same way, with text, an
instance of the requested JSON schema, and log-probabilities. A script is a function that decides on
the answers of single requests; a `Fault` misbehaves as real endpoints do. `python -m
textevolve.llm.testing` runs the server in a process of its own. There is no mock of our client:
tests use the real client with this server.
"""

from textevolve.llm.testing.answers import Answer, instance
from textevolve.llm.testing.batches import BatchFault, ScriptedBatches
from textevolve.llm.testing.faults import Fault, WindowLimit, faults, misbehave, seen_images
from textevolve.llm.testing.server import Script, ScriptedServer, serve_in_process

__all__ = [
    "Answer",
    "BatchFault",
    "Fault",
    "Script",
    "ScriptedBatches",
    "ScriptedServer",
    "WindowLimit",
    "faults",
    "instance",
    "misbehave",
    "seen_images",
    "serve_in_process",
]
