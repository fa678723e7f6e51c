"""Read public data sets of memories in their published forms: LoCoMo, LongMemEval, PersonaMem and
BEAM. Users fetch the files themselves; HaluMem's form is that of `dataset.py`.

All questions become those of a session: they are asked once it was fed. They have answers and no
memory points, so question answering is measured alone.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
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
BEAM_ANSWERS = ("answer", "ideal_response", "ideal_answer", "ideal_summary", "expected_compliance")
"""The fields of a question of BEAM that may hold the expected answer."""


def read_published(path: str) -> Iterator[Data] | None:
    """Return the users of a public data set; None if the file has none of the published forms.

    PersonaMem: its `questions_*.csv`, with `shared_contexts_*.jsonl` beside it. BEAM: the
    `chat.json` of a chat or a folder of chats, with `probing_questions/` beside each.

    Raises:
        InputError: a file beside it is missing, or cannot be read.
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

    samples = as_array(_load(file))  # none of a file of JSON lines
    first = as_object(samples[0]) if samples else {}
    readers: dict[str, Callable[[Data, int], Data]] = {
        "haystack_sessions": _read_longmemeval,
        "qa": _read_locomo,
    }
    reader = next((reader for field, reader in readers.items() if field in first), None)
    if reader is None:
        return None

    return (reader(as_object(sample), place) for place, sample in enumerate(samples, 1))


def _load(file: Path) -> list[Any] | None:
    """Return what a file of JSON holds, in a list if it is none; None if it is not JSON."""
    try:
        value = json.loads(Path(allowed_path(str(file))).read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InputError(f"{file}: cannot be read ({error.strerror})") from None
    except ValueError:
        return None
    return as_array(value) or [value]


def _session(turns: Sequence[Data], questions: Sequence[Data] = ()) -> Data:
    return {"dialogue": list(turns), "questions": list(questions)}


def _read_locomo(sample: Data, place: int) -> Data:
    """Read a conversation of two named people, both of whom are users. The questions are asked at
    the end; nothing answers the adversarial ones."""
    conversation = as_object(sample.get("conversation", sample))
    numbers = sorted(
        int(match[1]) for key in conversation if (match := re.fullmatch(r"session_(\d+)", key))
    )
    sessions: list[Data] = []
    texts: dict[str, str] = {}
    for number in numbers:
        time = conversation.get(f"session_{number}_date_time", "")
        turns: list[Data] = []
        for turn in map(as_object, as_array(conversation[f"session_{number}"])):
            caption = turn.get("blip_caption")
            picture = f" [shows a picture: {caption}]" if caption else ""
            text = f"{turn.get('speaker')}: {turn.get('text', '')}{picture}"
            texts[str(turn.get("dia_id"))] = text
            turns.append({"role": "user", "content": text, "timestamp": time})
        sessions.append(_session(turns))

    for question in map(as_object, as_array(sample["qa"])):
        category = question.get("category", 0)
        answer = UNKNOWN if category == 5 else question.get("answer")
        if category == 3:
            answer = str(answer).split(";")[0].strip()
        sessions[-1]["questions"].append(
            {
                "question": question.get("question"),
                "answer": answer,
                "evidence": [texts[id] for id in as_array(question.get("evidence")) if id in texts],
                "question_type": LOCOMO_TYPES.get(category, str(category)),
            }
        )

    return {"uuid": sample.get("sample_id") or str(place), "sessions": sessions}


def _read_longmemeval(sample: Data, place: int) -> Data:
    """Read one question with its own history of sessions."""
    dates = as_array(sample.get("haystack_dates"))
    sessions: list[Data] = []
    evidence: list[str] = []
    for number, turns in enumerate(as_array(sample["haystack_sessions"])):
        time = dates[number] if number < len(dates) else ""
        messages = [as_object(turn) for turn in as_array(turns)]
        evidence += [message["content"] for message in messages if message.get("has_answer")]
        sessions.append(
            _session(
                [
                    {"role": m.get("role"), "content": m.get("content"), "timestamp": time}
                    for m in messages
                ]
            )
        )

    id = str(sample.get("question_id") or place)
    is_unanswerable = id.endswith("_abs")
    date = sample.get("question_date")
    sessions[-1]["questions"] = [
        {
            "question": f"(Today is {date}.) {sample.get('question')}"
            if date
            else sample["question"],
            "answer": UNKNOWN if is_unanswerable else sample.get("answer"),
            "evidence": evidence,
            "question_type": "abstention" if is_unanswerable else sample.get("question_type", ""),
        }
    ]

    return {"uuid": id, "sessions": sessions}


def _read_personamem(file: Path) -> Iterator[Data] | None:
    """Read the contexts of PersonaMem, each as one user: a question is asked once the messages
    before its place in the context were fed, with its options."""
    rows = [row for _, row in read_rows(str(file), "question", lambda _: True)]
    if "shared_context_id" not in rows[0]:
        return None
    contexts_file = file.with_name(f"{file.stem.replace('questions', 'shared_contexts')}.jsonl")
    contexts: dict[str, Any] = {}
    for _, context in read_rows(str(contexts_file), "context", lambda _: False):
        contexts |= context
    by_context: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        by_context[row["shared_context_id"]].append(row)

    return (
        _cut_context(id, as_array(contexts.get(id)), questions)
        for id, questions in by_context.items()
    )


def _cut_context(id: str, messages: Sequence[Any], questions: Sequence[Mapping[str, Any]]) -> Data:
    sessions: list[Data] = []
    start = 0
    asked: defaultdict[int, list[Data]] = defaultdict(list)
    for question in questions:
        options = as_array(parse_printed(question["all_options"]))
        listed = "\n".join(map(str, options)) or question["all_options"]
        letter = question["correct_answer"]
        message = question["user_question_or_message"]
        right = next((each for each in options if str(each).startswith(letter)), letter)
        asked[int(question["end_index_in_shared_context"])].append(
            {
                "question": f"{message}\nWhich answer fits me best?\n{listed}",
                "answer": right,
                "question_type": question.get("question_type", ""),
            }
        )
    for end, listed_questions in sorted(asked.items()):
        turns = [m for m in map(as_object, messages[start:end]) if m.get("role") != "system"]
        sessions.append(_session(turns, listed_questions))
        start = end

    return {"uuid": id, "sessions": sessions}


def _read_beam(path: Path) -> Iterator[Data]:
    chats = [path] if path.is_file() else sorted(path.glob("**/chat.json"))
    if not chats:
        raise InputError(f"{path}: has no chat.json, as folders of BEAM have")
    return map(_read_chat, chats)


def _read_chat(file: Path) -> Data:
    """Read a chat of BEAM, each batch as one session. The reference of an answer is followed by its
    rubric, by which BEAM grades."""
    sessions: list[Data] = []
    for batch in map(as_object, as_array(_load(file))):
        anchor = batch.get("time_anchor") or ""
        messages = [as_object(m) for turn in as_array(batch.get("turns")) for m in as_array(turn)]
        sessions.append(
            _session(
                [
                    {
                        "role": message.get("role"),
                        "content": re.sub(r"\s*->->\s*[\d,]+\s*$", "", str(message.get("content"))),
                        "timestamp": message.get("time_anchor") or anchor,
                    }
                    for message in messages
                ]
            )
        )

    probing = _load(file.parent / "probing_questions" / "probing_questions.json") or [{}]
    for ability, questions in as_object(probing[0]).items():
        for question in map(as_object, as_array(questions)):
            answer = next((question[name] for name in BEAM_ANSWERS if question.get(name)), "")
            rubric = "\n".join(f"- {line}" for line in as_array(question.get("rubric")))
            sessions[-1]["questions"].append(
                {
                    "question": question.get("question"),
                    "answer": f"{answer}\n{rubric}".strip(),
                    "question_type": ability,
                    "difficulty": question.get("difficulty", ""),
                }
            )

    return {"uuid": f"{file.parent.parent.name}/{file.parent.name}", "sessions": sessions}
