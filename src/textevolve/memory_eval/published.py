"""Read public data sets of memories in their published forms: LoCoMo, LongMemEval, PersonaMem and
BEAM. Users fetch the files themselves; HaluMem's form is that of `dataset.py`.

All questions become those of a session: they are asked once it was fed. They have answers and no
memory points, so question answering is measured alone.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, count, pairwise, zip_longest
from pathlib import Path
from typing import Any, TypeAlias

from textevolve.errors import InputError
from textevolve.json_texts import as_array, as_object, parse_printed
from textevolve.reach import allowed_path
from textevolve.rows import STANDARD_INPUT, read_rows

Data: TypeAlias = dict[str, Any]
"""A user in HaluMem's form, before it is checked."""

UNKNOWN = "unknown"
"""The answer to a question that nothing in the dialogues answers."""
LOCOMO_TYPES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
"""The categories of LoCoMo, by their numbers in its files."""
OPEN_DOMAIN = 3
ADVERSARIAL = 5
"""The category whose answers have an explanation after a semicolon, and that without answers."""
PAGE = 2**18
"""The number of characters of a file that are read at once."""
BETWEEN = " \t\r\n,"
"""The characters between the values of a list."""
DECODER = json.JSONDecoder()
WHICH = "Which answer fits me best?"
BEAM_ANSWERS = ("answer", "ideal_response", "ideal_answer", "ideal_summary", "expected_compliance")
"""The fields of a question of BEAM that may hold the expected answer."""


def read_published(path: str) -> Iterator[Data] | None:
    """Return the users of a public data set; None if the file has none of the published forms.

    PersonaMem: its `questions_*.csv`, with `shared_contexts_*.jsonl` beside it. BEAM: the
    `chat.json` of a chat or a folder of chats, with `probing_questions/` beside each.

    Raises:
        InputError: a file beside it is missing, or cannot be read. OSError: the file cannot be.
    """
    if path == STANDARD_INPUT:
        return None
    file = Path(path)
    if file.name == "chat.json" or Path(allowed_path(path)).is_dir():
        return _read_beam(file)
    if file.suffix == ".csv":
        return _read_personamem(file)
    if file.suffix != ".json":
        return None

    samples = _stream(file)
    try:
        first = as_object(next(samples, None))
    except InputError:
        return None  # the reader of JSON lines names the place
    for field, read in (("haystack_sessions", _read_longmemeval), ("qa", _read_locomo)):
        if field in first:
            return map(read, chain([first], map(as_object, samples)), count(1))
    return None


def _stream(file: Path) -> Iterator[Any]:
    """Yield the values of the list that a file of JSON holds, or of a file without a list, one at a
    time: LongMemEval has up to 2.7 GB.

    Raises:
        InputError: a value is no JSON, or the list has no end. OSError: the file cannot be read.
    """
    number = 0

    with open(allowed_path(str(file)), encoding="utf-8-sig", errors="surrogateescape") as text:
        buffer = text.read(PAGE).lstrip()
        closing = "]" if buffer.startswith("[") else ""
        buffer = buffer.removeprefix("[")
        while buffer := buffer.lstrip(BETWEEN) or text.read(PAGE).lstrip(BETWEEN):
            if buffer[0] == closing:
                if buffer[1:].strip() or text.read(PAGE).strip():
                    raise InputError(f"{file}: something follows its list of {number:,} values")
                return
            try:
                value, end = DECODER.raw_decode(buffer)
            except ValueError as error:
                # Twice as much each time, so that a long value is not parsed too often.
                more = text.read(max(PAGE, len(buffer)))
                if not more:
                    reason = f"value {number + 1:,} is cut off or no JSON ({error})"
                    raise InputError(f"{file}: {reason}") from None
                buffer += more
                continue
            number += 1
            yield value
            buffer = buffer[end:]

    if closing:
        raise InputError(f"{file}: is cut off after value {number:,} of its list")


def _turns(messages: object, time: object) -> list[Data]:
    """Return messages as turns, without those of the system. `time`: of messages without one. The
    marks of BEAM behind a text, such as "->-> 1,2", are left out."""
    return [
        {
            "role": message.get("role"),
            "content": re.sub(r"\s*->->\s*[\d,]+\s*$", "", str(message.get("content"))),
            "timestamp": message.get("time_anchor") or time,
        }
        for message in map(as_object, as_array(messages))
        if message.get("role") != "system"
    ]


def _flatten(lists: object) -> list[Any]:
    return list(chain.from_iterable(map(as_array, as_array(lists))))


def _read_locomo(sample: Data, place: int) -> Data:
    """Read a conversation of two named people, both of whom are users. The questions are asked at
    the end; nothing answers the adversarial ones."""
    conversation = as_object(sample.get("conversation", sample))
    sessions: list[Data] = []
    texts: dict[Any, str] = {}
    for number in count(1):
        if (turns := conversation.get(f"session_{number}")) is None:
            break
        dialogue: list[Data] = []
        for turn in map(as_object, as_array(turns)):
            caption = turn.get("blip_caption")
            picture = f" [shows a picture: {caption}]" if caption else ""
            text = f"{turn.get('speaker')}: {turn.get('text')}{picture}"
            texts[turn.get("dia_id")] = text
            dialogue.append({"role": "user", "content": text})
        time = conversation.get(f"session_{number}_date_time")
        sessions.append({"dialogue": _turns(dialogue, time)})

    questions: list[Data] = []
    for question in map(as_object, as_array(sample.get("qa"))):
        category = question.get("category", 0)
        answer = UNKNOWN if category == ADVERSARIAL else question.get("answer")
        if category == OPEN_DOMAIN:
            answer = str(answer).split(";")[0]
        evidence = [texts[id] for id in as_array(question.get("evidence")) if id in texts]
        kind = LOCOMO_TYPES.get(category, "")
        questions.append(
            {**question, "answer": answer, "evidence": evidence, "question_type": kind}
        )

    return {"uuid": sample.get("sample_id", place), "sessions": _ask_last(sessions, questions)}


def _ask_last(sessions: Sequence[Data], questions: Sequence[Data]) -> list[Data]:
    """Return the sessions, with the questions after the last one."""
    return [*sessions[:-1], {**sessions[-1], "questions": questions}] if sessions else []


def _read_longmemeval(sample: Data, place: int) -> Data:
    """Read one question with its own history of sessions."""
    histories = as_array(sample.get("haystack_sessions"))
    dates = as_array(sample.get("haystack_dates"))[: len(histories)]
    sessions = [
        {"dialogue": _turns(messages, date)} for messages, date in zip_longest(histories, dates)
    ]
    messages = map(as_object, _flatten(histories))
    question = {
        "question": f"(Today is {sample.get('question_date')}.) {sample.get('question')}",
        "answer": sample.get("answer"),
        "evidence": [message["content"] for message in messages if message.get("has_answer")],
        "question_type": sample.get("question_type"),
    }
    id = str(sample.get("question_id", place))
    if id.endswith("_abs"):
        question |= {"answer": UNKNOWN, "question_type": "abstention"}

    return {"uuid": id, "sessions": _ask_last(sessions, [question])}


def _read_personamem(file: Path) -> Iterator[Data] | None:
    """Read the contexts of PersonaMem, each as one user."""
    rows = [row for _, row in read_rows(str(file), "question", lambda _: True)]
    if "shared_context_id" not in rows[0]:
        return None
    contexts_file = file.with_name(f"{file.stem.replace('questions', 'shared_contexts')}.jsonl")
    contexts: Data = {}
    for _, context in read_rows(str(contexts_file), "context", lambda _: False):
        contexts |= context
    by_context: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        by_context[row["shared_context_id"]].append(row)

    return (_cut_context(id, as_array(contexts.get(id)), by_context[id]) for id in by_context)


def _cut_context(id: str, messages: Sequence[Any], rows: Sequence[Mapping[str, Any]]) -> Data:
    """Cut a context at the places of its questions, each of which is asked once the messages before
    its place were fed, with its options."""
    asked: defaultdict[int, list[Data]] = defaultdict(list)
    for row in rows:
        options = as_array(parse_printed(row["all_options"])) or [row["all_options"]]
        letter = row["correct_answer"]
        question = {
            "question": "\n".join([row["user_question_or_message"], WHICH, *map(str, options)]),
            "answer": next((each for each in options if str(each).startswith(letter)), letter),
            "question_type": row.get("question_type"),
        }
        asked[int(row["end_index_in_shared_context"])].append(question)
    ends = sorted(asked)
    sessions = [
        {"dialogue": _turns(messages[start:end], None), "questions": asked[end]}
        for start, end in pairwise([0, *ends])
    ]

    return {"uuid": id, "sessions": sessions}


def _read_beam(path: Path) -> Iterator[Data]:
    chats = [path] if path.is_file() else sorted(path.glob("**/chat.json"))
    if not chats:
        raise InputError(f"{path}: has no chat.json, as folders of BEAM have")
    return map(_read_chat, chats)


def _read_chat(file: Path) -> Data:
    """Read a chat of BEAM, each batch as one session. The reference of an answer is followed by its
    rubric, by which BEAM grades."""
    sessions = [
        {"dialogue": _turns(_flatten(batch.get("turns")), batch.get("time_anchor"))}
        for batch in map(as_object, _stream(file))
    ]
    probing = _stream(file.parent / "probing_questions" / "probing_questions.json")
    questions: list[Data] = []
    for ability, listed in as_object(next(probing, None)).items():
        for question in map(as_object, as_array(listed)):
            answers = [question[name] for name in BEAM_ANSWERS if question.get(name)]
            rubric = [f"- {line}" for line in as_array(question.get("rubric"))]
            answer = "\n".join([*answers[:1], *rubric])
            questions.append({**question, "answer": answer, "question_type": ability})

    folder = file.parent
    id = f"{folder.parent.name}/{folder.name}"
    return {"uuid": id, "sessions": _ask_last(sessions, questions)}
