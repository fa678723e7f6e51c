"""Models repeat themselves up to their limit of tokens: lines of marks, blank lines, thoughts.
What reads an answer takes time in proportion to it; the first would take a quarter of an hour."""

from textevolve.messages import split_thought


def test_blank_lines_before_the_end_of_a_thought_in_a_text():
    text = "\n" * 1_000_000 + "it ends with </think> so."
    assert split_thought(text) == ("", text)
    assert split_thought("plan" + "\n" * 1_000_000 + " </think>\nSeven.") == ("plan", "Seven.")


def test_many_thoughts():
    thought, answer = split_thought("<think>a</think>\n" * 60_000 + "Seven.")
    assert thought.count("a") == 60_000
    assert answer == "Seven."
