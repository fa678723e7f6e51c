"""Data sets of memory evaluation in HaluMem's shape: JSON lines, a user a line, one at a time.

Result files of the benchmark have the same shape with more fields, and are read here, too. Made
data is `synthesis.py`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Self, cast

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from textevolve.errors import InputError
from textevolve.llm.refusals import one_line
from textevolve.memory_eval.dialogues import (
    DialogueTurn,
    MemoryPoint,
    MemoryQuestion,
    MemorySource,
    MemoryType,
    Session,
    User,
)
from textevolve.reach import allowed_path
from textevolve.rows import mend_halves
from textevolve.texts.numbers import refuse_odd_number

_ID = re.compile(rb'"uuid"\s*:\s*"?([^",}]{1,200})')
_TEXT_FIELDS = ("memory_content", "memory", "content", "text")


@dataclass(frozen=True, slots=True)
class Malformed:
    """A line that is no user: reported and skipped. `id` is empty where none could be found."""

    line: int
    id: str
    reason: str


def read_users(path: str) -> Iterator[User | Malformed]:
    """The users of a file in order, read lazily; empty lines are passed over.

    Raises:
        InputError: the file cannot be read, or, at its end, none of its lines was a user.
    """
    places: dict[str, int] = {}
    first: Malformed | None = None
    try:
        with open(allowed_path(path), "rb") as file:
            for number, raw in enumerate(file, 1):
                line = (raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw).strip()
                if not line:
                    continue
                found = _read_line(line, number)
                if isinstance(found, User) and found.id in places:
                    reason = f"uuid: '{one_line(found.id)}' is that of line {places[found.id]}, too"
                    found = Malformed(number, found.id, reason)
                if isinstance(found, User):
                    places[found.id] = number
                else:
                    first = first or found
                yield found
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    if not places:
        why = f"line {first.line}: {first.reason}" if first else "the file is empty"
        raise InputError(f"{path}: no user in it ({why}); it has to have a user a line, as JSON")


def user_to_json(user: User) -> dict[str, Any]:
    """The user in HaluMem's shape; reading it gives the same user."""
    return {
        "uuid": user.id,
        "persona_info": user.persona,
        "sessions": [_session_to_json(session) for session in user.sessions],
    }


def user_to_line(user: User) -> str:
    """The user as a line of a data set, without its end."""
    return json.dumps(user_to_json(user), ensure_ascii=False)


def hash_line(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()


def _read_line(line: bytes, number: int) -> User | Malformed:
    mended, was_half = mend_halves(line.decode("latin-1"))  # so that no byte is refused or changed
    try:
        found = _User.model_validate_json(mended.encode("latin-1"))
        return replace(_user(found, number, hash_line(line)), mended=was_half)
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in wrong["loc"])
        said = wrong["msg"].removeprefix("Value error, ")
        reason = one_line(f"{place.lstrip('.')}: {said}" if place else said)
    id = _ID.search(line)
    return Malformed(number, one_line(id[1].decode("utf-8", "replace")) if id else "", reason)


# The shape of a line.


def _nothing_for_null(value: Any) -> Any:
    return "" if value is None else value


def _as_persona(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _as_texts(value: Any) -> Any:
    """A list of texts out of a list of texts or of objects that hold one; one text is a list."""
    if value is None:
        return ()
    if isinstance(value, str):
        return (value,) if value.strip() else ()
    if not isinstance(value, list):
        raise ValueError("must be a list of texts")
    return tuple(_as_text(each) for each in cast("list[Any]", value))


def _as_text(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    fields = cast("dict[str, Any]", value)
    held = next((fields[name] for name in _TEXT_FIELDS if isinstance(fields.get(name), str)), None)
    if held is None:
        raise ValueError("an object without memory_content")
    return held


def _as_recorded_texts(value: Any) -> Any:
    """Those without text count as none, as where a system is fed."""
    if value is None:
        return None
    return tuple(t for t in _as_texts(value) if not isinstance(t, str) or t.strip())


def _as_type(value: Any) -> Any:
    return value.lower().removesuffix("memory").strip() if isinstance(value, str) else value


def _as_source(value: Any) -> Any:
    return value.lower().strip() if isinstance(value, str) else value


def _as_truth(value: Any) -> Any:
    return False if value is None or value == "" else value


Text = Annotated[str, BeforeValidator(_nothing_for_null)]
TextList = Annotated[tuple[str, ...], BeforeValidator(_as_texts)]
RecordedTexts = Annotated[tuple[str, ...] | None, BeforeValidator(_as_recorded_texts)]
Truth = Annotated[bool, BeforeValidator(_as_truth)]
_Plain = BeforeValidator(refuse_odd_number)
Milliseconds = Annotated[float | None, Field(ge=0, allow_inf_nan=False), _Plain]


class _Shape(BaseModel):
    model_config = ConfigDict(frozen=True, coerce_numbers_to_str=True)


class _Turn(_Shape):
    role: str = Field(min_length=1)
    content: str
    timestamp: Text = ""


class _Point(_Shape):
    index: Annotated[int | None, _Plain] = None
    memory_content: str = Field(min_length=1)
    memory_type: Annotated[MemoryType, BeforeValidator(_as_type)]
    memory_source: Annotated[MemorySource, BeforeValidator(_as_source)]
    importance: Annotated[float | None, Field(ge=0, le=1, allow_inf_nan=False), _Plain] = None
    is_update: Truth = False
    original_memories: TextList = ()
    timestamp: Text = ""
    memories_from_system: RecordedTexts = None
    search_duration_ms: Milliseconds = None

    @model_validator(mode="after")
    def _weighed(self) -> Self:
        if self.importance is None and self.memory_source != "interference":
            raise ValueError("importance is missing")
        return self


class _Question(_Shape):
    question: str = Field(min_length=1)
    answer: str
    evidence: TextList = ()
    difficulty: Text = ""
    question_type: Text = ""
    system_response: str | None = None
    search_duration_ms: Milliseconds = None


class _Session(_Shape):
    """In a result file a session of which nothing is scored lacks its dialogue."""

    dialogue: tuple[_Turn, ...] | None = None
    memory_points: tuple[_Point, ...] | None = None
    questions: tuple[_Question, ...] | None = None
    start_time: Text = ""
    end_time: Text = ""
    is_generated_qa_session: Truth = False
    extracted_memories: RecordedTexts = None
    add_dialogue_duration_ms: Milliseconds = None
    search_duration_ms: Milliseconds = None

    @model_validator(mode="after")
    def _said(self) -> Self:
        if self.dialogue is None and not self.is_generated_qa_session:
            raise ValueError("dialogue is missing")
        return self


class _User(_Shape):
    uuid: str = Field(min_length=1)
    persona_info: Annotated[str, BeforeValidator(_as_persona)] = ""
    sessions: tuple[_Session, ...] = Field(min_length=1)


# From the shape to our types, and back.


def _user(found: _User, line: int, sha256: str) -> User:
    sessions = tuple(_session(session, place) for place, session in enumerate(found.sessions))
    return User(found.uuid, sessions, found.persona_info, line, sha256)


def _session(found: _Session, place: int) -> Session:
    points, questions = found.memory_points or (), found.questions or ()
    searches = [found, *points, *questions]
    return Session(
        index=place,
        dialogue=tuple(DialogueTurn(t.role, t.content, t.timestamp) for t in found.dialogue or ()),
        points=tuple(_point(point, number) for number, point in enumerate(points, 1)),
        questions=tuple(_question(question) for question in questions),
        start=found.start_time,
        end=found.end_time,
        is_generated_qa=found.is_generated_qa_session,
        extracted=found.extracted_memories,
        add_seconds=_seconds([found.add_dialogue_duration_ms]),
        search_seconds=_seconds([search.search_duration_ms for search in searches]),
    )


def _point(found: _Point, number: int) -> MemoryPoint:
    return MemoryPoint(
        index=number if found.index is None else found.index,
        content=found.memory_content,
        type=found.memory_type,
        source=found.memory_source,
        importance=found.importance or 0.0,
        is_update=found.is_update,
        originals=found.original_memories,
        timestamp=found.timestamp,
        returned=found.memories_from_system,
    )


def _question(found: _Question) -> MemoryQuestion:
    return MemoryQuestion(
        question=found.question,
        answer=found.answer,
        evidence=found.evidence,
        difficulty=found.difficulty,
        type=found.question_type,
        recorded_answer=found.system_response,
    )


def _seconds(milliseconds: Sequence[float | None]) -> float | None:
    """Their sum in seconds; None where nothing was measured."""
    measured = [each for each in milliseconds if each is not None]
    return sum(measured) / 1000 if measured else None


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 6)


def _session_to_json(session: Session) -> dict[str, Any]:
    made: dict[str, Any] = {
        "start_time": session.start,
        "end_time": session.end,
        "dialogue": [
            {"role": turn.role, "content": turn.content, "timestamp": turn.timestamp}
            for turn in session.dialogue
        ],
        "memory_points": [_point_to_json(point) for point in session.points],
        "questions": [_question_to_json(question) for question in session.questions],
    }
    if session.is_generated_qa:
        made["is_generated_qa_session"] = True
    return made | _recorded(
        extracted_memories=session.extracted,
        add_dialogue_duration_ms=_milliseconds(session.add_seconds),
        search_duration_ms=_milliseconds(session.search_seconds),
    )


def _point_to_json(point: MemoryPoint) -> dict[str, Any]:
    return {
        "index": point.index,
        "memory_content": point.content,
        "memory_type": f"{point.type.capitalize()} Memory",
        "memory_source": point.source,
        "is_update": str(point.is_update),
        "original_memories": list(point.originals),
        "importance": point.importance,
        "timestamp": point.timestamp,
    } | _recorded(memories_from_system=point.returned)


def _question_to_json(question: MemoryQuestion) -> dict[str, Any]:
    return {
        "question": question.question,
        "answer": question.answer,
        "evidence": [{"memory_content": text} for text in question.evidence],
        "difficulty": question.difficulty,
        "question_type": question.type,
    } | _recorded(system_response=question.recorded_answer)


def _recorded(**fields: Any) -> dict[str, Any]:
    """The fields that only a result file has, where there is something in them."""
    return {name: value for name, value in fields.items() if value is not None}
