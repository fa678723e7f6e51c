"""A persona is a file of Markdown, as tools of agents write them: front matter, a heading, lists.

The sentence that says who the agent is stands below its heading, and stays, also in a rewrite. A
new sentence has the mark of the line that it replaces, and all other lines are as they were.
"""

import pytest
from memory_world import make_world, personas_of

from recorded.memory_answers import answers
from textevolve.agents.persona import PersonaPlan, split_persona, text_to_edit
from textevolve.store import kinds
from textevolve.store.repository import Store

HEADINGS = ("# Who You Are", "---\ntitle: Soul\n---\n\n# Who You Are", "# Soul\n\n## Who You Are")
REST = """

_You are a careful gardener. You grow._

## Limits

- Private things stay private.
* You like long answers.
1) Ask before you act.
> Water early.

Be good to talk to."""


@pytest.mark.parametrize("heading", HEADINGS)
def test_sentence_below_the_heading_is_the_first(heading):
    first, *more = split_persona(heading + REST)
    assert first.text == f"{heading}\n\n_You are a careful gardener."
    assert "".join(each.text + each.gap for each in (first, *more)) == heading + REST
    assert text_to_edit(heading + REST, PersonaPlan(rewrite=True)) == first.text


@pytest.mark.parametrize(
    "heading", ["# Soul", "---\na: b", "---", "---\na: b\n---\n# Soul", "#" * 40]
)
def test_headings_alone_are_one_sentence(heading):
    assert [each.text for each in split_persona(heading)] == [heading]


@pytest.mark.parametrize(
    ("old", "said", "new"),
    [
        ("* You like long answers.", "You like short answers", "* You like short answers."),
        ("* You like long answers.", "- You like short answers.", "* You like short answers."),
        ("1) Ask before you act.", "Ask twice.", "1) Ask twice."),
        ("> Water early.", "Water late.", "> Water late."),
        ("Be good to talk to.", "Be brief.", "Be brief."),
    ],
)
def test_new_sentences_have_the_mark_of_the_line(cli, server, model, home, old, said, new):
    persona = HEADINGS[0] + REST
    make_world(home / "store.db", server.url)
    resources = Store(str(home / "store.db"))
    resources.write(kinds.update, kinds.AGENTS, "default", "ada", {"persona": persona})
    resources.close()
    place = [each.text for each in split_persona(persona)].index(old) + 1
    change = {"because": [2], "reason": "so", "action": "replace", "sentence": place, "text": said}
    server.script = answers(changes=[change])

    outcome = cli("agents", "evolve", "ada", "-m", model)

    assert outcome.code == 0, outcome.err
    assert personas_of(home / "store.db")[-1].spec["persona"] == persona.replace(old, new)


def test_many_signs_take_no_time():
    text = "#" * 5000 + "\n" + "You are Ada. You rest."
    assert [each.text for each in split_persona(text)][1:] == ["You rest."]
