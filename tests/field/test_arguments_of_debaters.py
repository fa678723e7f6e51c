"""Debaters on a small model all say the same sentence, quote words that nobody wrote, and speak of
the codes in their prompt.

A debate on one's own machine showed three personas with one identical argument: each agent was
shown the argument of the one before it, at temperature 0, with one seed for all.
"""

import json
import re
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from field.debaters import (
    AGENTS,
    CANDIDATES,
    SENTENCES,
    arguing,
    asks_for_words,
    debate,
    is_argued,
    speaker_of,
)
from textevolve.debate.arguing import HEARD_WORDS
from textevolve.debate.profile import load_profile, override
from textevolve.debate.quoting import (
    MOST_QUOTED,
    copied_words,
    drop_inventions,
    is_quoted,
    match_words,
    quote_first,
    share_of_candidates,
    verbatim,
)
from textevolve.debate.result import NOTHING_TO_ADD, DebateResult
from textevolve.llm.testing import Answer, ScriptedServer
from textevolve.report.blocks import Report, Table
from textevolve.report.html import html_fragment
from textevolve.report.terminal import print_report
from textevolve.studies.judged_report import (
    describe_move,
    describe_verdict,
    explain_winner,
    show_case,
)


async def test_each_argument_quotes_first():
    async with ScriptedServer(arguing) as server:
        result = await debate(server)
    reasons = [reason for _, reason in SENTENCES.values()]
    quoted = [
        # No more than a third of the argument.
        "Trains are late now and then",
        "Take the bus from stop four",
        "from stop four, which leaves",  # four words in a row of which nobody has spoken
    ]
    assert [turn.argument for turn in result.turns] == [
        f'"{words}" {reason}' for words, reason in zip(quoted, reasons, strict=True)
    ]


async def test_the_prompt_has_no_codes():
    async with ScriptedServer(arguing) as server:
        result = await debate(server, rounds=2, protocol="rebuttal")
        bodies = [body for body in server.requests if is_argued(body)]
    for body in bodies:
        text = json.dumps(body["messages"])
        assert result.nonce not in text
        assert "[[" not in text
        assert "response_format" not in body


async def test_turns_have_their_own_seeds():
    async with ScriptedServer(arguing) as server:
        await debate(server, rounds=2, protocol="blind-first", argument_words=30)
        arguments = [body for body in server.requests if is_argued(body)]
        probes = [body for body in server.requests if body.get("max_tokens") == 1]
    assert {body["temperature"] for body in arguments} == {0.7}
    assert {body["temperature"] for body in probes} == {0}
    first = {speaker_of(body): body["seed"] for body in arguments[:6]}
    assert len(set(first.values())) == 3


async def test_local_debates_begin_blind():
    async with ScriptedServer(arguing) as server:
        result = await debate(server, rounds=2)
        bodies = [body for body in server.requests if asks_for_words(body)]
        first = [body for body in bodies if "said:" not in json.dumps(body)]
    assert load_profile("general").protocol == "auto"
    assert result.profile.protocol in ("rebuttal", "sequential")
    if result.profile.protocol == "rebuttal":
        assert [speaker_of(body) for body in first] == list(AGENTS)


async def test_a_rebuttal_shows_one_argument():
    async with ScriptedServer(arguing) as server:
        result = await debate(server, rounds=2, protocol="rebuttal", argument_words=30)
        later = [body for body in server.requests if "That leaves out" in json.dumps(body)]
    assert result.profile.protocol == "rebuttal"
    assert {speaker_of(body) for body in later} == set(AGENTS)
    for body in later:
        assert json.dumps(body).count(" said:") == 1


def labels_of(server, agent):
    """Return the responses of which the agent was asked to copy a line."""
    questions = [body for body in server.requests if is_argued(body) and asks_for_words(body)]
    return [
        re.search(r"a line of Response (\d)", body["messages"][-1]["content"])[1]
        for body in questions
        if speaker_of(body) == agent
    ]


async def test_agents_copy_from_unlike_responses():
    async with ScriptedServer(arguing) as server:
        await debate(server, argument_words=30)
        labels = [labels_of(server, agent)[0] for agent in AGENTS]
    assert sorted(set(labels)) == ["1", "2"]
    assert labels[0] == labels[2]


async def test_a_copy_is_asked_elsewhere():
    fresh = {
        "Critic": "I miss the fare, and nobody has told me whether my ticket is valid there.",
        "Supporter": "My hands would be warm in it, and my colleagues need not begin alone.",
        "Neutral Observer": "Patience costs nothing, yet nine o'clock is a promise to be kept.",
    }
    told = dict.fromkeys(AGENTS, 0)

    def copying_once(body, number):
        if is_argued(body) and not asks_for_words(body):
            agent = speaker_of(body)
            told[agent] += 1
            if told[agent] == 3:
                return Answer(text=fresh[agent])
        return arguing(body, number)

    async with ScriptedServer(copying_once) as server:
        result = await debate(server, rounds=2, protocol="rebuttal", argument_words=30)
        labels = {agent: labels_of(server, agent) for agent in AGENTS}
    assert set(told.values()) == {3}
    for turn in result.turns[3:]:
        assert fresh[AGENTS[turn.agent]] in turn.argument
    for asked in labels.values():
        # Of two responses, the copy in the second round is about the other one than the first.
        assert asked[-1] == asked[0]
        assert len(set(asked)) == 2


async def test_quoted_arguments_are_asked_again():
    def quoting(body, number):
        if is_argued(body) and not asks_for_words(body) and "own words" not in json.dumps(body):
            return Answer(text=f"I read: {CANDIDATES[0]} {CANDIDATES[1]}")
        return arguing(body, number)

    async with ScriptedServer(quoting) as server:
        result = await debate(server, argument_words=30)
    for turn in result.turns:
        assert share_of_candidates(turn.argument, CANDIDATES) <= MOST_QUOTED
        assert SENTENCES[AGENTS[turn.agent]][1] in turn.argument


async def test_a_rebuttal_hears_the_beginning():
    """A small model repeats what it reads last: words of others, and long arguments."""
    reason = "I find that a bus helps at once. " * 8

    def long_winded(body, number):
        if is_argued(body) and not asks_for_words(body):
            return Answer(text=f"{number} {reason}")
        return arguing(body, number)

    async with ScriptedServer(long_winded) as server:
        result = await debate(server, rounds=2, protocol="rebuttal")
        later = [body for body in server.requests if "That leaves out" in json.dumps(body)]
    quoted = [verbatim(turn.argument, CANDIDATES) for turn in result.turns[:3]]
    assert all(quoted)
    assert later
    for body in later:
        heard = body["messages"][-1]["content"].partition("That leaves out")[0]
        assert not any(words in heard for words in quoted)
        assert len(heard.partition("said:")[2].split()) <= HEARD_WORDS + 1


async def test_an_invented_quotation_is_dropped():
    def inventing(body, number):
        answer = arguing(body, number)
        if is_argued(body) and asks_for_words(body):
            return Answer(text="The railway will refund every late passenger.")
        if is_argued(body):
            return Answer(text='I read "we refund every ticket in full". I would rather go by bus.')
        return answer

    async with ScriptedServer(inventing) as server:
        result = await debate(server, argument_words=30)
        questions = [body for body in server.requests if is_argued(body) and asks_for_words(body)]
    assert len(questions) > 3  # each agent was asked again
    assert {turn.argument for turn in result.turns} == {"I would rather go by bus."}


async def test_a_copy_falls_silent():
    def copying(body, number):
        if is_argued(body) and not asks_for_words(body):
            return Answer(text="I say what everybody here says, again and again.")
        return arguing(body, number)

    async with ScriptedServer(copying) as server:
        result = await debate(server, rounds=2, protocol="rebuttal", argument_words=30)
    first = [turn.argument for turn in result.turns if turn.round == 0]
    later = [turn for turn in result.turns if turn.round == 1]
    assert NOTHING_TO_ADD not in first
    assert {turn.argument for turn in later} == {NOTHING_TO_ADD}
    assert all(turn.is_silent and turn.scores for turn in later)
    assert DebateResult.from_json(result.to_json()) == result


async def test_equal_remarks_stand_once():
    remark = {
        "strengths": "It names stop four.",
        "weaknesses": "No fare.",
        "instructions": "Add it.",
    }

    def remarking(body, number):
        if "response_format" in body:
            remarks = {"Response 1": remark, "Response 2": remark}
            return Answer(text=json.dumps(remarks))
        return arguing(body, number)

    async with ScriptedServer(remarking) as server:
        result = await debate(server)
    for feedback in result.feedback:
        assert feedback.strengths == (f"{', '.join(AGENTS)}: It names stop four.",)
        assert len(feedback.weaknesses) == len(feedback.instructions) == 1


async def test_the_winner_is_explained():
    async with ScriptedServer(arguing) as server:
        result = await debate(server, argument_words=30)
    assert (
        describe_verdict(result) == "A won by confidence, +0.70 over B (0.90 against 0.20 in all)"
    )
    assert explain_winner(result) == (
        'Supporter speaks most for A, and quotes A: "Take the bus from stop four".'
    )


async def test_the_heaviest_component_decides():
    """A wide gap of a component that hardly counts did not decide."""
    async with ScriptedServer(arguing) as server:
        result = await debate(server, weights={"accuracy": 0.9, "timeliness": 0.1})
    # Of the components: confidence, relevance, accuracy, completeness, timeliness.
    scores = ((1.0, 1.0, 8.0, 1.0, 9.0), (9.0, 9.0, 6.0, 9.0, 2.0))
    turns = [replace(turn, scores=scores) for turn in result.turns]
    changed = replace(result, turns=tuple(turns))
    assert describe_verdict(changed).startswith("A won by accuracy, +0.20 over B")
    (scores_table,) = tables_of(changed, "Scores")
    # s_norm = (0.9 * 8 + 0.1 * 9) / 5 = 1.62 and (0.9 * 6 + 0.1 * 2) / 5 = 1.12
    assert "s_norm (A 1.62, B 1.12 of 10) lies below the components" in scores_table.note


async def test_changed_minds_are_a_table():
    async with ScriptedServer(arguing) as server:
        result = await debate(server, rounds=2, protocol="rebuttal", argument_words=30)
    stated = replace(result, profile=override(result.profile, {"readout": "verbalized"}))
    assert any("Nobody changed" in getattr(block, "text", "") for block in show_case(stated))
    turns = list(stated.turns)
    turns[1] = replace(turns[1], scores=tuple(reversed(turns[1].scores)))
    changed = replace(stated, turns=tuple(turns))
    (minds,) = tables_of(changed, "Who changed whose mind")
    ((agent, round_number, scores, favourite, answered),) = minds.rows
    assert (agent, round_number, favourite) == ("Supporter", 2, "B → A")
    assert scores.startswith("A 2.0 → 9.0, B 9.0 → 2.0")
    assert answered in ("Critic", "Neutral Observer")


async def test_weighted_scores_lie_within_their_parts():
    """Half the weight of all components is no lower score."""
    async with ScriptedServer(arguing) as server:
        half = dict.fromkeys(("accuracy", "timeliness"), 0.5)
        result = await debate(server, rounds=2, protocol="rebuttal", weights=half)
    (move, *_) = result.moves
    assert (move.before, move.after) == (pytest.approx((9.0, 2.0)), pytest.approx((9.0, 2.0)))
    (debates,) = [block for block in show_case(result) if getattr(block, "title", "") == "Debate"]
    turns = [block for block in debates.blocks[0].blocks if isinstance(block, Table)]
    assert turns[0].rows[0][-1] == pytest.approx(9.0)


def tables_of(result, title):
    blocks = show_case(result)
    return [block for block in blocks if isinstance(block, Table) and block.title == title]


async def test_a_debate_stands_open_on_a_page():
    async with ScriptedServer(arguing) as server:
        result = await debate(server)
    report = Report("", describe_verdict(result), list(show_case(result)))
    page = html_fragment(report)
    assert re.search(r"<details [^>]*open>\s*<summary><h2>Debate</h2>", page)
    terminal = StringIO()
    print_report(report, Console(file=terminal, width=100))
    assert "I would reach work" not in terminal.getvalue()
    assert "2 more parts not shown here" in terminal.getvalue()


async def test_a_move_names_what_it_answers():
    async with ScriptedServer(arguing) as server:
        result = await debate(server, rounds=2, protocol="rebuttal", argument_words=30)
    turns = list(result.turns)
    # The Supporter finds the second answer better in its first turn.
    turns[1] = replace(turns[1], scores=tuple(reversed(turns[1].scores)))
    changed = replace(result, turns=tuple(turns))
    moves = {move.agent: move for move in changed.moves}
    assert list(moves) == list(AGENTS)
    assert moves["Critic"].answers == "Supporter"
    assert describe_move(moves["Critic"]) == (
        "Critic: no score changed, after the argument of Supporter"
    )
    assert describe_move(moves["Supporter"]).startswith("Supporter: A 2.0 → 9.0, B 9.0 → 2.0")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (CANDIDATES[1], "Trains are late now and then, so be"),
        ('He said "take the BUS from stop four" twice', "take the BUS from stop four"),
        ("“be patient and wait”", "be patient and wait"),
        ("the bus from stop five", "the bus from stop"),
        ("bus and train", ""),
        ("", ""),
    ],
)  # fmt: skip
def test_copied_words_stand_in_candidates(answer, words):
    assert copied_words(answer, CANDIDATES) == words


def test_signs_without_spaces_are_words():
    candidates = ["今天列车九点出发，请在二号站台等候。"]
    assert copied_words("我选：列车九点出发", candidates) == "列车九点出发"
    assert copied_words("列车九点出发", candidates, ["“列车九点出发”"]) == ""
    assert copied_words("รถไฟออกเวลาเก้าโมงเช้า", ["วันนี้รถไฟออกเวลาเก้าโมงเช้า"])


@pytest.mark.parametrize(
    ("reason", "argument"),
    [
        (
            "I would go by bus, since that helps me at once, whatever the train does next.",
            '"Take the bus from stop four, which leaves" I would go by bus, since that helps me at'
            " once, whatever the train does next.",
        ),
        ("I would go by bus at once.", '"Take the bus from" I would go by bus at once.'),
        ('I like "the bus from stop four" best.', 'I like "the bus from stop four" best.'),
    ],
)
def test_quotations_are_a_third_at_most(reason, argument):
    quotation = "Take the bus from stop four, which leaves"
    assert quote_first(quotation, reason, CANDIDATES) == argument
    assert quote_first("", reason, CANDIDATES) == reason


def test_short_candidates_are_quoted_whole():
    assert copied_words("It is: Yes, four.", ["Yes, four.", "No."]) == "Yes, four"
    assert verbatim('I like "Yes, four." best', ["Yes, four.", "No."]) == "Yes, four."


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("„Der Zug fährt um neun Uhr“", "Heute gilt: der Zug fährt um neun Uhr."),
        ("「列车九点出发」", "今天列车九点出发。"),
        ("« le train part à neuf heures »", "Demain le train part à neuf heures."),
        ("“It’s late, so take it”", "It's late, so take it."),
    ],
)
def test_quotation_marks_of_languages(text, source):
    assert verbatim(f"{text} ...", [source])
    assert drop_inventions(text, ["other"]) != text
    assert is_quoted(text, [source])


def test_similar_arguments_differ_in_words():
    assert match_words("The bus leaves at nine.", "the BUS leaves at nine").ratio() == 1
    assert match_words("The bus leaves at nine.", "I would rather wait here").ratio() < 0.3


def test_an_invented_tail_is_no_quotation():
    text = 'It says "take the bus from stop four, also at night". I would go.'
    assert drop_inventions(text, CANDIDATES) == "I would go."
    assert copied_words(text, CANDIDATES) == "take the bus from stop four"


def test_breaks_and_marks_change_no_quotation():
    source = "The fare is\n  two  euros — “one way”, as ever."
    assert is_quoted('two euros — "one way", as ever', [source])
    assert not is_quoted("three euros — one way", [source])
