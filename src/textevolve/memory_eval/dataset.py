"""Read data sets for memory systems: users, their sessions, and the expected memories.

Data sets have HaluMem's format: JSON lines, one user a line, read one at a time. Result files of
the benchmark, which have more fields, are read as well. `synthesis.py` generates data.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count, pairwise, zip_longest
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    TypeAdapter,
    ValidationError,
)

from textevolve.errors import InputError
from textevolve.json_texts import as_array, as_object, is_array, is_object, parse_printed
from textevolve.llm.model import text_hash
from textevolve.llm.refusals import one_line
from textevolve.mappings import drop_none
from textevolve.memory.record import DialogueTurn, check_times
from textevolve.reach import allowed_path
from textevolve.rows import STANDARD_INPUT, mend_halves, read_rows
from textevolve.texts.numbers import reject_odd_number


def _drop_nulls(value: Any) -> Any:
    """Remove null values from an object, or from each object of a list, so they count as
    missing."""
    if is_array(value):
        return list(map(_drop_nulls, value))
    if not is_object(value):
        return value
    return drop_none(value)


def _objects(value: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects of a list with their positions, from 0."""
    for place, each in enumerate(as_array(value)):
        if is_object(each):
            yield place, each


def _read_texts(value: Any) -> Any:
    """Convert a text, a list of texts, or a list of objects with a text into a list of texts."""
    if isinstance(value, str):
        return (value,) if value.strip() else ()
    if not is_array(value):
        raise ValueError("must be a list of texts")
    return tuple(map(_read_text, value))


def _read_text(value: Any) -> Any:
    if not is_object(value):
        return value
    for name in ("memory_content", "memory", "content", "text"):
        if isinstance(value.get(name), str):
            return value[name]
    raise ValueError("an object must have its text in memory_content, memory, content or text")


def _read_recorded(value: Any) -> Any:
    """Read recorded memories without blank ones, which are dropped for running systems as well."""
    return tuple(t for t in _read_texts(value) if not isinstance(t, str) or t.strip())


def _read_type(value: Any) -> Any:
    return value.lower().removesuffix("memory").strip() if isinstance(value, str) else value


def _read_source(value: Any) -> Any:
    return value.lower().strip() if isinstance(value, str) else value


MemoryType = Literal["event", "persona", "relationship"]
MemorySource = Literal["primary", "secondary", "interference", "system"]
"""The source of an expected memory in HaluMem: `interference` marks a false statement, which must
not be stored."""
_Text = Annotated[str, Field(min_length=1)]
_Texts = Annotated[tuple[str, ...], BeforeValidator(_read_texts)]
_Recorded = Annotated[tuple[str, ...], BeforeValidator(_read_recorded)]
_Truth = Annotated[bool, BeforeValidator(lambda value: value or False)]
_Plain = BeforeValidator(reject_odd_number)
_Milliseconds = Annotated[
    float,
    Field(ge=0, allow_inf_nan=False),
    _Plain,
    AfterValidator(lambda ms: ms / 1000),
    PlainSerializer(lambda seconds: round(seconds * 1000, 6)),
]
_SHAPE = ConfigDict(coerce_numbers_to_str=True)


def _named(name: str) -> Any:
    """Return the metadata that gives a field its name in the data set."""
    return Field(alias=name)


@dataclass(frozen=True, slots=True)
class MemoryPoint:
    """A fact of a session that the system must remember or, if it is from `interference`, must not
    store.

    `originals`: the memories that an update replaces. `importance`: in [0, 1]. `returned`: the
    memories that a recorded system retrieved for an update, and `search_seconds`: the duration of
    that search; None if not recorded.
    """

    __pydantic_config__: ClassVar = _SHAPE
    index: Annotated[int, _Plain]
    content: Annotated[_Text, _named("memory_content")]
    type: Annotated[MemoryType, BeforeValidator(_read_type), _named("memory_type")]
    source: Annotated[MemorySource, BeforeValidator(_read_source), _named("memory_source")]
    importance: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False), _Plain]
    is_update: _Truth = False
    originals: Annotated[_Texts, _named("original_memories")] = ()
    returned: Annotated[_Recorded | None, _named("memories_from_system")] = None
    search_seconds: Annotated[_Milliseconds | None, _named("search_duration_ms")] = None


@dataclass(frozen=True, slots=True)
class MemoryQuestion:
    """A question that is asked after its session. `answer`: the expected answer. `evidence`: the
    memories from which it follows. `recorded_answer`: the answer of a recorded system, and
    `search_seconds`: the duration of its search; None if not recorded."""

    __pydantic_config__: ClassVar = _SHAPE
    question: _Text
    answer: str
    evidence: _Texts = ()
    difficulty: str = ""
    type: Annotated[str, _named("question_type")] = ""
    recorded_answer: Annotated[str | None, _named("system_response")] = None
    search_seconds: Annotated[_Milliseconds | None, _named("search_duration_ms")] = None


def _read_points(value: Any) -> Any:
    """Read memory points. A point without an index gets its position, from 1; interference without
    an importance gets 0."""
    points = _drop_nulls(value)
    for place, point in _objects(points):
        point.setdefault("index", place + 1)
        if _read_source(point.get("memory_source")) == "interference":
            point.setdefault("importance", 0)

    return points


@dataclass(frozen=True, slots=True)
class Session:
    """One dialogue of a user. `points`: the memories that are expected from it. `is_generated_qa`:
    the session is fed to the system, but not scored.

    `extracted`: the memories that a recorded system extracted from it, `add_seconds`: the duration
    of that, `search_seconds`: of all its searches; None if not recorded.
    """

    __pydantic_config__: ClassVar = _SHAPE
    index: int
    dialogue: Annotated[
        tuple[DialogueTurn, ...], BeforeValidator(_drop_nulls), AfterValidator(check_times)
    ]
    points: Annotated[
        tuple[MemoryPoint, ...], BeforeValidator(_read_points), _named("memory_points")
    ] = ()
    questions: Annotated[tuple[MemoryQuestion, ...], BeforeValidator(_drop_nulls)] = ()
    is_generated_qa: Annotated[_Truth, _named("is_generated_qa_session")] = False
    extracted: Annotated[_Recorded | None, _named("extracted_memories")] = None
    add_seconds: Annotated[_Milliseconds | None, _named("add_dialogue_duration_ms")] = None
    search_seconds: Annotated[_Milliseconds | None, _named("search_duration_ms")] = None

    @property
    def searching(self) -> float | None:
        """Return the seconds of all searches of a recorded system."""
        parts = (self, *self.points, *self.questions)
        seconds = [part.search_seconds for part in parts if part.search_seconds is not None]
        return sum(seconds) if seconds else None


def _read_sessions(value: Any) -> Any:
    """Read sessions, and number them from 0. A session that is not scored may lack its dialogue, as
    in result files, and then has an empty one."""
    sessions = _drop_nulls(value)
    for place, session in _objects(sessions):
        session["index"] = place
        if session.get("is_generated_qa_session"):
            session.setdefault("dialogue", ())

    return sessions


@dataclass(frozen=True, slots=True)
class User:
    """A user: one line of a data set. `line`: its number, from 1; `sha256`: the hash of what the
    line holds."""

    __pydantic_config__: ClassVar = _SHAPE
    id: Annotated[_Text, _named("uuid")]
    sessions: Annotated[tuple[Session, ...], Field(min_length=1), BeforeValidator(_read_sessions)]
    line: int = 0
    sha256: str = ""


@dataclass(frozen=True, slots=True)
class Malformed:
    """An invalid line of a data set, which is reported and skipped."""

    line: int
    reason: str


_USER: TypeAdapter[User] = TypeAdapter(Annotated[User, BeforeValidator(_drop_nulls)])


def read_users(path: str) -> Iterator[User | Malformed]:
    """Yield the users of a file in order, lazily, and a `Malformed` for each line that is no user
    or repeats an id; empty lines are skipped. The file may also have one of the public forms that
    `read_published` reads; then a user counts as a line.

    Raises:
        InputError: the file cannot be read, or none of its lines is a user.
    """
    places: dict[str, int] = {}
    first_malformed: Malformed | None = None

    for number, line in enumerate(_read_lines(path), 1):
        if not line:
            continue
        entry = _read_line(line, number)
        if isinstance(entry, User) and entry.id in places:
            reason = f"uuid: '{one_line(entry.id)}' is also used in line {places[entry.id]}"
            entry = Malformed(number, reason)
        if isinstance(entry, User):
            places[entry.id] = number
        else:
            first_malformed = first_malformed or entry

        yield entry

    if not places:
        reason_of_first = (
            f"line {first_malformed.line}: {first_malformed.reason}"
            if first_malformed
            else "the file is empty"
        )
        raise InputError(
            f"{path}: the file has no users ({reason_of_first}); each line must be a user as JSON"
        )


def _read_lines(path: str) -> Iterator[bytes]:
    """Yield the lines of a file, or the users of a public data set as lines.

    Raises:
        InputError: the file cannot be read.
    """
    try:
        published = read_published(path)
        if published is not None:
            for user in published:
                yield json.dumps(user).encode()
            return
        with open(allowed_path(path), "rb") as file:
            for number, line in enumerate(file):
                yield (line if number else line.removeprefix(b"\xef\xbb\xbf")).strip()
    except OSError as error:
        place = error.filename or path  # it may lie beside the file
        raise InputError(f"{place}: cannot be read ({error.strerror})") from None


def _read_line(line: bytes, number: int) -> User | Malformed:
    text = mend_halves(line.decode("latin-1"))  # so that no byte is rejected or changed
    try:
        user = _USER.validate_json(text.encode("latin-1"))
        # Of what is read, so that an order or a field that nothing reads changes nothing.
        return replace(user, line=number, sha256=text_hash(user_to_line(user)))
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in wrong["loc"])
        message = wrong["msg"].removeprefix("Value error, ")
        return Malformed(number, one_line(f"{place.lstrip('.')}: {message}" if place else message))


_LINE = TypeAdapter(User)


def user_to_line(user: User) -> str:
    """Return the user as a line of JSON for a data set, without the line break; reading the line
    returns the same user."""
    left_out = {"line", "sha256"}
    return _LINE.dump_json(user, by_alias=True, exclude=left_out, exclude_none=True).decode()


def write_turn(turn: DialogueTurn) -> str:
    """Format a turn as one line, with its time if it has one."""
    when = f"[{turn.timestamp}] " if turn.timestamp else ""
    return f"{when}{turn.role}: {turn.content}"


# Read public data sets of memories in their published forms: LoCoMo, LongMemEval, PersonaMem and
# BEAM. Users fetch the files themselves; HaluMem's form is read above.
#
# All questions become those of a session: they are asked once it was fed. They have answers and no
# memory points, so question answering is measured alone.

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

    id = f"{file.parent.parent.name}/{file.parent.name}"
    return {"uuid": id, "sessions": _ask_last(sessions, questions)}
