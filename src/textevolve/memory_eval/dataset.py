"""Read data sets for memory systems: users, their sessions, and the expected memories.

Data sets have HaluMem's format: JSON lines, one user a line, read one at a time. Result files of
the benchmark, which have more fields, are read as well. `synthesis.py` generates data.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

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
from textevolve.json_texts import as_array, is_array, is_object
from textevolve.llm.refusals import one_line
from textevolve.mappings import drop_none
from textevolve.memory.record import DialogueTurn, check_times
from textevolve.memory_eval.published import read_published
from textevolve.reach import allowed_path
from textevolve.rows import mend_halves
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
    `published.py` reads; then a user counts as a line.

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
        return replace(user, line=number, sha256=hash_line(user_to_line(user).encode()))
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in wrong["loc"])
        message = wrong["msg"].removeprefix("Value error, ")
        return Malformed(number, one_line(f"{place.lstrip('.')}: {message}" if place else message))


def hash_line(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()


_LINE = TypeAdapter(User)


def user_to_line(user: User) -> str:
    """Return the user as a line of JSON for a data set, without the line break; reading the line
    returns the same user."""
    left_out = {"line", "sha256", "mended"}
    return _LINE.dump_json(user, by_alias=True, exclude=left_out, exclude_none=True).decode()


def write_turn(turn: DialogueTurn) -> str:
    """Format a turn as one line, with its time if it has one."""
    when = f"[{turn.timestamp}] " if turn.timestamp else ""
    return f"{when}{turn.role}: {turn.content}"


def write_dialogue(dialogue: Sequence[DialogueTurn]) -> str:
    return "\n".join(map(write_turn, dialogue))
