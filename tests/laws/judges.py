"""A way to run each judge: its text, the files that it reads, and a row that it can score.

Every law that runs judges takes them from here. A judge that asks no model answers the same under
every fault of an endpoint, and is left out where only models matter (`asks`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]

PLAIN: Row = {
    "id": "norway",
    "input": "What is the capital of Norway?",
    "candidates": ["Oslo.", "Bergen, I think."],
}
REFERRED: Row = {**PLAIN, "reference": "Oslo is the capital of Norway."}
GROUNDED: Row = {**REFERRED, "context": "Oslo is the capital of Norway. Bergen is a city there."}
FACTUAL: Row = {**GROUNDED, "candidates": ["It is Oslo.", "In 1990 it was Bergen."]}
ACTED: Row = {
    "id": "trip",
    "messages": [
        {"role": "user", "content": "Which city is the capital of Norway?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "call_1",
                    "type": "function",
                    "function": {"name": "look_up", "arguments": '{"country": "Norway"}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "Oslo"},
        {"role": "assistant", "content": "It is Oslo."},
    ],
}
RULES = "rules: [{kind: keywords, all: [Oslo]}, {kind: must_not, pattern: think, gate: false}]\n"
GRADING_PROMPT = "Question: {input}\nAnswer: {output}\nIs the answer good?\n"
OWN_METRIC = 'def starts(output, label):\n    return 1.0 if output.startswith("O") else 0.0\n'


@dataclass(frozen=True)
class JudgeRecipe:
    """A judge that can be run.

    Attributes:
        text: Its text. MODEL stands for the scripted server's model.
        row: A row that it can score.
        files: The files that it reads.
        asks: Whether it calls a model.
    """

    text: str
    row: Row = field(default_factory=lambda: PLAIN)
    files: Mapping[str, str] = field(default_factory=dict)
    asks: bool = True


JUDGES: Mapping[str, JudgeRecipe] = {
    "debate:PROFILE": JudgeRecipe("debate"),
    "jury:PROFILE": JudgeRecipe("jury"),
    "single": JudgeRecipe("single"),
    "escalation:PROFILE": JudgeRecipe("escalation"),
    "probe": JudgeRecipe("probe"),
    "checklist": JudgeRecipe("checklist"),
    "trajectory": JudgeRecipe("trajectory", ACTED),
    "investigator": JudgeRecipe("investigator+looks=2", ACTED),
    "reference": JudgeRecipe("reference", REFERRED),
    "pairwise": JudgeRecipe("pairwise"),
    "decide": JudgeRecipe("decide"),
    "faithfulness": JudgeRecipe("faithfulness", GROUNDED),
    "answer-relevance": JudgeRecipe("answer-relevance"),
    "context-recall": JudgeRecipe("context-recall", GROUNDED),
    "context-precision": JudgeRecipe("context-precision", GROUNDED),
    "instruction-likelihood": JudgeRecipe("instruction-likelihood"),
    "embedding@MODEL": JudgeRecipe("embedding@MODEL-embeddings", REFERRED),
    "metric:NAME": JudgeRecipe("metric:contains", {**PLAIN, "reference": "Oslo"}, asks=False),
    "metric:FILE.py:FUNCTION": JudgeRecipe(
        "metric:own.py:starts", REFERRED, {"own.py": OWN_METRIC}, asks=False
    ),
    "look:length": JudgeRecipe("look:length", asks=False),
    "look:facts": JudgeRecipe("look:facts", FACTUAL, asks=False),
    "rules:FILE.yaml": JudgeRecipe("rules:rules.yaml", files={"rules.yaml": RULES}, asks=False),
    "checks": JudgeRecipe(
        "checks", {**PLAIN, "checks": ["not: icontains: lyon", "rubric: It names a city."]}
    ),
    "prompt:FILE": JudgeRecipe(
        "prompt:grade.md+labels=good=1,bad=0", files={"grade.md": GRADING_PROMPT}
    ),
    "hybrid:FILE.yaml:JUDGE": JudgeRecipe("hybrid:rules.yaml:probe", files={"rules.yaml": RULES}),
    "cascade:BELOW:FIRST,SECOND": JudgeRecipe("cascade:0.9:probe,single"),
    "FILE.judge": JudgeRecipe("fitted.judge"),
}
"""Each judge by its form in `textevolve judges list`. The file of the fitted one is made by
`judges fit` (`fit_judge`), since only that command writes it."""

OPTIONS_OF_JUDGES: Mapping[str, JudgeRecipe] = {
    "single+readout=verbalized": JudgeRecipe("single+readout=verbalized"),
    "single+readout=logprob-weighted": JudgeRecipe("single+readout=logprob-weighted"),
    "single+readout=after-argument": JudgeRecipe("single+readout=after-argument"),
    "single+readout=decide": JudgeRecipe("single+readout=decide"),
    "decide+pairwise": JudgeRecipe("decide+pairwise"),
    "decide+choice": JudgeRecipe("decide+choice"),
    "pairwise+rules": JudgeRecipe("pairwise+rules"),
    "prompt:FILE+logprobs": JudgeRecipe(
        "prompt:grade.md+numbers=1-3+logprobs", files={"grade.md": GRADING_PROMPT}
    ),
}
"""Further ways in which a judge reads a model's answers."""

METRICS: Mapping[str, JudgeRecipe] = {
    "exact": JudgeRecipe("metric:exact", {**PLAIN, "reference": "Oslo."}, asks=False),
    "contains": JudgeRecipe("metric:contains", {**PLAIN, "reference": "Oslo"}, asks=False),
    "regex": JudgeRecipe("metric:regex:Os", asks=False),
    "numeric": JudgeRecipe(
        "metric:numeric",
        {**PLAIN, "candidates": ["It has 12.", "It has 13."], "reference": "12"},
        asks=False,
    ),
    "json-schema": JudgeRecipe(
        "metric:json-schema:s.json",
        {**PLAIN, "candidates": ['{"a": 1}', "Bergen"]},
        {"s.json": '{"type": "object", "required": ["a"]}'},
        asks=False,
    ),
    "edit-distance": JudgeRecipe("metric:edit-distance", REFERRED, asks=False),
    "rouge-l": JudgeRecipe("metric:rouge-l", REFERRED, asks=False),
    "rouge-n": JudgeRecipe("metric:rouge-n", REFERRED, asks=False),
    "bleu": JudgeRecipe("metric:bleu", REFERRED, asks=False),
    "gleu": JudgeRecipe("metric:gleu", REFERRED, asks=False),
    "chrf": JudgeRecipe("metric:chrf", REFERRED, asks=False),
    "tool-called": JudgeRecipe("metric:tool-called:look_up", ACTED, asks=False),
    "tool-sequence": JudgeRecipe("metric:tool-sequence:look_up", ACTED, asks=False),
    "tool-args": JudgeRecipe('metric:tool-args:look_up={"country": "Norway"}', ACTED, asks=False),
    "max-steps": JudgeRecipe("metric:max-steps:5", ACTED, asks=False),
    "no-error": JudgeRecipe("metric:no-error", ACTED, asks=False),
}
"""Each built-in metric by its name."""
