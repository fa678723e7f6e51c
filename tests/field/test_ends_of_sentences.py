"""Personas, arguments, prompts and notes in scripts whose sentences end with other marks than a
full stop, or with no mark at all.

The sentences are counted by hand: each text has one sentence for each of its closing marks.
"""

import pytest

from textevolve.agents.persona import PersonaChange, compose_persona, find_edit_fault, split_persona
from textevolve.debate.deciding import keep_words
from textevolve.debate.quoting import drop_inventions
from textevolve.evaluation import Case
from textevolve.judges.judge import parse_judge
from textevolve.loops.calibration.hill_climbing import _PIECE
from textevolve.texts.prose import split_text

PERSONAS = {
    "Hindi": "तुम आदा हो। तुम धीरे बोलती हो। तुम चाय पीती हो।",
    "Urdu": "تم آدا ہو۔ تم آہستہ بولتی ہو۔ تم چائے پیتی ہو۔",
    "Amharic": "አንቺ አዳ ነሽ። በቀስታ ትናገሪያለሽ። ሻይ ትጠጫለሽ።",
    "Arabic": "أنت آدا. هل تتكلم بهدوء؟ نعم دائما.",
    "Chinese": "你是艾达。你说话很慢。你喜欢茶。",
    "quoted": "你是艾达。你说「好。」你喜欢茶。",
}


@pytest.mark.parametrize("name", PERSONAS)
def test_personas_have_sentences(name):
    persona = PERSONAS[name]
    sentences = split_persona(persona)
    assert len(sentences) == 3
    assert "".join(sentence.text + sentence.gap for sentence in sentences) == persona
    removal = PersonaChange("remove", 3, "", "", ("me_1",))
    assert find_edit_fault("remove", 3, "", sentences) == ""
    assert (
        compose_persona(persona, [removal], 400).text
        == "".join(sentence.text + sentence.gap for sentence in sentences[:2]).rstrip()
    )


@pytest.mark.parametrize("persona", ["You are Ada", "तुम आदा हो", "You are Ada."])
def test_new_sentences_are_apart(persona):
    addition = PersonaChange("add", 0, "You speak softly.", "", ("me_1",))
    composed = compose_persona(persona, [addition], 400).text
    first, second = (sentence.text for sentence in split_persona(composed))
    assert first.rstrip(".") == persona.rstrip(".")
    assert second == "You speak softly."
    assert compose_persona(persona, [], 400).text == persona


def test_arguments_keep_words_of_every_script():
    argument = "这个回答很清楚。它说明了原因和时间。" + "但是它没有说明例外的情况" * 20 + "。"
    assert keep_words(argument, 24) == "这个回答很清楚。它说明了原因和时间。"
    thai = "คำตอบนี้ชัดเจนมาก" * 20
    kept = keep_words(thai, 24).removesuffix(" …")
    assert kept
    assert thai.startswith(kept)
    assert (
        keep_words("यह उत्तर साफ है। यह कारण बताता है। और भी", 8) == "यह उत्तर साफ है। यह कारण बताता है।"
    )
    assert (
        keep_words("It is clear. It names a time. And then more", 8)
        == "It is clear. It names a time."
    )
    assert keep_words('He says "yes." And then more words', 6) == 'He says "yes."'


def test_inventions_leave_other_sentences():
    text = "یہ اچھا ہے۔ وہ «ایک دو تین چار» کہتا ہے۔ یہ صاف ہے۔"
    assert drop_inventions(text, ["کچھ اور"]) == "یہ اچھا ہے۔ یہ صاف ہے۔"


def test_pieces_of_prompts_are_sentences():
    prompt = "请简短回答。只写数字。不要解释。"
    assert [match[0] for match in _PIECE.finditer(prompt)] == [
        "请简短回答。",
        "只写数字。",
        "不要解释。",
    ]


async def test_length_is_that_of_words_in_every_script():
    judge = parse_judge("look:length")
    short, long = "好的。", "我们明天去看海吧然后在那里吃早餐再回家。"
    scores = [(await judge.grade(Case("?", (text,)), text, 0.5)).score for text in (short, long)]
    assert scores[0] < scores[1]


def test_long_lists_are_cut_between_their_parts():
    parts = [f"这是第{number}条规定，员工应当遵守" for number in range(100)]
    pieces = list(split_text("；".join(parts), 100))
    assert "".join(pieces) == "；".join(parts)
    assert all(piece[-1] in "；，" for piece in pieces[:-1])
    assert max(map(len, pieces)) <= 100
