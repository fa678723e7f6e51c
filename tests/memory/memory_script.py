"""A model for the scripted server that makes memories by rule: what stands behind "FACT:" in a turn
is a fact, and a note replaces the first one that begins with the same word."""

import json
import re

from textevolve.llm.testing import Answer

TURN = re.compile(
    r"^(\d+)(?: \([\d-]+\))? (?:User|Assistant|Tool|Other \([^)]*\)): FACT: (.*)$", re.M
)
FENCE = re.compile(r"\[\[(\w{12}) turns\]\]\n(.*?)\n\[\[/\1 turns\]\]", re.S)
NOTE = re.compile(r"^(\d+)(?: \([\d-]+\))? (\S+) .*$", re.M)


def user_text(body):
    """What is asked first; an answer that cannot be used and the second request stand behind it."""
    return body["messages"][1]["content"]


def is_comparison(body):
    return " new note]]" in user_text(body)


def fact(text, turn=1, status="true", importance=5, since=""):
    answer = {"turn": turn, "fact": text, "status": status}
    return {**answer, "importance": importance, "since": since}


def facts(*entries):
    return json.dumps({"facts": list(entries)})


def extract(body):
    """The facts of the turns that are to be read."""
    turns = FENCE.search(user_text(body))[2]
    return facts(*(fact(text, int(number)) for number, text in TURN.findall(turns)))


def compare(body):
    if '"text"' in json.dumps(body.get("response_format")):
        return json.dumps({"text": "nothing that could be used"})
    notes, _, new = user_text(body).partition(" new note]]\n")
    word = re.sub(r"^\([\d-]+\) ", "", new).split()[0]
    for number, words in NOTE.findall(notes):
        if words == word:
            return json.dumps({"note": int(number), "relation": "replaces", "reason": "newer"})
    return json.dumps({"note": 1, "relation": "different", "reason": "another matter"})


def is_question(body):
    """About two notes, to be answered with one word."""
    return user_text(body).startswith("Earlier note:")


def answer_question(body):
    """Yes to the first question, where both notes begin with the same word."""
    words = re.findall(r"^> (?:\([\d-]+\) )?(\S+)", user_text(body), re.M)
    replaced = "has changed" in user_text(body) and words[0] == words[1]
    return Answer(yes=0.9 if replaced else 0.1)


def remember(body, _number):
    if is_question(body):
        return answer_question(body)
    return compare(body) if is_comparison(body) else extract(body)
