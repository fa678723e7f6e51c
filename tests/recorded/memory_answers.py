"""What a model says to each kind of prompt that works on memories."""

import json
import re

from textevolve.llm.testing import Answer


def prompt_of(body):
    return "".join(message["content"] for message in body["messages"])


def answers(
    questions=("What does Mrs. Okafor need?", "How does Mr. Lind like answers?"),
    insights=None,
    changes=None,
    chosen=None,
    relation="different",
):
    """A script: what the model says to each kind of prompt."""

    def script(body, _number):
        prompt = prompt_of(body)
        if "salient high-level questions" in prompt:
            return json.dumps({"questions": list(questions)})
        if "What follows from these memories" in prompt:
            hits = re.search(r"question\]\]\n1\. (.*)", prompt)[1]
            records = [{"insight": f"So it is: {hits}", "because": [1, 2], "importance": 7}]
            return json.dumps({"insights": records if insights is None else insights})
        if "Earlier note:" in prompt:
            hits = "replaces" if "has changed" in prompt else "same"
            return Answer(yes=0.9 if relation == hits else 0.1)
        if "Which further sentences does the persona need" in prompt:
            return json.dumps({"changes": changes})
        if "Which small changes of the persona" in prompt:
            records = [
                {
                    "because": [2],
                    "reason": "Mr. Lind asked.",
                    "action": "replace",
                    "sentence": 3,
                    "text": "You like short answers.",
                }
            ]
            return json.dumps({"changes": records if changes is None else changes})
        if "You choose which changes" in prompt:
            records = [{"change": 1, "same": []}]
            return json.dumps({"chosen": records if chosen is None else chosen})
        if "You retell a passage" in prompt:
            passage = re.search(r"passage\]\]\n(.*?)\n\[\[/", prompt, re.DOTALL)[1]
            return f"I remember: {passage}"
        return None

    return script
