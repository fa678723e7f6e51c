"""Reading users: HaluMem's shape as it is, results with more fields, and what is no user."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from textevolve.errors import InputError
from textevolve.llm.model import text_hash
from textevolve.memory_eval.dataset import (
    DialogueTurn,
    Malformed,
    MemoryPoint,
    MemoryQuestion,
    Session,
    User,
    read_users,
    user_to_line,
)


def point(**fields):
    return {
        "index": 1,
        "memory_content": "Kim lives in Lyon.",
        "memory_type": "Persona Memory",
        "memory_source": "primary",
        "is_update": "False",
        "original_memories": [],
        "importance": 0.75,
        "timestamp": "Dec 15, 2025, 08:41:23",
    } | fields


def session(**fields):
    turn = {"role": "user", "content": "I moved.", "timestamp": "Dec 15, 2025", "dialogue_turn": 0}
    return {
        "start_time": "Dec 15, 2025, 06:11:23",
        "end_time": "Dec 15, 2025, 06:21:23",
        "dialogue_turn_num": 1,
        "dialogue": [turn],
        "memory_points": [point()],
        "dialogue_token_length": 3,
    } | fields


def line(uuid="u1", **fields):
    return {"uuid": uuid, "persona_info": "Name: Kim", "sessions": [session()]} | fields


@pytest.fixture
def read(tmp_path):
    """Reads lines, each a text, bytes or what becomes JSON."""

    def run(*lines):
        path = tmp_path / "data.jsonl"
        texts = [each if isinstance(each, str | bytes) else json.dumps(each) for each in lines]
        raw = [text.encode() if isinstance(text, str) else text for text in texts]
        path.write_bytes(b"\n".join(raw) + b"\n")
        return list(read_users(str(path)))

    return run


@pytest.mark.parametrize("half", ["\\ud800", "\\ud83d\\\\ude00"])
def test_half_a_surrogate_pair_is_replaced_and_the_user_kept(read, half):
    text = json.dumps(line()).replace("I moved.", f"I \\ud83d\\ude00 {half} moved.")
    (user,) = read(text)
    answer = half.replace("\\\\", "\\")
    answer = "\ufffd" + answer[6:]
    assert user.sessions[0].dialogue[0].content == f"I \U0001f600 {answer} moved."
    assert user.sha256 == text_hash(user_to_line(user))
    escaped = json.dumps(line(sessions=[session(memory_points=[point(memory_content="\\ud800")])]))
    (user,) = read(escaped)  # an escaped backslash: a text that only speaks of one
    assert user.sessions[0].points[0].content == "\\ud800"


def first_point(found):
    return found[0].sessions[0].points[0]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"is_update": "True"}, {"is_update": True}),
        ({"importance": "0.5"}, {"importance": 0.5}),
        ({"importance": None, "memory_source": "interference"}, {"importance": 0.0}),
        ({"memory_type": "RELATIONSHIP memory"}, {"type": "relationship"}),
        ({"original_memories": "Kim lived."}, {"originals": ("Kim lived.",)}),
        ({"index": None}, {"index": 1}),
        ({"memories_from_system": ["a", {"memory": "b"}]}, {"returned": ("a", "b")}),
    ],
)
def test_fields_of_a_point_in_the_forms_they_come_in(read, fields, expected):
    found = first_point(read(line(sessions=[session(memory_points=[point(**fields)])])))
    assert {name: getattr(found, name) for name in expected} == expected


def test_a_result_file_of_the_benchmark(read):
    request = {"question": "Where?", "answer": "Lyon", "search_duration_ms": 200}
    request |= {"context": "all", "system_response": "In Lyon.", "response_duration_ms": 9}
    found = point(is_update="True", memories_from_system=["x"], search_duration_ms=50)
    scored = session(
        memory_points=[found],
        questions=[request],
        extracted_memories=["x", {"memory": "y"}, "", {"memory": " "}],
        add_dialogue_duration_ms=1500,
    )
    unscored = {"is_generated_qa_session": True, "add_dialogue_duration_ms": 500}
    (user,) = read({"uuid": "u", "user_name": "Kim", "sessions": [scored, unscored]})
    first, second = user.sessions
    assert first.extracted == ("x", "y")
    assert first.points[0].returned == ("x",)
    assert first.questions[0].recorded_answer == "In Lyon."
    assert (first.add_seconds, first.searching) == (1.5, 0.25)
    assert second.is_generated_qa
    assert (second.index, second.dialogue, second.points) == (1, (), ())
    assert (second.extracted, second.add_seconds, second.search_seconds) == (None, 0.5, None)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ('{"uuid": "u7", "sessions": [', "Invalid JSON"),
        (line(sessions=[session(dialogue=None)]), "sessions[0].dialogue: Field required"),
        ("[" * 100_000, "JSON"),
    ],
)
def test_what_is_no_user_is_reported_with_its_line_and_passed_over(read, bad, reason):
    text = read(line("good"), "", bad, line("after"))
    assert [each.id for each in (text[0], text[2])] == ["good", "after"]
    wrong = text[1]
    assert isinstance(wrong, Malformed)
    assert (wrong.line, text[2].line) == (3, 4)
    assert reason in wrong.reason
    assert "\n" not in wrong.reason


def test_an_id_that_came_before_is_no_second_user(read):
    first, second = read(line("u"), line("u"))
    assert isinstance(first, User)
    assert second == Malformed(2, "uuid: 'u' is also used in line 1")


@pytest.mark.parametrize("content", [None, "not json"])
def test_a_file_without_a_user(tmp_path, content):
    path = tmp_path / "data.jsonl"
    if content is not None:
        path.write_text(content)
    with pytest.raises(
        InputError, match=r"data\.jsonl: (the file has no users|cannot be read)"
    ) as caught:
        list(read_users(str(path)))
    assert "\n" not in str(caught.value)


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NAME = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
TEXTS = st.lists(NAME.filter(str.strip), max_size=3).map(tuple)
TIME = st.just("") | st.datetimes().map(str)
SECONDS = st.none() | st.integers(0, 10**6).map(lambda ms: ms / 1000)
POINTS = st.builds(
    MemoryPoint,
    index=st.integers(0, 99),
    content=NAME,
    type=st.sampled_from(["event", "persona", "relationship"]),
    source=st.sampled_from(["primary", "secondary", "interference", "system"]),
    importance=st.floats(0, 1),
    is_update=st.booleans(),
    originals=TEXTS,
    returned=st.none() | TEXTS,
    search_seconds=SECONDS,
)
QUESTIONS = st.builds(
    MemoryQuestion,
    question=NAME,
    answer=TEXT,
    evidence=TEXTS,
    difficulty=TEXT,
    type=TEXT,
    recorded_answer=st.none() | TEXT,
    search_seconds=SECONDS,
)
SESSIONS = st.builds(
    Session,
    index=st.just(0),
    dialogue=st.lists(st.builds(DialogueTurn, NAME, TEXT, TIME), max_size=3).map(tuple),
    points=st.lists(POINTS, max_size=3).map(tuple),
    questions=st.lists(QUESTIONS, max_size=2).map(tuple),
    is_generated_qa=st.booleans(),
    extracted=st.none() | TEXTS,
    add_seconds=SECONDS,
    search_seconds=SECONDS,
)


@given(NAME, st.lists(SESSIONS, min_size=1, max_size=3))
def test_a_user_that_is_written_is_read_as_the_same(tmp_path_factory, id, sessions):
    numbered = tuple(replace(each, index=place) for place, each in enumerate(sessions))
    user = User(id, numbered)
    path = tmp_path_factory.mktemp("data") / "data.jsonl"
    path.write_text(user_to_line(user) + "\n", encoding="utf-8")
    (found,) = read_users(str(path))
    assert found == replace(user, line=1, sha256=text_hash(user_to_line(user)))
