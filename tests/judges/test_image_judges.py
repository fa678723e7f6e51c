"""What judges are shown of images, in which order, and which of them read texts alone."""

from dataclasses import replace

import pytest

from made_images import png
from textevolve.errors import InputError
from textevolve.evaluation import Case, EvaluationResult
from textevolve.images import image_url
from textevolve.judges.opening import Judges
from textevolve.judges.plain import LookJudge
from textevolve.judges.probe import Probe
from textevolve.judges.statements import StatementJudge
from textevolve.llm.client import OpenAIClient
from textevolve.llm.testing import Answer, ScriptedServer

RED, GREEN, BLUE = (image_url(png(colour=c)) for c in ((255, 0, 0), (0, 255, 0), (0, 0, 255)))
NAMES = {RED: "red", GREEN: "green", BLUE: "blue"}
PLAIN = Case("What colour is it?", ("Red.", "Green."), "1", reference="Red.", context="It is red.")
ASKED = replace(PLAIN, images=(RED,))
DRAWN = replace(PLAIN, candidate_images=((GREEN,), (BLUE,)))
BOTH = replace(ASKED, candidate_images=((GREEN,), (BLUE,)))


def images_in(body):
    """The images of each message that has some, in their order."""
    matches = []
    for message in body["messages"]:
        if isinstance(message["content"], list):
            *images, text = message["content"]
            assert text["type"] == "text"
            assert all(set(part) == {"type", "image_url"} for part in images)
            matches.append([NAMES[part["image_url"]["url"]] for part in images])
    return matches


async def judge(kind, case, script=None, **options):
    async with ScriptedServer(script) as server, OpenAIClient(server.url, "scripted") as client:
        evaluation = await Judges("scripted", lambda _: client).open(kind(**options))(case)
    return evaluation, list(server.requests)


def yes(_body, _number):
    return Answer(yes=0.8)


@pytest.mark.parametrize(
    ("case", "seen"),
    [
        (PLAIN, [[], []]),
        (ASKED, [[["red"]], [["red"]]]),
        (DRAWN, [[["green"]], [["blue"]]]),
        (BOTH, [[["red", "green"]], [["red", "blue"]]]),
    ],
)
@pytest.mark.parametrize("options", [{}, {"examples": True}])
async def test_a_probe_sees_the_inputs_images_and_its_candidates(case, seen, options):
    evaluation, records = await judge(Probe, case, yes, **options)
    assert all(isinstance(result, EvaluationResult) for result in evaluation.result)
    each = len(records) // 2
    assert sorted(map(images_in, records)) == sorted(seen * each)


async def test_judges_of_texts_refuse_images_to_judge_and_pass_over_those_of_the_input():
    look = LookJudge()
    assert (await look(ASKED)).result == (await look(PLAIN)).result
    with pytest.raises(InputError, match="reads texts alone, and the candidates have images"):
        await look(DRAWN)
    for kind in StatementJudge.__subclasses__():
        with pytest.raises(InputError, match="reads texts alone"):
            await judge(kind, DRAWN)
