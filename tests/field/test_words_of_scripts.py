"""Users score, count, search and cut texts in scripts with vowel signs or without spaces, or with
letters in Unicode's decomposed form.

The right values are counted by hand from the words of each text; those of BLEU for Chinese are of
sacrebleu's own tokenizer for Chinese.
"""

import unicodedata

import pytest
from sacrebleu import sentence_bleu

from textevolve import InputError
from textevolve.loops.attempt import text_similarity
from textevolve.metrics.label_metrics import grade, open_metric
from textevolve.node_eval.evaluators import similarity
from textevolve.store.memory_search_sqlite import query_words, words_to_find
from textevolve.texts.patterns import compile_pattern, is_found
from textevolve.texts.placeholders import check_spelling, fill
from textevolve.texts.prose import (
    cut_at_seam,
    excerpt,
    has_phrase,
    split_sentences,
    split_text,
    split_words,
)

FLAG = "\U0001f1f3\U0001f1f4"
FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"


def decompose(text):
    return unicodedata.normalize("NFD", text)


def score(metric, output, label):
    return grade(open_metric(metric), output, label).score


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("मेरी बेटी डॉक्टर है", 4),
        ("আমার ছেলে ভালো আছে", 4),
        ("என் மகன் இன்று", 3),
        ("نمی\u200cخواهم بروم", 2),
        ("Donau\u00addampf", 1),
        ("我住在北京", 5),
        ("Er sagt: don't, 3.5 mother-in-law", 5),
        ("____", 0),
    ],
)
def test_words_are_counted(text, number):
    assert len(split_words(text)) == number
    assert len(split_words(decompose(text))) == number


@pytest.mark.parametrize(
    ("output", "label", "right"),
    [
        ("मेरी बेटी", "मेरा बेटा", 0.0),
        ("राम की किताब", "राम का किताब", 2 / 3),
        ("我们明天去看海", "我们明天去看海吧", 2 * 7 / 15),
        ("วันนี้", "วันนี้", 1.0),
        ("請稍等", "我们明天去看海吧", 0.0),
        ("STRASSE", "Straße", 1.0),
        ("İZMİR yolu", "izmir yolu", 1.0),
        ("Tôi ăn cơm", decompose("Tôi ăn cơm"), 1.0),
    ],
)
def test_rouge_compares_words(output, label, right):
    assert score("rouge-l", output, label) == pytest.approx(right)


@pytest.mark.parametrize(
    ("output", "label"),
    [
        ("我们明天去看大海", "我们明天去看海吧"),
        ("他用iPhone 15，拍了3张照片。", "他用 iPhone 15，拍了三张照片。"),
        ("他说：“Hello World，你好！”", "他说：“Hello world，你好！”"),
        ("该公司有１２０名员工。", "该公司有120名员工。"),
    ],
)
def test_bleu_is_that_for_chinese(output, label):
    right = sentence_bleu(output, [label], use_effective_order=True, tokenize="zh").score / 100
    assert score("bleu", output, label) == pytest.approx(right)
    assert 0 < right < 1


@pytest.mark.parametrize(
    ("output", "label", "right"),
    [
        ("IŞIK", "ışık", 1),
        ("İYİ", "iyi", 1),
        ("I AM HERE", "i am here", 1),
        ("kız", "kiz", 0),
        ("ΟΔΟΣ", "οδος", 1),
    ],
)
def test_capitals_are_ignored(output, label, right):
    assert score("exact:ignore-case", output, label) == right
    assert score("contains:ignore-case", f"«{output}»", label) == right


def test_letters_and_their_marks_differ():
    assert score("exact", decompose("café"), "café") == 1
    assert score("contains", decompose("Ein Café."), "Café") == 1
    assert score("contains", decompose("Ein Café."), "Cafe") == 0
    assert score("exact", "10²", "102") == 0
    assert score("regex:^{label}$", decompose("café"), "café") == 1
    assert is_found(compile_pattern(decompose("café$")), "Un café")


@pytest.mark.parametrize(
    ("text", "phrase", "is_there"),
    [
        ("वह रामायण है", "राम", False),
        ("राम आया", "राम", True),
        ("我的女儿住在北京", "女儿", True),
        ("我的女儿住在北京", "儿子", False),
        ("使用GPT模型", "GPT", True),
        ("使用GPTs模型", "GPT", False),
        ("ฉันกินปลา", "กิน", True),
        ("ฉันกินปลา", "ก", False),
        ("ASP.NET", ".NET", False),
        ("C++ and\nmore", "C++ and more", True),
    ],
)
def test_phrases_are_whole_words(text, phrase, is_there):
    assert has_phrase(text, phrase) is is_there


def test_steps_without_spaces_are_similar():
    assert similarity("我住在北京", "我住在上海") == pytest.approx(3 / 5)
    assert text_similarity("我住在北京", "我住在上海") == pytest.approx(3 / 5)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("आज धूप है। कल वर्षा होगी।", 2),
        ("আজ রোদ।কাল বৃষ্টি।", 2),
        ("هل تسمع؟ نعم.", 2),
        ("آج دھوپ ہے۔ کل بارش ہوگی۔", 2),
        ("今日は晴れ。「明日は雨。」と言った。", 3),
        ("ሰላም። ደህና።", 2),
        ("It is 3.5 m. He said “no.” Then yes!", 3),
    ],
)
def test_sentences_end_by_script(text, number):
    assert len(split_sentences(text)) == number


@pytest.mark.parametrize("sign", ["ที่", "क्षीं", "e\u0302\u0301", FLAG, FAMILY, "한"])
def test_texts_are_cut_between_signs(sign):
    text = decompose(sign) * 100
    sign = decompose(sign)
    pieces = [
        *split_text(text, 50),
        cut_at_seam(text, 50),
        excerpt(text, 100).split("\n[")[0],
        excerpt(text, 100).split("]\n")[1],
    ]
    assert "".join(pieces[:-3]) == text
    assert [piece.replace(sign, "") for piece in pieces] == [""] * len(pieces)


def test_columns_are_found_in_both_forms():
    assert fill("{größe} {{ größe }} {x}", {decompose("größe"): "9"}) == "9 9 {x}"
    assert fill(decompose("{größe}"), {"größe": "9"}) == "9"
    check_spelling("{प्रश्न}", ["प्रश्न"], "prompt")
    with pytest.raises(InputError, match="प्रश्न"):
        check_spelling("{प्रशन}", ["प्रश्न"], "prompt")


def test_older_memories_are_found():
    # An earlier version put pieces into the index, which were cut at each vowel sign.
    assert words_to_find("बेटी") == ["बेटी"]
    assert {"बेटी", "ब", "ट"} <= set(query_words("बेटी"))
    assert query_words("tea at five") == ["tea", "at", "five"]
    assert words_to_find("Čafé שָׁלוֹם") == ["cafe", "שלום"]
