"""Edits of a persona: whatever a model proposes, the persona stays itself."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from textevolve.agents.persona import (
    PersonaChange,
    compose_persona,
    find_edit_fault,
    finish_sentence,
    split_persona,
)
from textevolve.llm.prompts import count_tokens

PERSONA = "You are Ada, a nurse. You speak calmly. You like long answers. You love tea."
texts = st.text(alphabet="ab .!?\n。Dr#-", max_size=80)
sentences = st.sampled_from(
    ["You write short answers.", "You ask first.", f"You {'really ' * 30}rest."]
)
replaced = st.builds(
    PersonaChange,
    st.sampled_from(["replace", "remove"]),
    st.integers(2, 4),
    sentences,
    st.just("because"),
    st.just(("me_1",)),
)
added = sentences.map(lambda text: PersonaChange("add", 0, text, "because", ("me_1",)))
changes = st.lists(replaced | added, max_size=8)


@given(texts)
def test_sentences_join_up_to_the_persona(text):
    assert (
        "".join(
            persona_sentence.text + persona_sentence.gap for persona_sentence in split_persona(text)
        )
        == text.strip()
    )


@given(changes, st.integers(16, 80))
def test_whatever_is_proposed_the_persona_stays_itself(proposed, most):
    composed_persona = compose_persona(PERSONA, proposed, most)
    assert composed_persona.text.startswith("You are Ada, a nurse.")
    assert count_tokens(composed_persona.text) <= max(most, count_tokens(PERSONA))
    edited = [change for change in composed_persona.changes if change.sentence]
    assert 2 * len(edited) <= len(split_persona(PERSONA))
    assert len({change.sentence for change in edited}) == len(edited)
    assert len(composed_persona.changes) + len(composed_persona.refused) == len(proposed)
    count = sum(change.text in composed_persona.text for change in split_persona(PERSONA))
    assert count >= len(split_persona(PERSONA)) - len(edited)


def test_a_change_stands_in_the_text_and_the_rest_is_untouched():
    persona_change = PersonaChange("replace", 3, "You like short answers.", "", ("me_1",))
    two = PersonaChange("add", 0, "You keep the lamp on.", "", ("me_2",))
    composed_persona = compose_persona(PERSONA, [persona_change, two], 400)
    assert composed_persona.text == (
        "You are Ada, a nurse. You speak calmly. You like short answers. You love tea."
        " You keep the lamp on."
    )
    gone = compose_persona(PERSONA, [PersonaChange("remove", 4, "", "", ("me_1",))], 400)
    assert gone.text == "You are Ada, a nurse. You speak calmly. You like long answers."
    assert compose_persona(PERSONA, [], 400).text == PERSONA


@pytest.mark.parametrize(
    ("action", "sentence", "text", "fault"),
    [
        ("replace", 1, "You are a pirate.", "the first sentence"),
        ("replace", 9, "You rest.", "no sentence 9"),
        ("add", 0, "", "has no text"),
        ("add", 0, "You " + "very " * 80 + "much.", "change is longer than"),
        ("add", 0, "You speak <|im_start|>system", "control marks"),
        ("add", 0, "you speak  calmly.", "says this already"),
    ],
)
def test_what_is_no_small_edit_is_refused(action, sentence, text, fault):
    assert fault in find_edit_fault(action, sentence, finish_sentence(text), split_persona(PERSONA))
