"""Made users: what they promise to every judge that compares strings."""

from textevolve.memory_eval.synthesis import UNKNOWN, synthesise

USERS = list(synthesise(4, 40))


def spoken(session):
    return "\n".join(turn.content for turn in session.dialogue)


def all_points(user):
    return [(session, point) for session in user.sessions for point in session.points]


def test_every_fact_stands_word_for_word_in_its_session_and_was_never_said_before():
    for user in USERS:
        answers: list[str] = []
        for session in user.sessions:
            assert len({point.index for point in session.points}) == len(session.points)
            for point in session.points:
                assert point.content in spoken(session)
                if point.source != "interference":
                    assert point.content not in "\n".join(answers)
            answers.append(spoken(session))


def test_no_fact_contains_another_and_no_interference_is_ever_true():
    for user in USERS:
        true = [p.content for _, p in all_points(user) if p.source != "interference"]
        wrong = {p.content for _, p in all_points(user) if p.source == "interference"}
        assert len(set(true)) == len(true)
        assert not wrong & set(true)
        assert not any(a in b for a in {*true, *wrong} for b in {*true, *wrong} if a != b)


def test_questions_are_answered_by_their_evidence_or_by_nothing():
    for user in USERS:
        answer = ""
        current: dict[str, str] = {}
        for session in user.sessions:
            answer += spoken(session)
            for point in session.points:
                for original in point.originals:
                    del current[original]
                if point.source == "primary":
                    current[point.content] = point.content
            for question in session.questions:
                assert all(fact in current for fact in question.evidence)
                if question.answer == UNKNOWN:
                    assert question.evidence == ()
                    assert question.question not in answer
                else:
                    parts = question.answer.split(" and ")
                    assert len(parts) == len(question.evidence)
                    pairs = zip(parts, question.evidence, strict=True)
                    assert all(value in fact for value, fact in pairs)
