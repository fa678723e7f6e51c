"""The data types of memories, collections of memories, and changes of a collection.

Times are seconds since 1970 in UTC. A memory is never overwritten: a new memory supersedes it, and
the earlier one is closed and refers to the new one. Each change makes a new version of the
collection, and earlier versions stay readable.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, Protocol, TypeAlias

from pydantic import BeforeValidator, WithJsonSchema, model_validator

from textevolve.errors import InputError
from textevolve.evaluation import check_text
from textevolve.loading import NDArray, np
from textevolve.spec import Frozen, Several, Share, option
from textevolve.texts.dates import read_moment


@dataclass(frozen=True, slots=True)
class DialogueTurn:
    """One message of a dialogue. `role`: its speaker. `timestamp`: its time as the data write it;
    empty if missing."""

    role: str
    content: str
    timestamp: str = ""

    @property
    def moment(self) -> datetime | None:
        """Return its time, in the zone of the data; None if missing.

        Raises:
            ValueError: the time cannot be read.
        """
        return read_moment(self.timestamp) if self.timestamp.strip() else None


def check_times(turns: Sequence[DialogueTurn]) -> Sequence[DialogueTurn]:
    """Return the turns of a dialogue unchanged if the time of each can be read.

    Raises:
        ValueError: one cannot; names the turn.
    """
    for number, turn in enumerate(turns, 1):
        try:
            _ = turn.moment
        except ValueError as error:
            raise ValueError(f"the time of turn {number}: {error}, or leave it out") from None

    return turns


MemoryKind: TypeAlias = Literal["episodic", "semantic", "insight"]
"""The kind of a memory: of an event in a dialogue (episodic), a fact from a text (semantic), or an
insight from other memories."""
Vector: TypeAlias = "NDArray[np.float32]"
"""An embedding, normalised to the length 1."""


@dataclass(frozen=True, slots=True)
class Collection:
    """A named set of memories of one kind, whose embeddings come from one model.

    `embedder`: the spec of that model, such as local/minilm. `dimension`: the number of values of
    an embedding. `version`: the number of changes of its memories so far. `changed`: the time of
    the last change.
    """

    id: str
    namespace: str
    name: str
    kind: MemoryKind
    embedder: str
    dimension: int
    version: int = 0
    changed: float = 0.0
    created: float = 0.0
    description: str = ""

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Origin:
    """The source of a memory. `source`: a chat, a file, a run. `turn`: the number of the turn in
    it, from 1; None if unknown. `author`: who said or wrote it. `trust`: how far the source is
    believed, in [0, 1]; 1 for texts of the operator."""

    source: str = ""
    turn: int | None = None
    author: str = ""
    trust: float = 1.0


@dataclass(frozen=True, slots=True)
class Relation:
    """An edge of the graph of the entities that memories mention."""

    subject: str
    predicate: str
    object: str


@dataclass(frozen=True, slots=True)
class Entity:
    """A person or thing that the current memories of a collection mention. `memories`: their ids,
    oldest first. `neighbours`: the other entities in these memories, each with the number of
    memories that mention both, the highest first."""

    name: str
    memories: tuple[str, ...]
    neighbours: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class TokenVectors:
    """The vectors of a memory's tokens, packed as in `llm.embeddings`. `model`: the spec of the
    model that made them."""

    model: str
    packed: NDArray[np.uint8]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMemory:
    """A memory to store.

    `importance` in [0, 1]. `kind`: None means the kind of its collection. `created`: None means
    now. `valid_from`, `valid_to`: the period in which its text holds; None: from the beginning (for
    a memory that supersedes another: from its creation), and without end. `entities`: names of the
    people and things in its text. `cites`: ids of the memories that support it. `reason`: why it is
    stored, or why it supersedes another. `user`: the user whose memory it is, and in whose chats
    alone it is recalled; empty if it is common to all. `tokens`: the vectors of its tokens; None if
    they are not stored.
    """

    text: str
    embedding: Vector = field(compare=False)
    tokens: TokenVectors | None = field(default=None, compare=False)
    importance: float = 0.5
    kind: MemoryKind | None = None
    origin: Origin = Origin()
    created: float | None = None
    valid_from: float | None = None
    valid_to: float | None = None
    entities: tuple[str, ...] = ()
    relations: tuple[Relation, ...] = ()
    cites: tuple[str, ...] = ()
    reason: str = ""
    user: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRecord:
    """A stored memory. `id`: a random id, which cannot be guessed. Fields of `NewMemory` have the
    same meaning here.

    `supersedes`: the ids of the memories that it replaced. `superseded_by`: the id of the memory
    that replaced it, and `superseded_at`: the time of that. `added`: the version of the collection
    that added it; `closed`: the version that closed it, None while it is current. `forgotten`:
    whether it was closed by a request to forget it. `last_used`, `times_used`: when, and how often,
    an agent recalled it in chats.
    """

    id: str
    collection: str
    kind: MemoryKind
    text: str
    importance: float
    created: float
    origin: Origin = Origin()
    last_used: float | None = None
    times_used: int = 0
    valid_from: float | None = None
    valid_to: float | None = None
    supersedes: tuple[str, ...] = ()
    superseded_by: str | None = None
    superseded_at: float | None = None
    added: int = 0
    closed: int | None = None
    forgotten: bool = False
    entities: tuple[str, ...] = ()
    relations: tuple[Relation, ...] = ()
    cites: tuple[str, ...] = ()
    reason: str = ""
    user: str = ""


@dataclass(frozen=True, slots=True)
class Add:
    """Store a new memory."""

    memory: NewMemory


@dataclass(frozen=True, slots=True)
class Supersede:
    """Store a memory that supersedes others: one memory for an update, several for a merge.

    `memories`: their ids. `positions`: the places, among the memories that the same call of `apply`
    stores, of earlier ones that this one supersedes; these are stored and closed at once, so that
    they are found for the time in which they held.
    """

    memories: tuple[str, ...]
    memory: NewMemory
    positions: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Forget:
    """Close a memory. `erase`: its text, embedding and index entries are deleted, too, from all
    versions; only its id and its place in the history stay."""

    memory: str
    erase: bool = False


Change: TypeAlias = Add | Supersede | Forget


@dataclass(frozen=True, slots=True)
class ChangeSource:
    """The source of changes. A collection applies the changes of one `key` only once: `key` is a
    hash of the dialogue, document or run; `label` names it for people. `user`: the user to whom the
    memories of a dialogue belong; empty if they are common. `shared`: whether they may change the
    memories of other users, too. `base`: the version of the collection for which the changes were
    made; None: they fit every version."""

    key: str
    label: str = ""
    user: str = ""
    shared: bool = False
    base: int | None = None


@dataclass(frozen=True, slots=True)
class Applied:
    """The result of changes. `ids`: the ids of the stored memories, one for each `Add` and
    `Supersede`, in order. `base`: the version of the collection before the changes, `version`:
    after them. `repeated`: the changes of this source had been applied before, so nothing was
    changed now; the other fields are those of the first time."""

    ids: tuple[str, ...]
    base: int
    version: int
    repeated: bool = False


# The protocol of memory stores; `store` has the stores themselves.
#
# A `MemoryStore` belongs to one namespace (an isolated workspace), and none of its methods can
# reach another namespace: names and ids of other namespaces are not found.

Embed: TypeAlias = Callable[[Collection, str], Awaitable[Vector]]
"""A function that embeds a text with the embedder of a collection. May raise ModelError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryQuery:
    """A search for memories of one collection.

    `text`: for the search by keywords; `embedding`: for the search by embedding; at least one is
    needed. `limit`: the maximum number of memories from each of the two searches. `version`: the
    version of the collection to search; None: the current one. The result for a version never
    changes, since it is read as of the time of its last change. `time`: search the memories that
    were valid at this time, in seconds since 1970, including those superseded later; None: the
    current ones. `least_trust`: the least trust of a memory, in [0, 1]. `user`: search only the
    common memories and those of this user, or the common ones alone if it is empty; None: search
    all. `token_model`: the spec of the model whose token vectors the matches are to have; empty:
    they have none.
    """

    collection: str
    text: str = ""
    embedding: Vector | None = None
    limit: int = 50
    version: int | None = None
    time: float | None = None
    least_trust: float = 0.0
    user: str | None = None
    token_model: str = ""


@dataclass(frozen=True, slots=True)
class MemoryMatch:
    """A memory that a search found. Ranks count from 1, None if that search did not find the
    memory. `similarity`: the cosine of its embedding and the query's, in [-1, 1]. `tokens`: the
    vectors of its tokens, packed; None if the store has none or the query asks for none."""

    memory: MemoryRecord
    dense_rank: int | None = None
    keyword_rank: int | None = None
    similarity: float | None = None
    tokens: NDArray[np.uint8] | None = field(default=None, compare=False)


class MemoryStore(Protocol):
    """The collections and memories of one namespace. Every method may raise StoreError."""

    @property
    def namespace(self) -> str: ...

    async def collection(self, name: str) -> Collection:
        """Return the collection of this name.

        Raises:
            InputError: the namespace has no collection of this name.
        """
        ...

    async def search(self, query: MemoryQuery) -> Sequence[MemoryMatch]:
        """Return the matches by embedding and by keywords, joined, in no particular order.

        Raises:
            InputError: the collection does not exist, or the embedding has another dimension.
        """
        ...

    async def associate(
        self, query: MemoryQuery, starts: Sequence[str], hops: int = 2
    ) -> Sequence[MemoryRecord]:
        """Return memories that share entities with the memories whose ids are `starts`, directly or
        over up to `hops` steps, nearest first, without the starts; at most `query.limit`."""
        ...

    async def get(self, ids: Sequence[str]) -> Sequence[MemoryRecord]:
        """Return the memories with these ids, in their order.

        Raises:
            InputError: a memory does not exist.
        """
        ...

    async def page(
        self,
        collection: str,
        *,
        after: str | None = None,
        limit: int = 100,
        version: int | None = None,
        closed: bool = False,
    ) -> Sequence[MemoryRecord]:
        """Return memories in the order of storing, after the one with the id `after`; with `closed`
        superseded and forgotten memories, too."""
        ...

    async def apply(
        self, collection: str, changes: Sequence[Change], source: ChangeSource | None = None
    ) -> Applied:
        """Apply all of the changes and update the indexes, or change nothing.

        Raises:
            InputError: a memory is invalid; the message says why.
            ConflictError: a memory to supersede or forget is already closed, or the collection has
                another version than the source's `base`.
        """
        ...

    async def applied(self, collection: str, key: str) -> Applied | None:
        """Return the result of the changes whose source has this key; None if they were never
        applied."""
        ...


PAGE = 500
"""The number of memories that are read from the store at once."""


async def stream_memories(
    store: MemoryStore,
    collection: str,
    version: int | None = None,
    *,
    after: str | None = None,
    closed: bool = False,
) -> AsyncGenerator[MemoryRecord]:
    """Yield the memories of a collection in the order in which they were stored. `version`: an
    earlier version of the collection; None: the current one. `after`: only those after the memory
    with this id; None: all. `closed`: include memories that were superseded or forgotten."""
    while page := await store.page(
        collection, after=after, limit=PAGE, version=version, closed=closed
    ):
        for record in page:
            yield record
        after = page[-1].id


# The fields of a memory that a person writes: on the command line, in a program, or as a row of a
# file.
#
# `MemorySpec` defines and checks the fields. `desk/memories.py` reads files, and `store` stores
# memories.

LONGEST_TEXT = 20_000
"""The maximum number of characters of one memory; longer texts are read as documents."""
SLACK = 60.0
"""The seconds by which a memory's time of creation may lie in the future, since clocks of machines
differ."""


def take_time(value: Any) -> Any:
    """Convert a date, a date with a time, or a number into seconds since 1970.

    Raises:
        ValueError: a text is none of these, or has two meanings.
    """
    return read_moment(value).timestamp() if isinstance(value, str) else value


def write_time(seconds: float) -> str:
    """Format a time in UTC, as the options and files of memories accept it."""
    try:
        moment = datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return str(seconds)

    return moment.isoformat().replace("+00:00", "Z")


Time: TypeAlias = Annotated[
    float,
    BeforeValidator(take_time),
    WithJsonSchema({"type": ["number", "string"], "description": "Seconds since 1970, or a date."}),
]
"""A time in seconds since 1970, which may be given as a date."""


class MemorySpec(Frozen):
    """A memory written by hand. Times are dates in UTC, such as 2025-01-31T18:30, or seconds since
    1970."""

    text: str = option(
        description="The text of the memory; @FILE reads it from a file, - from standard input.",
        argument=True,
        text="argument",
    )
    importance: Share = option(0.5, "The importance of the memory, from 0 to 1.")
    kind: MemoryKind | None = option(
        None, "The kind of the memory; default: the kind of its collection."
    )
    created: Time | None = option(
        None, "The time at which the memory was learned; default: now.", metavar="DATE"
    )
    valid_from: Time | None = option(
        None,
        "The time since which the memory is valid; default: from the beginning.",
        metavar="DATE",
    )
    valid_to: Time | None = option(
        None, "The time until which the memory is valid; default: without end.", metavar="DATE"
    )
    source: str = option("", "The source of the memory: a file, a chat, a page.")
    turn: int | None = option(
        None, "The turn of the source that says it, counted from 1; default: not known.", ge=1
    )
    author: str = option("", "The person who said it.")
    trust: Share = option(1.0, "The trust in the source, from 0 to 1.")
    entities: Several = option(
        (), "A person or thing that the memory mentions. Repeatable.", flag="--entity"
    )
    relations: tuple[tuple[str, str, str], ...] = option(
        (), "A relation that the memory states: subject, predicate and object."
    )
    cites: Several = option(
        (), "The id of a memory from which this one follows. Repeatable.", flag="--cite"
    )
    reason: str = option("", "The reason for which the memory is kept.")
    user: str = option(
        "",
        "The user whose memory it is, and in whose chats alone it is recalled; default: it is"
        " common to all.",
        metavar="NAME",
    )

    @model_validator(mode="after")
    def _checked(self) -> MemorySpec:
        try:
            check_memory(self.text, self.created)
        except InputError as error:
            raise ValueError(str(error)) from None

        if None not in (self.valid_from, self.valid_to) and self.valid_to <= self.valid_from:  # pyright: ignore[reportOperatorIssue]
            raise ValueError("valid_to must be later than valid_from")
        return self

    def embedded(self, vector: Vector) -> NewMemory:
        """Return the memory to store, with its embedding."""
        composed = {"source", "turn", "author", "trust", "relations"}
        return NewMemory(
            **self.model_dump(exclude=composed),
            embedding=vector,
            origin=Origin(self.source, self.turn, self.author, self.trust),
            relations=tuple(Relation(*relation) for relation in self.relations),
        )


def check_memory(text: str, created: float | None) -> None:
    """Check the text of a new memory and its time of creation.

    Raises:
        InputError: the text is blank, too long or not a string, or the time lies in the future.
    """
    check_text("the text", text)

    if len(text) > LONGEST_TEXT:
        raise InputError(
            f"the text has {len(text):,} characters, and a memory may have {LONGEST_TEXT:,}; add"
            " a longer text as a document: textevolve memories read"
        )

    if created is not None and created > time.time() + SLACK:
        raise InputError(f"created is {write_time(created)}, which is in the future")


def digest_of(spec: MemorySpec) -> bytes:
    """Hash the fields that identify a memory: its text, source, turn, author, times and user. A
    memory without a time of creation equals one that was created at any time."""
    origin = Origin(spec.source, spec.turn, spec.author)
    times = (spec.valid_from, spec.valid_to, spec.created)
    return _digest(spec.text, origin, times, spec.user)


def digests_of(memory: MemoryRecord) -> tuple[bytes, bytes]:
    """Return the digests of all specifications from which a stored memory may have been created."""
    valid = (memory.valid_from, memory.valid_to)
    return (
        _digest(memory.text, memory.origin, (*valid, memory.created), memory.user),
        _digest(memory.text, memory.origin, (*valid, None), memory.user),
    )


def _digest(text: str, origin: Origin, times: tuple[float | None, ...], user: str) -> bytes:
    # Times as written, since a time that was exported and imported differs in its last digit.
    written = [None if time is None else write_time(time) for time in times]
    identity = (text, origin.source, origin.turn, origin.author, *written)
    if user:
        identity = (*identity, user)
    return hashlib.sha256(repr(identity).encode()).digest()


def memory_data(memory: MemoryRecord) -> dict[str, Any]:
    """Return a memory with its history as JSON-ready data, which `MemorySpec` can read."""
    data = asdict(memory)
    origin = data.pop("origin")
    data["relations"] = [list(relation.values()) for relation in data["relations"]]
    data |= origin
    if not memory.user:
        del data["user"]
    for name in ("created", "last_used", "valid_from", "valid_to", "superseded_at"):
        data[name] = None if data[name] is None else write_time(data[name])
    return data
