"""Others' clients of OpenAI's API work with our server as they are."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from pydantic import BaseModel

from textevolve.agents.resources import AgentSpec
from textevolve.llm.testing import Answer
from textevolve.store import kinds

HELLO = [{"role": "user", "content": "Hello?"}]
CALL_ID = r"call_[0-9a-f]{12}"  # as the model gave it
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


class City(BaseModel):
    city: str


def calls_tool(body, _number):
    """Calls the tool first, and speaks when it has its result."""
    if any(message["role"] == "tool" for message in body["messages"]) or not body.get("tools"):
        return "It rains in Oslo."
    return Answer(text="", tool_calls=(("weather", '{"city": "Oslo"}'),))


@pytest.fixture
def url(serve, resources):
    resources.ensure_namespace("acme")
    agent = AgentSpec(name="guide", persona="You are a guide.")
    resources.write(kinds.create, kinds.AGENTS, "acme", agent)
    return serve(judge="probe")


@pytest.fixture(scope="module")
def openai():
    """Its import takes a second, which no process needs that runs none of these tests."""
    return pytest.importorskip("openai")


@pytest.fixture
def client(url, openai):
    with openai.OpenAI(api_key="none", base_url=f"{url}/v1", max_retries=0) as opened:
        yield opened


@pytest.fixture(params=["model", "acme/guide"])
def name(request, model):
    return model if request.param == "model" else request.param


def test_chats_with_the_openai_package(client, server, name):
    server.script = lambda body, n: "Hello to you."
    plain = client.chat.completions.create(model=name, messages=HELLO, user="ann")
    assert plain.choices[0].message.content == "Hello to you."
    assert plain.usage.total_tokens > 0
    stream = client.chat.completions.create(
        model=name, messages=HELLO, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    message = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert "".join(message) == "Hello to you."
    assert chunks[-1].usage.total_tokens > 0
    with client.chat.completions.stream(model=name, messages=HELLO) as events:
        assert events.get_final_completion().choices[0].message.content == "Hello to you."


def test_structured_output_and_tools(client, server, model, name):
    parsed = client.chat.completions.parse(model=name, messages=HELLO, response_format=City)
    assert isinstance(parsed.choices[0].message.parsed, City)
    parsed = client.responses.parse(model=name, input="Where?", text_format=City)
    assert isinstance(parsed.output_parsed, City)
    server.script = calls_tool
    response = client.chat.completions.create(model=model, messages=HELLO, tools=[WEATHER])
    assert response.choices[0].message.tool_calls[0].function.name == "weather"
    request = {"model": "acme/guide", "messages": HELLO, "tools": [WEATHER]}
    (choice,) = client.chat.completions.create(**request).choices
    assert choice.finish_reason == "tool_calls"
    assert re.fullmatch(CALL_ID, choice.message.tool_calls[0].id)
    with client.chat.completions.stream(**request) as stream:
        (call,) = stream.get_final_completion().choices[0].message.tool_calls
    assert json.loads(call.function.arguments) == {"city": "Oslo"}
    result = {"role": "tool", "content": "rain"}
    result["tool_call_id"] = choice.message.tool_calls[0].id
    request["messages"] = [*HELLO, choice.message, result]
    response = client.chat.completions.create(**request)
    assert response.choices[0].message.content == "It rains in Oslo."


def test_responses_with_the_openai_package(client, server, name):
    server.script = lambda body, n: "Hello to you."
    plain = client.responses.create(model=name, input="Hello?", instructions="Be kind.")
    assert (plain.output_text, plain.status) == ("Hello to you.", "completed")
    assert plain.usage.total_tokens > 0
    assert "Be kind." in str(server.requests[-1]["messages"][0])
    parts = [{"role": "user", "content": [{"type": "input_text", "text": "Hello?"}]}]
    events = list(client.responses.create(model=name, input=parts, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type.removeprefix("response.") for event in events]
    assert kinds[:4] == ["created", "in_progress", "output_item.added", "content_part.added"]
    ends = ["output_text.done", "content_part.done", "output_item.done", "completed"]
    assert kinds[-4:] == ends
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == "Hello to you." == events[-1].response.output_text
    assert len(deltas) > 1
    with client.responses.stream(model=name, input="Hello?") as stream:
        assert stream.get_final_response().output_text == "Hello to you."


def test_a_response_calls_tools_and_goes_on(client, server, model):
    server.script = calls_tool
    tool = {"type": "function", "strict": False, **WEATHER["function"]}
    records = [{"role": "user", "content": "What is the weather?"}]
    first_response = client.responses.create(model=model, input=records, tools=[tool])
    (call,) = first_response.output
    assert (call.type, json.loads(call.arguments)) == ("function_call", {"city": "Oslo"})
    assert re.fullmatch(CALL_ID, call.call_id)
    events = list(client.responses.create(model=model, input=records, tools=[tool], stream=True))
    (streamed,) = events[-1].response.output
    assert re.fullmatch(CALL_ID, streamed.call_id)
    assert streamed.name == "weather"
    assert json.loads(streamed.arguments) == {"city": "Oslo"}
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}
    second_response = client.responses.create(
        model=model, input=[*records, call.to_dict(), output], tools=[tool]
    )
    assert second_response.output_text == "It rains in Oslo."
    roles = [message["role"] for message in server.requests[-1]["messages"]]
    assert roles == ["user", "assistant", "tool"]


def test_errors_are_those_that_the_openai_package_knows(client, server, model, openai):
    with pytest.raises(openai.NotFoundError) as error:
        client.chat.completions.create(model="acme/nobody", messages=HELLO)
    assert error.value.code == "model_not_found"
    server.script = lambda body, n: Answer(status=429, body=b"{}")
    with pytest.raises(openai.RateLimitError):
        client.chat.completions.create(model=model, messages=HELLO)
    server.script = lambda body, n: Answer(text="a b c d e", transport="cut")
    with pytest.raises(openai.APIError):
        list(client.chat.completions.create(model=model, messages=HELLO, stream=True))
    with pytest.raises(openai.APIError):
        list(client.responses.create(model=model, input="Hello?", stream=True))


@pytest.mark.slow
async def test_pydantic_ai_calls_tools(url, server, model, openai):
    ai = pytest.importorskip("pydantic_ai")
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    server.script = calls_tool
    async with openai.AsyncOpenAI(api_key="none", base_url=f"{url}/v1", max_retries=0) as client:
        provider = OpenAIProvider(openai_client=client)
        agent = ai.Agent(OpenAIChatModel(model, provider=provider))
        requests = []

        @agent.tool_plain
        def weather(city: str) -> str:
            requests.append(city)
            return "rain"

        assert (await agent.run("What is the weather?")).output == "It rains in Oslo."
        async with agent.run_stream("What is the weather?") as stream:
            assert await stream.get_output() == "It rains in Oslo."
        assert requests == ["Oslo", "Oslo"]
        server.script = lambda body, n: "Hello to you."
        plain = ai.Agent(OpenAIChatModel("acme/guide", provider=provider))
        assert (await plain.run("Hello?")).output == "Hello to you."


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("npm") is None, reason="there is no Node here")
def test_the_openai_package_of_node(url, server, model, tmp_path):
    source = Path(__file__).parent / "node"
    folder = tmp_path / "node"
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("node_modules"))
    subprocess.run(["npm", "ci", "--no-audit", "--no-fund"], cwd=folder, check=True)
    server.script = lambda body, n: None if body.get("response_format") else "Hello to you."
    done = subprocess.run(
        ["node", "clients.mjs", f"{url}/v1", model], cwd=folder, capture_output=True, text=True
    )
    assert (done.stdout.strip(), done.returncode) == ("all is well", 0), done.stderr
