"""What is made of the states that clients send."""

import json

from textevolve.server.decisions.deciders import ReadState, read_state, state_text


def test_an_input_and_an_output_under_any_of_their_names_are_a_case():
    for given in (
        {"input": "Why?", "output": "So."},
        {"question": "Why?", "answer": "So."},
        {"instruction": "Why?", "response": "So."},
        {"Prompt": "Why?", "completion": "So."},
    ):
        assert read_state(given) == ReadState("So.", "Why?")
        assert read_state(json.dumps(given)) == ReadState("So.", "Why?")


def test_the_test_case_of_deepeval_is_a_case():
    given = {
        "test_case": {
            "input": "Why?",
            "actual_output": "So.",
            "expected_output": "Hence.",
            "retrieval_context": ["One.", "Two."],
        }
    }
    assert read_state(given) == ReadState("So.", "Why?", "Hence.", "One.\n\nTwo.")


def test_of_a_conversation_the_last_reply_is_judged():
    turns = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "So."}]
    expected = ReadState("So.", "Why?")
    assert read_state(turns) == expected
    assert read_state({"messages": turns}) == expected
    assert read_state({"turns": turns}) == expected


def test_any_other_state_is_judged_whole():
    for given in ("So.", "{not JSON", ["a", "b"], {"subject": "Why?", "body": "So."}):
        assert read_state(given) == ReadState(state_text(given))
    several = {"input": "Why?", "output_1": "So.", "output_2": "Thus."}
    assert read_state(several) == ReadState(state_text(several))
    unanswered = [{"role": "user", "content": "Why?"}]
    assert read_state(unanswered) == ReadState("Why?")


def test_a_state_cannot_set_what_a_judge_does():
    read = read_state({"input": "Why?", "output": "So.", "parameters": {"rounds": 99}})
    assert read.input == 'Why?\n\nparameters: {"rounds":99}'
