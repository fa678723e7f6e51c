"""A long text in a script with a token for each sign is summarised by a model with a small context:
each part is made to fit before it is sent, and none is refused first."""

import json

import pytest
from asked import record

from textevolve.llm.testing import Answer

CONTEXT = 4096
REFUSAL = {
    "error": {
        "message": f"This model's maximum context length is {CONTEXT} tokens.",
        "type": "invalid_request_error",
        "code": "context_length_exceeded",
    }
}
JAPANESE = "昨日は東京で会議が開かれ、新しい計画が決まりました。"
THAI = "น้ำขึ้นน้ำลงเกิดจากแรงดึงดูดของดวงจันทร์ "
CHINESE = "潮汐是由月球和太阳的引力共同作用而产生的海水周期性涨落现象。"
ENGLISH = "The tides are the regular rise and fall of the sea. "
GERMAN = "Größere Flüsse führen übers Jahr gewöhnlich mehr Süßwasser. "


def numbered(sentence):
    """Return about 20,000 signs of which no two parts are equal."""
    return "".join(f"{n} {sentence}" for n in range(20_000 // len(sentence)))


def summarise(cli, home, server, model, text):
    """Return the bodies of the requests of which an endpoint with a token for each sign, four of
    ASCII, takes those that fit; and how many it refused."""
    refused = []

    def answer(body):
        prompt = body["messages"][0]["content"]
        ascii_signs = sum(map(str.isascii, prompt))
        tokens = ascii_signs // 4 + len(prompt) - ascii_signs
        if tokens + body["max_tokens"] > CONTEXT:
            refused.append(tokens)
            return Answer(status=400, body=json.dumps(REFUSAL).encode())
        return "Short."

    bodies = record(server, answer)
    (home / "text.txt").write_text(text)
    options = ("--budget", "200", "--context", str(CONTEXT), "-m", model)
    outcome = cli("summarize", "text.txt", *options)
    assert outcome.code == 0, outcome.err
    return bodies, len(refused)


@pytest.mark.parametrize("sentence", [JAPANESE, THAI, CHINESE, ENGLISH + 3 * JAPANESE])
def test_no_part_is_above_the_context(cli, home, server, model, sentence):
    text = numbered(sentence)
    bodies, refused = summarise(cli, home, server, model, text)
    assert refused == 0
    prompts = "".join(body["messages"][0]["content"] for body in bodies)
    assert prompts.count(sentence.strip()[-10:]) == text.count(sentence.strip()[-10:])


@pytest.mark.parametrize("sentence", [ENGLISH, GERMAN])
def test_latin_texts_have_as_few_parts_as_before(cli, home, server, model, sentence):
    bodies, _ = summarise(cli, home, server, model, numbered(sentence))
    assert len(bodies) == 6
