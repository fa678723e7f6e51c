"""`textevolve memories add|search|list|show|graph|audit|forget|import|export|re-embed`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from textevolve.agents.resources import split_name
from textevolve.api.client import Client
from textevolve.api.namespaces import Memories, Namespace
from textevolve.api.opened import keep_namespace
from textevolve.cli import options, say
from textevolve.cli.options import NamespaceName, Yes
from textevolve.cli.resources import ERASES, SOURCE
from textevolve.cli.results import fetch_weights, print_json, show_report
from textevolve.cli.spec_options import read_given, takes
from textevolve.cli.study import telling_warnings
from textevolve.desk.memories import (
    SourceMessage,
    draw_findings,
    draw_graph,
    draw_memories,
    draw_memory,
    draw_mentions,
    draw_recalled,
    read_memory_rows,
)
from textevolve.errors import InputError, NotFoundError
from textevolve.memory.recall_settings import RecallSettings
from textevolve.memory.record import MemoryRecord, MemorySpec, memory_data
from textevolve.report import wording
from textevolve.report.blocks import Report
from textevolve.report.files import check_target, open_target
from textevolve.rows import read_argument
from textevolve.rows.formats import choose_writer
from textevolve.settings import read_settings
from textevolve.texts.prose import fold_case

CollectionName = Annotated[
    str, typer.Argument(metavar="COLLECTION", help="The name of the collection, or NAMESPACE/NAME.")
]
Ids = Annotated[list[str], typer.Argument(metavar="ID...", help="The ids of the memories.")]
Closed = Annotated[
    bool, typer.Option("--closed", help="Include superseded and forgotten memories.")
]
Query = Annotated[
    str,
    typer.Argument(
        metavar="QUERY",
        help="The question or text to search for; @FILE reads it from a file, - from standard"
        " input.",
    ),
]
AsOf = Annotated[
    str | None,
    typer.Option(
        "--as-of",
        metavar="DATE",
        help="Search the memories that were valid on this date (UTC), such as 2025-01-31.",
    ),
]
PAGE = 500


@contextmanager
def _open(
    name: str, namespace: str | None, store: str | None, *, embeds: bool = False
) -> Generator[Memories]:
    """Open an existing collection. `embeds`: whether missing weights of its embedder are
    downloaded."""
    settings = read_settings(store=store)
    space_name, bare_name = split_name(name, namespace or settings.namespace)
    if namespace and space_name != namespace:
        raise InputError(
            f"the collection {name} is in the namespace {space_name}, and --namespace says"
            f" {namespace}; leave one of them out"
        )

    with (
        telling_warnings(),
        keep_namespace(Client(settings=settings), space_name, source=SOURCE) as space,
    ):
        collection = space.collections.get(bare_name)
        if embeds:
            fetch_weights([collection.embedder], settings)
        yield space.memories(bare_name)


@contextmanager
def _open_namespace(namespace: str | None, store: str | None) -> Generator[Namespace]:
    settings = read_settings(store=store)
    with keep_namespace(Client(settings=settings), namespace, source=SOURCE) as space:
        yield space


def _print(memories: Sequence[MemoryRecord], as_json: bool, draw: Callable[[], Report]) -> None:
    if not as_json:
        show_report(draw())
        return
    for memory in memories:
        print_json(memory_data(memory))


@takes(MemorySpec, "relations", "cites")
def add(
    collection: CollectionName,
    as_json: options.Json = False,
    namespace: NamespaceName = None,
    store: options.StoreFile = None,
    **values: Any,
) -> None:
    """Store a memory: a text, @FILE or - for standard input."""
    fields = read_given(MemorySpec, values)
    spec = MemorySpec(**fields)  # errors come before anything is opened
    with _open(collection, namespace, store, embeds=True) as memories:
        memory = memories.add(**fields)
        if as_json:
            print_json(memory_data(memory))
        else:
            typer.echo(f"kept {memory.id}: {wording.shorten(spec.text, 60)}")


@takes(RecallSettings, "collections", "scope", "summarize")
def search(
    collection: CollectionName,
    query: Query,
    as_of: AsOf = None,
    as_json: options.Json = False,
    namespace: NamespaceName = None,
    store: options.StoreFile = None,
    **values: Any,
) -> None:
    """Search memories by a question, best first, with the parts of each score."""
    fields = read_given(RecallSettings, values)
    with _open(collection, namespace, store, embeds=True) as memories:
        recalled = memories.search(read_argument(query), as_of=as_of, **fields)
        if as_json:
            for memory in recalled.memories:
                print_json(asdict(memory))
        else:
            show_report(draw_recalled(recalled))


def list_memories(
    collection: CollectionName,
    limit: Annotated[
        int | None,
        typer.Option(
            help="The number of memories to list, the newest ones; default: 50, with --json all."
        ),
    ] = None,
    closed: Closed = False,
    as_json: options.Json = False,
    namespace: NamespaceName = None,
    store: options.StoreFile = None,
) -> None:
    """List the memories of a collection in the order in which they were stored, the newest last."""
    with _open(collection, namespace, store) as memories:
        most = limit or (None if as_json else 50)
        numbered = deque(enumerate(_stream(memories, closed=closed), 1), maxlen=most)
    newest = [memory for _, memory in numbered]
    number = numbered[-1][0] if numbered else 0
    _print(newest, as_json, lambda: draw_memories(collection, newest, number))


def show(
    ids: Ids,
    as_json: options.Json = False,
    namespace: NamespaceName = None,
    store: options.StoreFile = None,
) -> None:
    """Show memories in full, with their sources and history."""
    with _open_namespace(namespace, store) as space:
        for memory in space.find_memories(*ids):
            _print([memory], as_json, partial(draw_memory, memory))


def graph(
    collection: CollectionName,
    entity: Annotated[
        str | None,
        typer.Argument(
            metavar="[ENTITY]", help="The name of a person or thing; default: list all names."
        ),
    ] = None,
    as_json: options.Json = False,
    namespace: NamespaceName = None,
    store: options.StoreFile = None,
) -> None:
    """List the people and things that memories mention; with an ENTITY, the memories that do."""
    with _open(collection, namespace, store) as memories:
        entities = memories.graph()
        if entity is None:
            for row in entities if as_json else ():
                print_json(asdict(row))
            if not as_json:
                show_report(draw_graph(collection, entities))
            return

        matches = [row for row in entities if fold_case(row.name) == fold_case(entity)]

        if not matches:
            raise NotFoundError(
                f"no memory of {collection} mentions '{entity}'; all names: textevolve memories"
                f" graph {collection}"
            )

        records = memories.get(*matches[0].memories)
        _print(records, as_json, lambda: draw_mentions(matches[0], records))


def audit(
    collection: CollectionName,
    as_json: options.Json = False,
    namespace: NamespaceName = None,
    store: options.StoreFile = None,
) -> None:
    """List memories to look at: duplicates, other values of one statement, texts that are not
    understood alone, little trust, never recalled."""
    with _open(collection, namespace, store, embeds=True) as memories:
        findings = memories.audit()
    if not as_json:
        show_report(draw_findings(collection, findings))
    for finding in findings if as_json else ():
        other = finding.other and finding.other.id
        ids = {"id": finding.memory.id, "other": other}
        print_json({**ids, "reason": finding.reason, "forget": finding.forget})


def forget(
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="ID...", help="The ids of the memories.")
    ] = None,
    user: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="All memories of this user, in all collections of the namespace; with --erase the"
            " closed ones, too.",
        ),
    ] = "",
    erase: Annotated[
        bool,
        typer.Option(
            "--erase", help="Delete the texts of the memories, too; this cannot be undone."
        ),
    ] = False,
    with_source: Annotated[
        bool,
        typer.Option(
            "--with-source",
            help="With --erase: erase the messages of stored chats that they are from, too.",
        ),
    ] = False,
    yes: Yes = False,
    namespace: NamespaceName = None,
    store: options.StoreFile = None,
) -> None:
    """Close memories: searches skip them, and their history stays."""
    if with_source and not erase:
        raise InputError("--with-source: erases the source of erased memories, so it needs --erase")
    sources: list[SourceMessage] = []
    with _open_namespace(namespace, store) as space:
        memories = space.find_memories(*(ids or ()), user=user)
        if not erase:
            listed_ids = tuple(ids or ())
            memories = [
                m
                for m in memories
                if m.closed is None or (listed_ids and m.id.startswith(listed_ids))
            ]
        if not memories:
            unnamed = "name memories by their ids, or a user by --user"
            raise InputError(f"the user '{user}' has no memories" if user else unnamed)
        if erase:
            say(ERASES)
            noun = wording.count(len(memories), "memory")
            also = " and the messages of chats that they are from" * with_source
            options.confirm(f"Erase {noun}{also} for good?", yes)

        for collection in dict.fromkeys(memory.collection for memory in memories):
            memory_ids = [memory.id for memory in memories if memory.collection == collection]
            collected = space.memories(collection)
            sources += collected.forget(*memory_ids, erase=erase, with_source=with_source)

    for memory in memories:
        typer.echo(f"{'erased' if erase else 'forgot'} {memory.id}")
    for source in dict.fromkeys(sources):
        command = source.erasing_command(namespace)
        what = f"message {source.position}" if source.position else "a message"
        say(f"{what} of the chat {source.session} still says it; erase it with: {command}")


def import_file(
    collection: CollectionName,
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="The file of memories: .jsonl, .json, .csv or .parquet; - reads"
            " JSON lines from standard input.",
        ),
    ],
    as_json: options.Json = False,
    namespace: NamespaceName = None,
    store: options.StoreFile = None,
) -> None:
    """Store the memories of a file; existing ones are skipped, so that the same command again
    resumes a stopped import."""
    with _open(collection, namespace, store, embeds=True) as memories:
        done = memories.add_all(read_memory_rows(file), label=file)
    if as_json:
        print_json(asdict(done))
    else:
        typer.echo(
            f"{done.added:,} kept, {done.known:,} exist already (the same text,"
            " source, turn, author, times and user)"
        )


def export(
    collection: CollectionName,
    output: Annotated[
        list[str],
        typer.Argument(
            help="The files to write: .jsonl, .csv or .parquet; - writes JSON lines to standard"
            " output."
        ),
    ],
    closed: Closed = False,
    namespace: NamespaceName = None,
    store: options.StoreFile = None,
) -> None:
    """Write the memories of a collection to files of rows, which `memories import` reads."""
    writers: dict[str, Any] = {}
    for path in output:
        check_target(path)
        writers[path] = choose_writer(".jsonl" if path == "-" else Path(path).suffix.lower())
    with _open(collection, namespace, store) as memories:
        for path, write in writers.items():
            with open_target(path, binary=path.lower().endswith(".parquet")) as target:
                number = write(lambda: map(memory_data, _stream(memories, closed=closed)), target)
            if path != "-":
                say(f"{number:,} memories written to {path}")


def re_embed(
    collection: CollectionName,
    embedder: Annotated[
        str,
        typer.Option(
            "--embedder",
            metavar="MODEL",
            help="The model that embeds all memories of the collection from now on.",
        ),
    ],
    dimension: Annotated[
        int | None,
        typer.Option(
            help="The dimension of the new embeddings; default: measured with a call.", min=1
        ),
    ] = None,
    namespace: NamespaceName = None,
    store: options.StoreFile = None,
) -> None:
    """Embed all memories of a collection by another model; all change at once."""
    settings = read_settings(store=store)
    with _open(collection, namespace, store) as memories:
        fetch_weights([embedder], settings)
        moved = memories.re_embed(embedder, dimension=dimension)
    typer.echo(f"{moved.full_name} is embedded by {moved.embedder} ({moved.dimension} numbers)")


def _stream(memories: Memories, *, closed: bool) -> Iterator[MemoryRecord]:
    after = None
    while page := memories.list(limit=PAGE, after=after, closed=closed):
        yield from page
        after = page[-1].id
