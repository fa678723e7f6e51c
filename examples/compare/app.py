"""An application to compare: it answers questions from notes.

textevolve compare --target python:examples.compare.app.reply ...
textevolve compare --target "cmd:python examples/compare/app.py" ...
"""

import json
import sys

NOTES = ("4 boxes of 6 pens are 24, and 3 of them are lost: 21.", "Sorted: 5, 9, 12.", "Oslo.")


def reply(question: str) -> dict[str, object]:
    """Answer a question by the note that shares most words with it."""
    words = set(question.lower().split())
    note = max(NOTES, key=lambda text: len(words & set(text.lower().split())))
    answer = note.rstrip(".").rpartition(": ")[2]
    call = {"name": "search", "arguments": {"query": question}, "result": note}
    return {"answer": answer, "contexts": [note], "tool_calls": [call]}


if __name__ == "__main__":
    print(json.dumps(reply(json.load(sys.stdin)["question"])))
