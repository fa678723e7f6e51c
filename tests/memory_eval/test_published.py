"""Public data sets of memories are read in their published forms."""

import csv
import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from textevolve.errors import InputError
from textevolve.memory_eval import dataset
from textevolve.memory_eval.dataset import Malformed, read_users

LOCOMO = {
    "sample_id": "conv-1",
    "conversation": {
        "speaker_a": "Cara",
        "speaker_b": "Milo",
        "session_2_date_time": "10:04 am on 2 June, 2023",
        "session_2": [{"speaker": "Cara", "dia_id": "D2:1", "text": "Rain again."}],
        "session_1_date_time": "1:56 pm on 8 May, 2023",
        "session_1": [
            {"speaker": "Cara", "dia_id": "D1:1", "text": "I ran at the harbour yesterday."},
            {"speaker": "Milo", "dia_id": "D1:2", "text": "Look!", "blip_caption": "a red boat"},
        ],
    },
    "qa": [
        {
            "question": "When did Cara run?",
            "answer": "7 May 2023",
            "evidence": ["D1:1"],
            "category": 2,
        },
        {"question": "What year is it?", "answer": 2023, "evidence": [], "category": 4},
        {"question": "Is Milo rich?", "answer": "Likely; he has a boat", "category": 3},
        {"question": "What did Ann paint?", "adversarial_answer": "a boat", "category": 5},
    ],
}
LONGMEMEVAL = {
    "question_id": "q1",
    "question_type": "temporal-reasoning",
    "question": "When did I move?",
    "answer": "March",
    "question_date": "2023/05/30 (Tue) 10:00",
    "haystack_dates": ["2023/05/20 (Sat) 02:21", "2023/05/21 (Sun) 10:00"],
    "haystack_session_ids": ["s1", "s2"],
    "haystack_sessions": [
        [{"role": "user", "content": "I moved to Tromsø in March.", "has_answer": True}],
        [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hello."}],
    ],
    "answer_session_ids": ["s1"],
}


def write(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")
    return str(path)


def test_locomo_conversations(tmp_path):
    (user,) = read_users(write(tmp_path / "locomo10.json", [LOCOMO]))
    assert user.id == "conv-1"
    turns = [turn for session in user.sessions for turn in session.dialogue]
    assert [(turn.role, turn.content) for turn in turns] == [
        ("user", "Cara: I ran at the harbour yesterday."),
        ("user", "Milo: Look! [shows a picture: a red boat]"),
        ("user", "Cara: Rain again."),
    ]
    assert turns[0].moment.isoformat() == "2023-05-08T13:56:00+00:00"
    assert [(q.type, q.answer) for q in user.sessions[1].questions] == [
        ("temporal", "7 May 2023"),
        ("single-hop", "2023"),
        ("open-domain", "Likely"),
        ("adversarial", "unknown"),
    ]
    assert user.sessions[1].questions[0].evidence == ("Cara: I ran at the harbour yesterday.",)
    assert not user.sessions[0].questions


def test_locomo_in_one_file_each(tmp_path):
    bare = {**LOCOMO["conversation"], "qa": LOCOMO["qa"]}
    (user,) = read_users(write(tmp_path / "26.json", bare))
    assert (user.id, len(user.sessions)) == ("1", 2)


def test_longmemeval_questions(tmp_path):
    abstention = {**LONGMEMEVAL, "question_id": "q1_abs", "answer": "You did not say."}
    users = list(read_users(write(tmp_path / "longmemeval_s.json", [LONGMEMEVAL, abstention])))
    (question,) = users[0].sessions[1].questions
    assert question.question == "(Today is 2023/05/30 (Tue) 10:00.) When did I move?"
    assert (question.answer, question.type) == ("March", "temporal-reasoning")
    assert question.evidence == ("I moved to Tromsø in March.",)
    (unanswerable,) = users[1].sessions[1].questions
    assert (unanswerable.answer, unanswerable.type) == ("unknown", "abstention")


def test_long_files_are_read_one_user_at_a_time(tmp_path):
    path = tmp_path / "longmemeval_m.json"
    sample = {**LONGMEMEVAL, "padding": "x" * 100_000}
    with path.open("w", encoding="utf-8") as file:
        file.write("[\n")
        for number in range(200):
            file.write(json.dumps({**sample, "question_id": f"q{number}"}))
            file.write(",\n" if number < 199 else "\n]\n")

    tracemalloc.start()
    try:
        ids = [user.id for user in read_users(str(path))]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert ids == [f"q{number}" for number in range(200)]
    assert peak < path.stat().st_size / 5


@given(st.lists(st.text(max_size=40), min_size=1, max_size=6), st.integers(1, 30), st.booleans())
def test_pages_change_nothing(tmp_path_factory, texts, page, in_list):
    path = tmp_path_factory.mktemp("pages") / "locomo.json"
    samples = [{**LOCOMO, "sample_id": f"{n} {text}"} for n, text in enumerate(texts)]
    written = json.dumps(samples) if in_list else "\n".join(map(json.dumps, samples))
    path.write_text(written, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dataset, "PAGE", page)
        ids = [user.id for user in read_users(str(path))]
    assert ids == [sample["sample_id"] for sample in samples]


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (',\n{"question_id": "q2", "hay', "value 2 is cut off"),
        (",\n", "is cut off after value 1"),
        ("]\n[", "something follows its list of 1 values"),
    ],
)
def test_cut_files_are_refused(tmp_path, end, reason):
    path = tmp_path / "longmemeval_s.json"
    path.write_text(f"[{json.dumps(LONGMEMEVAL)}{end}", encoding="utf-8")
    users = read_users(str(path))
    assert next(users).id == "q1"
    with pytest.raises(InputError, match=reason):
        list(users)


def test_samples_without_their_fields_are_named(tmp_path):
    entries = list(read_users(write(tmp_path / "longmemeval_s.json", [LONGMEMEVAL, {}, 3])))
    assert [isinstance(entry, Malformed) for entry in entries] == [False, True, True]


def write_personamem(folder, contexts=True):
    rows = [("ctx", 2, "(b)"), ("ctx", 4, "(a)"), ("ctx", 2, "(a)")]
    options = str(["(a) Take tea.", "(b) Take coffee."])
    path = folder / "questions_32k.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        names = ["question_type", "user_question_or_message", "correct_answer", "all_options"]
        writer.writerow([*names, "shared_context_id", "end_index_in_shared_context"])
        for context, end, letter in rows:
            writer.writerow(["recall_facts", "What should I drink?", letter, options, context, end])
    if contexts:
        roles = ("system", "user", "assistant", "user")
        messages = [{"role": role, "content": f"{n}"} for n, role in enumerate(roles)]
        (folder / "shared_contexts_32k.jsonl").write_text(json.dumps({"ctx": messages}) + "\n")
    return str(path)


def test_personamem_asks_at_its_place(tmp_path):
    (user,) = read_users(write_personamem(tmp_path))
    assert [[turn.content for turn in session.dialogue] for session in user.sessions] == [
        ["1"],
        ["2", "3"],
    ]
    asked = [[question.answer for question in session.questions] for session in user.sessions]
    assert asked == [["(b) Take coffee.", "(a) Take tea."], ["(a) Take tea."]]
    assert "(b) Take coffee." in user.sessions[0].questions[0].question


def test_personamem_without_contexts(tmp_path):
    with pytest.raises(InputError, match=r"shared_contexts_32k\.jsonl"):
        list(read_users(write_personamem(tmp_path, contexts=False)))


def write_beam(folder, questions=True):
    turn = [
        {"id": 0, "role": "user", "content": "My code is cobalt. ->-> 1,2"},
        {"id": 1, "role": "assistant", "content": "Noted."},
    ]
    batch = {"batch_number": 1, "time_anchor": "March-15-2024", "turns": [turn]}
    path = write(folder / "100K" / "7" / "chat.json", [batch])
    rubric = {"question": "What is my code?", "answer": "Cobalt", "rubric": ["must state cobalt"]}
    probing = {"information_extraction": [{**rubric, "difficulty": "easy"}]}
    if questions:
        write(folder / "100K" / "7" / "probing_questions" / "probing_questions.json", probing)
    return path


@pytest.mark.parametrize("whole_folder", [True, False])
def test_beam_chats(tmp_path, whole_folder):
    path = write_beam(tmp_path)
    (user,) = read_users(str(tmp_path) if whole_folder else path)
    assert user.id == "100K/7"
    (session,) = user.sessions
    assert session.dialogue[0].content == "My code is cobalt."
    assert session.dialogue[1].moment.date().isoformat() == "2024-03-15"
    (question,) = session.questions
    assert (question.answer, question.type, question.difficulty) == (
        "Cobalt\n- must state cobalt",
        "information_extraction",
        "easy",
    )


def test_beam_without_questions(tmp_path):
    with pytest.raises(InputError, match=r"probing_questions\.json: cannot be read"):
        list(read_users(write_beam(tmp_path, questions=False)))


def test_bad_samples_are_named(tmp_path):
    bad = {**LOCOMO, "sample_id": "conv-2", "qa": [{"question": None, "category": 1}]}
    users = list(read_users(write(tmp_path / "locomo10.json", [LOCOMO, bad])))
    assert isinstance(users[1], Malformed)
    assert users[1].line == 2


def test_lines_in_a_json_file(tmp_path):
    """A file of JSON lines whose name ends with .json is read as before."""
    session = {"dialogue": [{"role": "user", "content": "Hi."}]}
    path = tmp_path / "halumem.json"
    lines = [json.dumps({"uuid": name, "sessions": [session]}) for name in ("a", "b")]
    path.write_text("\n".join(lines), encoding="utf-8")
    assert [user.id for user in read_users(str(path))] == ["a", "b"]


def test_one_command_makes_the_table(tmp_path, cli, server, model):
    """Extraction is not judged, so each question takes two calls: an answer and its judgement."""

    def answer(_body, _number):
        return json.dumps({"answer": "7 May", "reasoning": "so", "evaluation_result": "Correct"})

    server.script = answer
    data = write(tmp_path / "locomo10.json", [LOCOMO])
    run = cli("memory-eval", "run", data, "--system", "context", "-m", model)
    assert run.code == 0, run.err
    assert "temporal: answers correct" in run.out
    assert "the data has no expected memories" in " ".join(run.out.split())
    assert server.calls == 2 * len(LOCOMO["qa"])
