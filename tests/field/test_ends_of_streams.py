"""An endpoint says [DONE] and leaves the connection open; the answer came after the time limit, as
a failure.

The right time is that of the event: what was said after it is no part of the answer.
"""

import asyncio
import json

from textevolve.llm.client import OpenAIClient
from textevolve.llm.model import Message, Request
from textevolve.llm.wire import ask_streaming
from textevolve.settings import Timeouts

TEXT = "At noon."
CHUNK = {"choices": [{"index": 0, "delta": {"content": TEXT}, "finish_reason": "stop"}]}
STREAM = f"data: {json.dumps(CHUNK)}\n\ndata: [DONE]\n\n".encode()
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


async def test_a_stream_ends_with_its_last_event():
    requests = []

    async def answer(reader, writer):
        requests.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(HEAD + b"%x\r\n%b\r\n" % (len(STREAM), STREAM))
        await reader.read()  # until the client hangs up
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        timeouts = Timeouts(read=20)
        async with OpenAIClient(f"http://127.0.0.1:{port}/v1", "m", timeouts=timeouts) as client:
            request = Request(messages=(Message("user", ("When?",)),))
            asking = ask_streaming(client, request, lambda _piece: None)
            response = await asyncio.wait_for(asking, 15)
        assert (response.text, len(requests)) == (TEXT, 1)
