"""Cases from outside: files and folders, data sets of the hub, standard input, Python objects.

A case has an input, outputs (its candidates), an optional id, reference answer and context, and
parameters of its own, by name or under `parameters`. A chat gives the input and the output at once.
Which column gave what is noted, and columns that nothing reads are named once (`Columns`). What
columns are called is in `texts.columns`, how chats are written in `texts.chats`.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, cast

from textevolve.debate.profile import Profile, load_profile
from textevolve.errors import InputError
from textevolve.evaluation import IMAGE_ALONE, Case
from textevolve.rows import STANDARD_INPUT, Renaming, read_rows
from textevolve.rows.hub import PREFIX
from textevolve.rows.images import (
    IMAGE_LIMIT,
    IMAGES_PER_CASE,
    MIB,
    ImageReading,
    list_images,
    read_images,
)
from textevolve.spec import Several, option
from textevolve.studies.columns import Columns, refuse_no_input
from textevolve.studies.study import StudySpec
from textevolve.texts.chats import ASSISTANT, Chat, read_chat, replies_of, write_chat
from textevolve.texts.columns import (
    CANDIDATE_IMAGES,
    IMAGES,
    Roles,
    fold_name,
    is_text_column,
    join_passages,
)

PARAMETERS = (*(name for name in Profile.model_fields if name not in ("name", "description")),)
_GAP = "\n\n"
"""Between an instruction and what it is about."""


@dataclass(frozen=True, slots=True)
class RowReading:
    """How cases are made of rows. `map`: new names of columns, with their old ones. `each_reply`:
    each reply of the assistant in a chat is a case of its own. `images`: which columns hold some,
    beside those that are called `images` and `candidate_images`."""

    map: Mapping[str, str] = field(default_factory=dict[str, str])
    each_reply: bool = False
    images: ImageReading = field(default_factory=ImageReading)


@dataclass
class _Row:
    """A row that is being read: its place, the roles of its columns, and what was read so far."""

    row: Mapping[str, Any]
    where: str
    roles: Roles
    columns: Columns
    read: dict[str, str] = field(default_factory=dict[str, str])

    def get(self, name: str) -> Any:
        """A value; None for what is missing, as tables may also write it as NaN."""
        value = self.row.get(name)
        return None if isinstance(value, float) and value != value else value

    def text(self, name: str, value: Any, *, numbers: bool = False) -> str:
        """A value as text, chats among them. Raises InputError where it is none."""
        if (chat := read_chat(value)) is not None:
            self.columns.note_chat(chat)
            return write_chat(chat)
        if numbers and isinstance(value, int | float) and not isinstance(value, bool):
            return str(value)
        if not isinstance(value, str):
            raise InputError(f"{self.where}: '{name}' must be text, not {type(value).__name__}")
        return value


def cases_of_row(
    row: Mapping[str, Any], where: str, columns: Columns, reading: RowReading, number: str
) -> list[Case]:
    """The case that a row is, called by its id or else by `number`; with `each_reply` a case for
    each reply of its chat, whose ids are numbered from 1 behind a point.

    Raises:
        InputError: there is no input, or something is no text; names `where`.
    """
    of_images = (
        *(reading.images.columns or (IMAGES,)),
        *(reading.images.candidate_columns or (CANDIDATE_IMAGES,)),
    )
    if isinstance(case := row.get("case"), Mapping) and "candidates" in case:
        row = cast("Mapping[str, Any]", case)  # a line of an exported evaluation
    given = _Row(row, where, columns.roles_in(row, where, of_images), columns)
    id = next((str(v) for name in given.roles.ids if (v := given.get(name)) is not None), number)
    images, shown = _take_images(given, reading.images)
    name, chat = ("", None) if shown else _find_chat(given, reading)
    if chat is None:
        pairs = [(_take_input(given), _take_outputs(given) or (IMAGE_ALONE,) * len(shown))]
    else:
        given.read[name] = "input and output"
        pairs = _take_chat(given, chat, reading)
    if shown and len(shown) != len(pairs[0][1]):
        outputs = len(pairs[0][1])
        raise InputError(f"{where}: has images for {len(shown)} candidates, and {outputs} outputs")
    reference, context = _take_reference(given), _take_context(given)
    given.read |= dict.fromkeys(given.roles.ids, "id")
    given.read |= {name: "parameter" for name in (*PARAMETERS, "profile") if name in row}
    columns.taken |= given.read
    unread = columns.note_unread(row, (*given.read, "parameters"))
    parameters = _parameters(row, where, unread)
    several = chat is not None and reading.each_reply
    made = [
        Case(
            input,
            texts,
            f"{id}.{n}" if several else id,
            parameters,
            reference,
            context,
            images=images,
            candidate_images=shown,
        )
        for n, (input, texts) in enumerate(pairs, 1)
    ]
    for case in made if number else ():
        columns.note_id(case.id)
    return made


def _find_chat(given: _Row, reading: RowReading) -> tuple[str, Chat | None]:
    """The chat that gives input and output at once, where no column has an output."""
    if given.roles.has_outputs:
        if reading.each_reply:
            name = (*given.roles.lists, *given.roles.outputs)[0]
            raise InputError(
                f"{given.where}: each reply of a chat is to be judged, and '{name}' is an output of"
                " its own: leave out --each-reply, or the column"
            )
        return "", None
    for name in (*given.roles.chats, *given.roles.inputs):
        if (chat := read_chat(given.get(name))) is not None:
            given.columns.note_chat(chat)
            return name, chat
    return "", None


def _take_chat(given: _Row, chat: Chat, reading: RowReading) -> list[tuple[str, tuple[str, ...]]]:
    """Input and candidate of the last reply, or of each; no candidate where there is none."""
    if reading.each_reply:
        replies = replies_of(chat)
    else:
        replies = [(chat[:-1], chat[-1])] if chat[-1].speaker == ASSISTANT else []
    if not replies:
        given.columns.endless.append(given.where)
        return [(write_chat(chat), ())]
    return [(write_chat(before), (write_chat((reply,)),)) for before, reply in replies]


def _take_input(given: _Row) -> str:
    roles = given.roles
    named = (*roles.inputs, *roles.chats)
    name = next((one for one in named if given.get(one) is not None), None)
    if name is None:
        if named:
            raise InputError(f"{given.where}: '{named[0]}' is missing")
        raise refuse_no_input(given.row, roles, given.where)
    text = given.text(name, given.get(name))
    given.read[name] = "input"
    told = given.get(roles.instruction) if roles.instruction else None
    if roles.instruction in ("", name) or told is None:
        return text
    given.read[roles.instruction] = "input"
    return _GAP.join(filter(str.strip, (given.text(roles.instruction, told), text)))


def _take_outputs(given: _Row) -> tuple[str, ...]:
    roles = given.roles
    for name in roles.lists:
        if (value := given.get(name)) is not None:
            given.read[name] = "candidates"
            return _take_list(given, name, value)
    texts: list[str] = []
    for place, name in enumerate(roles.outputs, 1):
        given.read[name] = "output" if len(roles.outputs) == 1 else f"candidate {place}"
        if (value := given.get(name)) is not None:
            texts.append(given.text(name, value, numbers=True))
    return tuple(texts)


def _take_list(given: _Row, name: str, value: object) -> tuple[str, ...]:
    """Several outputs: texts or chats. Messages of the assistant alone are an output each."""
    chat = read_chat(value)
    if chat is not None and any(turn.speaker != ASSISTANT for turn in chat):
        return (given.text(name, value),)
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise InputError(f"{given.where}: '{name}' must be a list of texts")
    items = cast("Iterable[Any]", value)
    return tuple(given.text(name, [one] if chat is not None else one) for one in items)


def _take_images(
    given: _Row, reading: ImageReading
) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """The images of the input, and those of each candidate. One column may list an image for each
    candidate; of several columns each has those of one."""

    def take(name: str, role: str, value: Any) -> tuple[str, ...]:
        given.read[name] = role
        given.columns.has_outputs |= role == CANDIDATE_IMAGES
        return read_images(value, f"{given.where}: '{name}'", reading)

    def named(own: tuple[str, ...], always: str) -> list[str]:
        return [name for name in own or (always,) if name in given.row]

    images: list[str] = []
    for name in named(reading.columns, IMAGES):
        images += take(name, IMAGES, given.get(name))
    if len(images) > reading.most_images:
        raise InputError(
            f"{given.where}: holds {len(images)} images, and a case may have {reading.most_images}"
        )
    of_each = named(reading.candidate_columns, CANDIDATE_IMAGES)
    if len(of_each) != 1:
        shown = [take(name, CANDIDATE_IMAGES, given.get(name)) for name in of_each]
        return tuple(images), tuple(filter(None, shown) if not given.roles.has_outputs else shown)
    (name,) = of_each
    cells = list(list_images(given.get(name), f"{given.where}: '{name}'"))
    several = any(isinstance(one, list | tuple) for one in cells)
    urls = [take(name, CANDIDATE_IMAGES, one) for one in (cells if several else [cells])]
    return tuple(images), tuple(urls if several else ((url,) for url in urls[0]))


def _take_reference(given: _Row) -> str | None:
    """The reference answer. It may be a number, as gold answers often are; what else stands in a
    column of these names is none, except that `reference` can mean nothing else."""
    for name in given.roles.references:
        value = given.get(name)
        plain = isinstance(value, str | int | float) and not isinstance(value, bool)
        text = ""
        if plain or read_chat(value) is not None:
            text = given.text(name, value, numbers=True)
        elif fold_name(name) == "reference" and value is not None:
            raise InputError(f"{given.where}: '{name}' must be text, not {type(value).__name__}")
        if text.strip():
            given.read[name] = "reference"
            given.columns.references[name] = None
            return text
    return None


def _take_context(given: _Row) -> str | None:
    for name in given.roles.contexts:
        if text := join_passages(given.get(name)):
            given.read[name] = "context"
            return text
    return None


def _parameters(row: Mapping[str, Any], where: str, unread: Iterable[str]) -> dict[str, Any]:
    nested: object = row.get("parameters") or {}
    if not isinstance(nested, Mapping):
        raise InputError(f"{where}: 'parameters' must be a mapping")
    found: dict[str, Any] = dict(cast(Mapping[str, Any], nested))
    for name, value in row.items():
        if name in (*PARAMETERS, "profile") and value is not None:
            found[name] = value
    for name in unread:
        if near := difflib.get_close_matches(name, PARAMETERS, n=1, cutoff=0.85):
            raise InputError(f"{where}: unknown field '{name}'; did you mean '{near[0]}'?")
    if "profile" in found:
        profile = load_profile(str(found.pop("profile")))
        stated = {name: getattr(profile, name) for name in profile.model_fields_set}
        data = profile.model_dump(mode="json", include=set(stated) - {"description"})
        found = {**data, **found}
    return found


CaseLike: TypeAlias = Case | Mapping[str, Any] | tuple[str, Iterable[str]]


class MappedSpec(StudySpec):
    """What specifications have whose cases come from rows of the user's own."""

    map: Mapping[str, str] = option(
        {},
        "What a column of the data is to be called, as in --map input=frage. Repeatable.",
        group="Data",
        identity=False,
        metavar="NEW=OLD",
    )


class ImagesSpec(MappedSpec):
    """What specifications have whose rows may have images."""

    images: Several = option(
        (),
        "The column with images of the input: a path, relative to the data file, a data URL, or a"
        " list of them. Repeatable. With an input on the command line: the images themselves.",
        group="Data",
        identity=False,
        metavar="COLUMN",
    )
    image_limit: float = option(
        IMAGE_LIMIT,
        "MiB that an image may have.",
        group="Data",
        identity=False,
        gt=0,
        le=1024,
    )
    images_per_case: int = option(
        IMAGES_PER_CASE,
        "Images that an input, or a candidate, may have.",
        group="Data",
        identity=False,
        ge=1,
        le=1000,
    )


def image_reading(spec: ImagesSpec, candidates: tuple[str, ...] = ()) -> ImageReading:
    """How a specification has images read; `candidates`: the columns of those of candidates."""
    most = int(spec.image_limit * MIB)
    return ImageReading(spec.images, candidates, most_bytes=most, most_images=spec.images_per_case)


def folder_of(file: str) -> str:
    """Where the relative paths in a file's rows begin."""
    return "" if file == STANDARD_INPUT or file.startswith(PREFIX) else os.path.dirname(file)


def in_folder_of(reading: RowReading, file: str) -> RowReading:
    """The same for the rows of a file, whose relative paths begin in its folder."""
    return replace(reading, images=replace(reading.images, folder=folder_of(file)))


def read_cases(
    path: str, columns: Columns | None = None, reading: RowReading | None = None
) -> Iterator[Case]:
    """The cases of a file, a folder or a data set in order; `-` is JSON lines from standard input.

    Raises:
        InputError: the file cannot be read, or a line is not a case; names file and line.
    """
    columns, own = columns or Columns(), reading or RowReading()
    of_images = (*own.images.columns, *own.images.candidate_columns)

    def opened(file: str) -> None:
        nonlocal own
        own = in_folder_of(own, file)

    def is_text(column: str) -> bool:
        if column in of_images:
            return True
        return column not in PARAMETERS and is_text_column(column)

    rows = read_rows(path, "case", is_text, own.map, columns.take_header, opened)
    number = 0
    for number, (where, row) in enumerate(rows, 1):
        yield from cases_of_row(row, where, columns, own, str(number))
    if not number:
        raise InputError("no cases: the input is empty")
    columns.refuse_no_images("--images", own.images.columns)
    columns.refuse_no_images("--candidate-images", own.images.candidate_columns)
    columns.refuse_no_output(path)


def take_case(given: CaseLike, where: str = "case", columns: Columns | None = None) -> Case:
    """A case from a `Case`, a mapping, or a pair of input and candidates.

    Raises:
        InputError: it is none of these; names `where`.
    """
    (case,) = _take(given, where, columns or Columns(), RowReading(), "")
    return case


def check_iterable(given: object) -> None:
    """Raises InputError where these cannot be cases."""
    if isinstance(given, Mapping) or not isinstance(given, Iterable):
        kind: str = type(cast(object, given)).__name__
        raise InputError(f"cases must be a list or another iterable of them, not {kind}")


def take_cases(
    given: Iterable[CaseLike], columns: Columns | None = None, reading: RowReading | None = None
) -> Iterator[Case]:
    """Cases from Python objects, as `take_case` has them, by the same rules as those of files."""
    check_iterable(given)
    columns, reading = columns or Columns(), reading or RowReading()
    renaming = Renaming(reading.map)
    for number, case in enumerate(given, 1):
        one = renaming(case) if isinstance(case, Mapping) else case
        yield from _take(one, f"case {number}", columns, reading, str(number))
    renaming.refuse_unused()


def _with_read_images(case: Case, where: str, reading: ImageReading) -> Case:
    """The case with data URLs in the place of paths and bytes."""
    if not case.images and not case.candidate_images:
        return case
    return replace(
        case,
        images=read_images(case.images, f"{where}: images", reading),
        candidate_images=tuple(
            read_images(own, f"{where}: images of candidate {n}", reading)
            for n, own in enumerate(case.candidate_images, 1)
        ),
    )


def _take(
    given: CaseLike, where: str, columns: Columns, reading: RowReading, number: str
) -> list[Case]:
    if isinstance(given, Case):
        columns.references |= {} if given.reference is None else {"reference": None}
        made = given if given.id else replace(given, id=number)
        made = _with_read_images(made, where, reading.images)
        columns.note_id(made.id)
        return [made]
    if isinstance(given, Mapping):
        return cases_of_row(given, where, columns, reading, number)
    if isinstance(given, tuple) and len(given) == 2:  # pyright: ignore[reportUnnecessaryIsInstance]
        pair: Mapping[str, Any] = {"input": given[0], "candidates": given[1]}
        return cases_of_row(pair, where, columns, reading, number)
    raise InputError(f"{where}: give a Case, a mapping, or a pair (input, candidates)")
