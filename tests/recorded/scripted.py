"""What the scripted server says while figures are recorded, and while they are compared.

Every answer is drawn from the texts of the case (the response that is judged, the memory that is
expected, the row that is filled in) and from who speaks in which round: never from the date, the
order of calls, or the wording around these texts, so that a prompt that is worded anew keeps its
answer.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from memory.memory_script import FENCE, compare, extract, is_comparison, is_question
from memory.memory_script import answer_question as tell_notes_apart
from recorded.memory_answers import answers
from textevolve.llm.testing import Answer

FENCED = re.compile(r"\[\[(\w+) ([^\]\n]+)\]\]\n(.*?)\n?\[\[/\1 \2\]\]", re.DOTALL)
HELPS = ("Give the number alone.", "Add carefully.")


def answer(body: Mapping[str, Any], _number: int) -> Answer | str:
    """The script of every recording. A prompt that it cannot read is refused, and not left waiting
    for an answer."""
    try:
        return say(body)
    except (LookupError, StopIteration) as error:
        refusal = {"error": {"message": f"the script of the recordings: {error!r}"}}
        return Answer(status=400, body=json.dumps(refusal).encode())


def say(body: Mapping[str, Any]) -> Answer | str:
    """By what is asked for, the kind of answer."""
    messages = body["messages"]
    last = messages[-1]["content"]
    schema = ((body.get("response_format") or {}).get("json_schema") or {}).get("schema")
    if (memory := work_on_memories(body, last)) is not None:
        return memory
    if schema is not None:
        fields = set(schema["properties"])
        if "argument" in fields:
            return argue(messages, schema)
        if any(field.startswith("Response ") for field in fields):
            return remark(messages, fields)
        if "template" in fields or "instructions" in fields:
            return edit_template(messages, fields)
        if "input" in fields:
            return refine_input(messages)
        return judge_memory(messages, fields)
    if body.get("max_tokens") == 1:
        return choose(messages, body.get("seed"))
    if "word for word" in last or 'beginning with "I"' in last:
        return speak(messages, last)
    if last.startswith("What is "):
        return fill_in(last)
    if "memories" in texts_of(last):
        return answer_from_memory(last)
    return write_text(last, body.get("seed"))


def work_on_memories(body: Mapping[str, Any], last: str) -> Answer | str | None:
    """Facts of a dialogue, which of two notes holds, insights, changes of a persona, a passage in
    another voice; None for any other prompt."""
    if len(body["messages"]) > 1:
        if is_question(body):
            return tell_notes_apart(body)
        if is_comparison(body):
            return compare(body)
        if FENCE.search(last):
            return extract(body)
    return answers()(body, 0)


def draw(*parts: object) -> float:
    """A number from 0 to 1 that belongs to these parts."""
    digest = hashlib.sha256("\0".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


def worth(text: str) -> float:
    """How good a response is, 0 to 1: one that says it is good mostly is."""
    return 0.8 * draw("worth", text) + 0.2 * ("good" in text.lower())


def texts_of(text: str) -> dict[str, str]:
    """The texts between marks, by the marks' names."""
    return {name: output for _, name, output in FENCED.findall(text)}


def quoted(text: str) -> list[str]:
    """Each run of lines that begin with a sign, as one text."""
    found = re.findall(r"(?:^> .*\n?)+", text, re.MULTILINE)
    return [re.sub(r"^> ", "", one, flags=re.MULTILINE).strip() for one in found]


def argue(asked: list[dict[str, str]], schema: Mapping[str, Any]) -> str:
    """A debater's turn: its scores are about what the responses are worth to it, and two more for
    the one that is shown first. On texts with "plain" all agree, so that the debate ends early."""
    spoken_answer = asked[1]["content"]
    texts = texts_of(spoken_answer)
    agent = re.findall(r"^You are (.+?)\. You ", spoken_answer, re.MULTILINE)[-1]
    round = re.findall(r"This is round (\d+)", spoken_answer)[-1]
    first_text = next(text for name, text in texts.items() if name.startswith("response"))
    fields: dict[str, Any] = {"argument": f"The {agent} finds this in round {round}."}
    for label in schema["properties"]:
        if label == "argument":
            continue
        text = texts[label[0].lower() + label[1:]]
        part: dict[str, Any] = {
            "strengths": f"It has {len(text)} signs.",
            "weaknesses": f"Too few for the {agent}.",
            "instructions": f"Say more, as the {agent} asks.",
        }
        liked = 2 * (text == first_text and "plain" not in text)
        if names := components_of(schema):
            scores = {name: score(text, agent, round, name) for name in names}
            part["scores"] = {name: min(10, value + liked) for name, value in scores.items()}
        fields[label] = part
    return break_some(json.dumps(fields), texts["input"], agent, round, again=len(asked) > 2)


def speak(asked: list[dict[str, str]], last: str) -> str:
    """A debater's words in plain text: first a response, copied, then what it finds in it."""
    if "word for word" in last:
        return quoted(last)[-1]
    agent = re.findall(r"^You are (.+?)\. You ", asked[1]["content"], re.MULTILINE)[-1]
    return f"I, the {agent}, count {len(quoted(asked[1]['content'])[-1])} signs here."


def remark(asked: list[dict[str, str]], fields: set[str]) -> str:
    """A debater's remarks after an argument in plain text."""
    agent = re.findall(r"^You are (.+?)\. You ", asked[1]["content"], re.MULTILINE)[-1]
    part = {
        "strengths": "It is there.",
        "weaknesses": f"Too few for the {agent}.",
        "instructions": f"Say more, as the {agent} asks.",
    }
    return json.dumps(dict.fromkeys(sorted(fields), part))


def break_some(text: str, input: str, agent: str, round: str, *, again: bool) -> str:
    """The answer, broken for some inputs: to be asked for again, without scores, or in a fence."""
    if "tides" in input and (agent, round) == ("Critic", "1") and not again:
        return text[:-40]
    if "volcano" in input and (agent, round) == ("Supporter", "1"):
        return "I cannot say."
    if "fenced" in input and (agent, round) == ("Neutral Observer", "1"):
        return f"My answer:\n```json\n{text}\n```"
    return text


def components_of(schema: Mapping[str, Any]) -> list[str]:
    """The names under which scores are wanted; none where they are asked for later."""
    part: Mapping[str, Any] = schema
    for name in ("Response 1", "scores"):
        part = resolve(resolve(part, schema)["properties"].get(name, {}), schema)
        if not part:
            return []
    return list(part["properties"])


def resolve(part: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    return schema["$defs"][part["$ref"].rpartition("/")[2]] if "$ref" in part else part


def score(text: str, agent: str, round: str, component: str) -> int:
    """All agents see another side of a text in each round, and each of them its own."""
    if "plain" in text:
        return round_off(10 * draw("plain", text, component))
    seen = 0.6 * (draw(text, round) - 0.5) + 0.5 * (draw(text, agent, round, component) - 0.5)
    return round_off(10 * min(1.0, max(0.0, worth(text) + seen)))


def round_off(value: float) -> int:
    return int(value + 0.5)


def choose(asked: list[dict[str, str]], seed: object) -> Answer:
    """P(yes) of a question on one text, or P(first) of two; a judge by pairs likes the first."""
    last = asked[-1]["content"]
    question = last.rstrip().splitlines()[-1]
    texts = [text for _, name, text in FENCED.findall(last) if "response" in name]
    texts = texts or quoted(last)[-1:]
    own_value = draw(*texts, question, seed) - 0.5
    if len(texts) == 2:
        first_value, second_value = map(worth, texts)
        yes = 0.6 + 0.6 * (first_value - second_value) + 0.6 * own_value
    else:
        yes = worth(texts[0]) + 0.6 * own_value
    return Answer(yes=round(min(0.97, max(0.03, yes)), 3))


def judge_memory(asked: list[dict[str, str]], fields: set[str]) -> str:
    """A verdict on a memory or an answer, drawn from the text that is judged alone."""
    texts = texts_of(asked[1]["content"])
    new_fields: dict[str, Any] = {"reason": "So it is.", "reasoning": "So it is."}
    if "score" in fields and draw("broken", texts["expected memory"]) < 0.1:
        return "No idea."
    if "score" in fields:
        new_fields["score"] = int(3 * draw("integrity", texts["expected memory"]))
    elif "accuracy_score" in fields:
        new_fields["accuracy_score"] = int(3 * draw("accuracy", texts["kept memory"]))
        new_fields["is_included_in_golden_memories"] = draw("included", texts["kept memory"]) < 0.7
    else:
        known = ("question", "answer to be checked")
        own_names = [texts[name] for name in known if name in texts] or [texts["expected memory"]]
        kinds = ("Correct", "Hallucination", "Omission")
        new_fields["evaluation_result"] = kinds[int(3 * draw("class", *own_names))]
    return json.dumps({k: v for k, v in new_fields.items() if k in fields})


def answer_from_memory(last: str) -> str:
    texts = texts_of(last)
    known = texts["memories"] != "(nothing)" and draw("known", texts["question"]) < 0.7
    return f"It is {int(100 * draw('answer', texts['question']))}." if known else "unknown"


def fill_in(last: str) -> str:
    """The answer to a filled-in template: the more of what helps it holds, the oftener right."""
    n = int(re.findall(r"What is (\d+)", last)[0])
    helped = sum(line in last for line in HELPS)
    return str(2 * n) if draw("sum", n) < 0.3 + 0.35 * helped else f"about {n}"


def edit_template(asked: list[dict[str, str]], fields: set[str]) -> str:
    """Instructions for a template, or the template with the instructions written into it."""
    texts = texts_of(next(m["content"] for m in reversed(asked) if texts_of(m["content"])))
    if "template" not in fields:
        idle = f"Be {('brief', 'kind', 'clear')[int(3 * draw(texts['template']))]}."
        return json.dumps({"instructions": [idle, *HELPS]})
    lines = [line.partition(". ")[2] for line in texts["instructions"].splitlines()]
    return json.dumps({"template": "\n".join([texts["template"], *lines])})


def refine_input(asked: list[dict[str, str]]) -> str:
    """The input with one more level of detail."""
    spoken_answer = next(m["content"] for m in reversed(asked) if texts_of(m["content"]))
    level = max(map(int, re.findall(r"Level (\d)", spoken_answer)), default=0) + 1
    original = next(iter(texts_of(spoken_answer).values()))
    return json.dumps({"input": f"{original} Level {level}: name {level} good reasons."})


def write_text(last: str, seed: object) -> str:
    """A text for a task, another for each seed; what is revised gets a further sentence."""
    texts = texts_of(last)
    if "answer" in texts:
        return f"{texts['answer']} It is a good point {len(texts['answer'])}."
    first_text = next(iter(texts.values()), last)
    return f"Text {seed} on this: {first_text}"
