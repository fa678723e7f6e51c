"""Conversion of rows to cases (`Case`): rows come from files and folders, data sets of the hub,
standard input, or Python.

A case has an input, outputs (its candidates), optionally an id, a reference answer and a context,
and parameters of its own, as columns or under `parameters`. A chat gives both the input and the
output. The names of columns are defined in `rows.columns`, chats in `rows.chats`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, TypeAlias, cast

from textevolve.errors import InputError
from textevolve.evaluation import CHECKS as CHECKED
from textevolve.evaluation import (
    EQUAL_TO,
    GROUP,
    IMAGE_ALONE,
    LABEL,
    ROW,
    SPAN_IDS,
    TITLE,
    Case,
    empty_default,
)
from textevolve.images import IMAGES_PER_CASE, Pictures
from textevolve.json_texts import as_array, as_object, is_mapping, pack_value, write_text
from textevolve.mappings import drop_none, omit, pick
from textevolve.messages import list_messages
from textevolve.rows import Renaming, read_rows
from textevolve.rows.chats import (
    ASSISTANT,
    Chat,
    find_last_reply,
    has_no_reply,
    read_chat,
    text_of,
    write_chat,
)
from textevolve.rows.columns import (
    CANDIDATE_IMAGES,
    CHECKS,
    IMAGES,
    INPUTS,
    REPEATS,
    Columns,
    Roles,
    column_text,
    find_group,
    find_title,
    fold_content,
    fold_name,
    is_answer,
    is_text_column,
    join_passages,
    list_names,
    list_paths,
    refuse_object,
)
from textevolve.rows.images import folder_of, list_images, read_images
from textevolve.rows.tables import name_of
from textevolve.trajectory import (
    NO_ANSWER,
    TRAJECTORY_FIELDS,
    Trajectory,
    passage_text,
    read_contexts,
    read_trajectory,
)

_GAP = "\n\n"
"""The text between an instruction and its input."""

NEAR = 0.85
"""The similarity ratio from which a column may be a misspelt parameter: `round` and `rounds` have
0.91, `weigths` and `weights` 0.86, `ordering` and `order` 0.77."""

# A case, a mapping with its columns, or a pair of an input and its candidates.
CaseLike: TypeAlias = Case | Mapping[str, Any] | tuple[str, Iterable[str]]

ReadChecks: TypeAlias = Callable[[Any, Mapping[str, Any], str], Mapping[str, Any] | None]


@dataclass(frozen=True, slots=True)
class RowReading:
    """The options for reading cases from rows.

    Attributes:
        map: The old name of a column for each new name.
        each_reply: Whether each reply of the assistant in a chat is a case of its own.
        images: Whether images are read from the columns `images` and `candidate_images`.
        folder: The folder from which relative paths of images start.
        parameters: The columns that are parameters of the case. Another column that is nearly named
            so is refused if `fits` tells that its value would be one of the parameter.
        whole: Whether the case keeps the row and its reference as they are, for a function of the
            user.
        letters: Whether outputs may be in columns `a` and `b`.
        trajectory: Whether an agent's steps are read; rows with steps need no output.
        answered: Whether an application will produce the output, so that rows need none.
        compared: Whether the case keeps what its row holds, by which equal rows are found.
        checks: Returns the checks of a row as a parameter, from the column with them (None without
            one), the row and its place; None if no judge applies them.
        columns_of_checks: Returns the names in braces of the study's checks and of those in a row's
            cell, which count as read where they are columns.
    """

    map: Mapping[str, str] = empty_default(dict)
    each_reply: bool = False
    images: bool = True
    folder: str = ""
    parameters: tuple[str, ...] = ()
    fits: Callable[[str, Any], bool] = lambda _name, _value: False
    whole: bool = False
    letters: bool = False
    trajectory: bool = False
    answered: bool = False
    compared: bool = False
    checks: ReadChecks | None = None
    columns_of_checks: Callable[[Any], Iterable[str]] | None = None


def cases_of_row(
    row: Mapping[str, Any], where: str, columns: Columns, reading: RowReading, number: str
) -> list[Case]:
    """Return a list with the case of a row, whose id is that of the row or else `number`. With
    `each_reply` the list has a case for each reply of the row's chat; their ids have a point and
    the number of the reply at the end.

    Raises:
        InputError: there is no input, or a value is no text; names `where`.
    """
    if is_mapping(case := row.get("case")) and "candidates" in case:
        row = case  # a line of an exported evaluation
    aside = (IMAGES, CANDIDATE_IMAGES) if reading.images else ()
    roles = columns.find_roles(row, where, aside, letters=reading.letters)
    source = _RowSource(row, where, columns, reading, roles)
    candidate_images: tuple[tuple[str, ...], ...] = ()
    columns.sees_images |= reading.images
    if reading.images:
        images, candidate_images = source.take_images()
        source.pictures = Pictures(images, IMAGES_PER_CASE)
    chat = None if candidate_images else source.find_chat()
    trajectory: Trajectory | None = None
    if reading.trajectory:
        trajectory = source.take_trajectory(in_chat=chat is not None)

    if chat is None:
        input = source.take_input()
        outputs = source.take_outputs() or (IMAGE_ALONE,) * len(candidate_images)
        images = tuple(source.pictures.urls)
        cases = [Case(input, outputs, images=images, candidate_images=candidate_images)]
    else:
        cases = source.split_chat(chat)

    has_several = len(cases) > 1 or len(cases[0].candidates) > 1
    if has_several and reading.checks is not None:
        trajectory = None  # checks of a row may read its steps; several outputs have none in common

    if trajectory is not None and not reading.answered:
        cases = [replace(case, candidates=case.candidates or (NO_ANSWER,)) for case in cases]
        if has_several:
            raise InputError(
                f"{where}: the row has tool calls and several outputs; tool calls belong to a"
                " single output"
            )

    first = cases[0]
    columns.pictures += sum(text.startswith("data:image/") for text in first.candidates)
    # Langfuse writes this into a text instead of a medium; the last case has all turns.
    texts = (cases[-1].input, *cases[-1].candidates)
    columns.parts += sum(text.count("@@@langfuseMedia:") for text in texts)
    if candidate_images and len(candidate_images) != len(first.candidates):
        raise InputError(
            f"{where}: has images for {len(candidate_images)} candidates, and"
            f" {len(first.candidates)} outputs"
        )

    case_id = source.take_first(roles.ids, "id")
    id = number if case_id is None else str(case_id)
    reference = source.take_reference() if roles.references else None
    if source.is_repeat():
        # Repeats have the id of their item, by which intervals are clustered.
        item_id = source.take_item_id() if case_id is None else id
        id = columns.note_repeat(f"{first.input}{first.images}", id, item_id)
    facts: dict[str, Any] = {
        "parameters": source.take_parameters(),
        "reference": reference,
        "context": source.take_context() if roles.contexts else None,
        "trajectory": trajectory,
    }
    facts["parameters"] |= source.take_group([] if chat is None else cases)
    if reading.checks is not None:
        facts["parameters"] |= source.take_checks(reading.checks)
    if reading.compared:
        facts["parameters"] |= source.take_title()
    for name in omit(row, source.read):
        source.refuse_near(name, source.get(name), name)
    if reading.whole:
        facts["parameters"] |= source.keep_row()
    columns.taken |= source.read
    columns.note_unread(row, (*source.read, "parameters"))
    if chat is not None and reading.each_reply:
        return [_number_reply(replace(case, id=id, **facts), n) for n, case in enumerate(cases, 1)]

    return [replace(first, id=id, **facts)]


def _number_reply(case: Case, number: int) -> Case:
    """Return the case of one of a chat's replies: its number is part of its id and of its title."""
    title = case.parameters.get(TITLE)
    numbered = {} if title is None else {TITLE: f"{title}.{number}"}
    return replace(case, id=f"{case.id}.{number}", parameters={**case.parameters, **numbered})


@dataclass
class _RowSource:
    """A row that is being read: its position, the roles of its columns, the columns `read` so far,
    and the `pictures` found so far, first those in its column of images."""

    row: Mapping[str, Any]
    where: str
    columns: Columns
    reading: RowReading
    roles: Roles
    read: dict[str, str] = empty_default(dict)
    pictures: Pictures = empty_default(Pictures)

    def get(self, name: str) -> Any:
        """Return the value of a column; None if the column is missing or its value is NaN."""
        value = self.row.get(name)
        return None if isinstance(value, float) and value != value else value

    def take_first(self, names: Iterable[str], role: str) -> Any:
        """Return the first value that is present, and record its column as read in this role."""
        for name in names:
            if (value := self.get(name)) is not None:
                self.read[name] = role
                return value

        return None

    def text(self, name: str, value: Any, pictures: Pictures | None = None) -> str:
        """Return a value as text: a chat turn by turn, a number in its written form. `pictures`:
        collects those of a chat.

        Raises:
            InputError: the value is of another type.
        """
        if (chat := read_chat(value, pictures)) is not None:
            self.columns.parts += sum(turn.others for turn in chat)
            return write_chat(chat)

        return text_of(value, name, self.where)

    def find_chat(self) -> Chat | None:
        """Return the chat that gives both input and output, if no column has an output; None
        otherwise.

        Raises:
            InputError: a column has an output, although each reply shall be a case.
        """
        roles = self.roles

        if roles.has_outputs:
            if self.reading.each_reply:
                name = (*roles.lists, *roles.outputs)[0]
                raise InputError(
                    f"{self.where}: '{name}' is an output besides the replies of the chat: leave"
                    " out --each-reply or that column"
                )

            return None

        for name in (*roles.chats, *roles.inputs):
            if (chat := read_chat(self.get(name), self.pictures)) is not None:
                self.columns.has_outputs = True
                self.read[name] = "input and output"
                return chat

        return None

    def split_chat(self, chat: Chat) -> list[Case]:
        """Return cases with an input, its candidate, and the pictures of both: with `each_reply`
        one for each reply, otherwise one for the assistant's last reply. The turns before a reply
        are its input; those after the last one are left out, and counted for the line on columns. A
        chat without a reply, or one whose reply an application will give, is itself the input."""
        self.columns.thoughts += sum(bool(turn.thought) for turn in chat)
        self.columns.parts += sum(turn.others for turn in chat)
        places = [place for place, turn in enumerate(chat) if turn.speaker == ASSISTANT]
        if not self.reading.each_reply:
            last = find_last_reply(chat)
            if last is None or (self.reading.answered and chat[-1].speaker != ASSISTANT):
                places = []
            else:
                places = [last]
                self.columns.after_reply += last < len(chat) - 1

        return [self._cut(chat, place) for place in places or [len(chat)]]

    def _cut(self, chat: Chat, place: int) -> Case:
        """Return the case of the reply at a place of a chat; behind its end there is none."""
        images = chat[max(place - 1, 0)].images
        replies = chat[place : place + 1]
        shown = tuple(turn.images[len(images) :] for turn in replies)

        return Case(
            write_chat(chat[:place]),
            tuple(write_chat((turn,)) for turn in replies),
            images=images,
            candidate_images=shown if any(shown) else (),
        )

    def take_input(self) -> str:
        roles = self.roles
        names = (*roles.inputs, *roles.chats)
        name = next((name for name in names if self.get(name) is not None), None)
        if name is None:
            if names:
                raise InputError(f"{self.where}: '{names[0]}' is missing")
            raise InputError(
                f"{self.where}: no column has the input, whose usual names are"
                f" {', '.join(INPUTS)}; saw {list_names(list_paths(self.row))}; name the column"
                " with --map input=COLUMN, or one with whole chats with --map messages=COLUMN"
            )

        instruction = roles.instruction
        parts = [instruction] if instruction not in ("", name) else []
        texts = [(part, self.take_first([part], "input")) for part in (*parts, name)]
        written = [
            self.text(part, value, self.pictures) for part, value in texts if value is not None
        ]

        return written[0] if len(written) == 1 else _GAP.join(filter(str.strip, written))

    def take_outputs(self) -> tuple[str, ...]:
        roles = self.roles
        for name in roles.lists:
            if (value := self.take_first([name], "candidates")) is not None:
                return self._take_list(name, value)
        texts: list[str] = []
        for place, name in enumerate(roles.outputs, 1):
            self.read[name] = "output" if len(roles.outputs) == 1 else f"candidate {place}"
            if (value := self.get(name)) is not None:
                texts.append(self.text(name, value))

        return tuple(texts)

    def _take_list(self, name: str, value: object) -> tuple[str, ...]:
        """Return several outputs: texts or chats. A list of messages that are all the assistant's
        is a list of outputs; the candidates of an exported evaluation are objects with a text."""
        chat = read_chat(value)
        if chat is not None and any(turn.speaker != ASSISTANT for turn in chat):
            return (write_chat(chat),)
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
            raise InputError(f"{self.where}: '{name}' must be a list of texts")
        items = list(cast("Iterable[Any]", value))
        if items and all(isinstance(as_object(item).get("text"), str) for item in items):
            return tuple(item["text"] for item in items)

        return tuple(self.text(name, item if chat is None else [item]) for item in items)

    def is_repeat(self) -> bool:
        """Tell whether a column has the number of the row among the repeats of its item."""
        numbers = [
            name
            for name in self.row
            if fold_name(name) in REPEATS and type(self.get(name)) is int and name not in self.read
        ]
        self.read |= dict.fromkeys(numbers, "repeat")
        return bool(numbers)

    def take_group(self, replies: Sequence[Case]) -> dict[str, str]:
        """Return the parameter that says on which other cases this one depends: its group, or else
        what the row holds. Several `replies` of a chat are a group if no column names one."""
        named = find_group(self.row) or find_group(as_object(self.row.get("parameters")))
        if named is not None:
            if named[0] in self.row:
                self.read[named[0]] = GROUP
            return {GROUP: named[1]}
        if len(replies) > 1:
            # The texts alone if there are no pictures: so stored runs know the group.
            parts = [(case.input, case.candidates, *case.images) for case in replies]
            content = repr(parts).encode("utf-8", "surrogatepass")
            return {GROUP: f"chat {hashlib.sha256(content).hexdigest()[:12]}"}
        return {EQUAL_TO: fold_content(self.row)} if self.reading.compared else {}

    def take_title(self) -> dict[str, str]:
        """Return the parameter with the name by which people know the row; empty if it has none."""
        name = find_title(self.row)
        if not name:
            return {}
        self.read.setdefault(name, "title")

        return {TITLE: column_text(self.row[name]).strip()}

    def take_checks(self, read: ReadChecks) -> dict[str, Any]:
        """Return the parameter with the checks of the row; empty if it has none."""
        names = [name for name in self.row if fold_name(name) in CHECKS]
        cell = self.take_first(names, "checks")
        if cell is None:  # those of an exported case
            cell = as_object(self.row.get("parameters")).get(CHECKED)
        if self.reading.columns_of_checks is not None:
            named_columns = self.reading.columns_of_checks(cell)
            self.read |= {name: name for name in named_columns if name in self.row}
        checks = read(cell, self.row, self.where)

        return {} if checks is None else {CHECKED: checks}

    def take_item_id(self) -> str | None:
        """Return the id of the item of a repeat from the only column whose name ends like that of
        an id, such as `task_id`; None without such a column."""
        names = [name for name in self.row if fold_name(name).endswith("_id")]
        value = self.take_first(names, "id") if len(names) == 1 else None
        return None if value is None else str(value)

    def take_images(self) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
        """Return the images of the input, and those of each candidate. The column of candidates'
        images has an entry for each candidate: one image, or a list of them."""
        self.read |= {name: name for name in (IMAGES, CANDIDATE_IMAGES) if name in self.row}
        self.columns.has_outputs |= CANDIDATE_IMAGES in self.row

        def read(name: str, value: object) -> tuple[str, ...]:
            return read_images(value, f"{self.where}: '{name}'", self.reading.folder)

        cells = list_images(self.get(CANDIDATE_IMAGES), f"{self.where}: '{CANDIDATE_IMAGES}'")
        candidates = tuple(read(CANDIDATE_IMAGES, cell) for cell in cells)

        return read(IMAGES, self.get(IMAGES)), candidates

    def take_reference(self) -> str | None:
        """Return the reference answer: a text, a number, a chat, or a list of accepted answers, as
        JSON. Truth values are ignored, except in the column `reference`, where they are an error.

        Raises:
            InputError: it is an object, of which a path must name a part.
        """
        for name in self.roles.references:
            value = self.get(name)
            if self.reading.whole and value is not None and read_chat(value) is None:
                # A function of the user takes what it is; other readers need a text.
                self.read[name] = "reference"
                self.columns.references[name] = None
                return write_text(value)
            text = ""
            answers = as_array(value)
            if answers and all(map(is_answer, answers)):
                text = write_text(answers)
            elif is_answer(value) or read_chat(value):
                text = self.text(name, value)
            elif value not in (None, []) and fold_name(name) == "reference":
                refuse_object(value, name, self.where)
                text = self.text(name, value)

            if text.strip():
                self.read[name] = "reference"
                self.columns.references[name] = None
                return text

        for name in self.roles.references:
            refuse_object(self.get(name), name, self.where)

        return None

    def take_context(self) -> str | None:
        for name in self.roles.contexts:
            value = self.get(name)
            if text := join_passages(value):
                self.read[name] = "context"
                return text
            if any(map(passage_text, as_array(value))):
                read_contexts(value, f"{self.where}: '{name}'")  # names the one without a text

        return None

    def take_trajectory(self, *, in_chat: bool) -> Trajectory | None:
        """Return the agent's steps in the row's columns; if no column has tool calls, those of the
        chat. None if there are no steps."""
        stated = {
            name: value for name in TRAJECTORY_FIELDS[1:] if (value := self.get(name)) is not None
        }
        self.read |= {name: name for name in stated}
        self.columns.has_outputs |= bool(stated)
        names = (*self.roles.chats, *self.roles.inputs) if in_chat else ()
        lists = (listed for name in names if (listed := list_messages(self.get(name))))
        messages = next(lists, None)
        # A question alone is no run of an agent that ended without an answer.
        if messages is not None and not stated and has_no_reply(messages):
            return None

        return read_trajectory({"tool_calls": messages, **stated}, self.where)

    def take_parameters(self) -> dict[str, Any]:
        if not self.reading.parameters:
            return {}
        nested: object = self.row.get("parameters") or {}
        if not is_mapping(nested):
            raise InputError(f"{self.where}: 'parameters' must be a mapping")
        known_parameters: dict[str, Any] = {}
        for name, value in nested.items():
            if name in self.reading.parameters:
                known_parameters[name] = value
                continue
            if name in (GROUP, EQUAL_TO, CHECKED, TITLE):  # of an exported case
                continue
            self.refuse_near(name, value, f"parameters.{name}")
            self.columns.unread[f"parameters.{name}"] = None

        parameters = pick(self.row, self.reading.parameters)
        self.read |= dict.fromkeys(parameters, "parameter")

        return {**known_parameters, **drop_none(parameters)}

    def refuse_near(self, name: str, value: object, place: str) -> None:
        """Refuse a name that is nearly that of a parameter, with a value of it: the case would be
        judged without what its row asks for. `place`: where the name stands in the row.

        Raises:
            InputError: it is a misspelt parameter; names the right one.
        """
        near = None if value is None else _near_parameter(fold_name(name), self.reading.parameters)
        if near is not None and self.reading.fits(near, value):
            raise InputError(
                f"{self.where}: '{place}' is no parameter; write '{near}', or give it another name"
                " if it is none"
            )

    def keep_row(self) -> dict[str, Any]:
        """Return the parameters that hold the row and its reference as they were."""
        reference_columns = [name for name, role in self.read.items() if role == "reference"]
        label = self.get(reference_columns[0]) if reference_columns else None
        return {ROW: pack_value(dict(self.row)), LABEL: pack_value(label)}


@lru_cache(maxsize=1024)
def _near_parameter(name: str, parameters: tuple[str, ...]) -> str | None:
    names = [parameter for parameter in parameters if parameter not in SPAN_IDS]
    return next(iter(get_close_matches(name, names, 1, NEAR)), None)


def read_cases(
    path: str, columns: Columns | None = None, reading: RowReading | None = None
) -> Iterator[Case]:
    """Read the cases of a file, a folder or a data set in order; `-` is JSON lines from standard
    input.

    Raises:
        InputError: the file cannot be read, a line is not a case (names file and line), there are
            no cases, or no column has the output that they need.
    """
    columns = columns or Columns()
    rules = reading or RowReading()

    def enter(file: str) -> None:
        nonlocal rules
        rules = replace(rules, folder=folder_of(file))

    def is_text(column: str) -> bool:
        is_parameter = column in rules.parameters and column not in SPAN_IDS
        return not is_parameter and is_text_column(column, letters=rules.letters)

    rows = read_rows(path, "case", is_text, rules.map, columns.take_header, enter)
    number = 0
    for number, (where, row) in enumerate(rows, 1):
        for case in cases_of_row(row, where, columns, rules, str(number)):
            columns.note_id(case.id)
            yield case

    if not number:
        raise InputError(f"{name_of(path)}: has no cases")
    if not (columns.has_outputs or rules.answered):
        seen = list_names([*columns.taken, *columns.unread])
        raise InputError(
            f"{path}: no column has the output; saw {seen}; name the column with --map"
            " output=COLUMN, or have a model write outputs with compare"
        )


def take_cases(
    sources: Iterable[CaseLike], columns: Columns | None = None, reading: RowReading | None = None
) -> Iterator[Case]:
    """Convert Python objects to cases: `Case`s, mappings (by the same rules as rows of files), and
    pairs of an input and its candidates.

    Raises:
        InputError: an object is none of these; names its position.
    """
    if is_mapping(sources) or not isinstance(sources, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        kind: str = type(sources).__name__
        raise InputError(f"cases must be a list or another iterable of them, not {kind}")
    columns = columns or Columns()
    reading = reading or RowReading()
    renaming = Renaming(reading.map)

    for number, source in enumerate(sources, 1):
        where = f"case {number}"
        if isinstance(source, Case):
            columns.references |= {} if source.reference is None else {"reference": None}
            columns.taken |= {} if source.context is None else {"context": "context"}
            case = source if source.id else replace(source, id=str(number))
            if reading.compared and GROUP not in case.parameters:
                parameters = {**case.parameters, EQUAL_TO: repr(replace(case, id=""))}
                case = replace(case, parameters=parameters)
            cases = [_read_images(case, where, reading)]
        elif isinstance(source, Mapping):
            cases = cases_of_row(renaming(source), where, columns, reading, str(number))
        elif isinstance(source, tuple) and len(source) == 2:  # pyright: ignore[reportUnnecessaryIsInstance]
            pair = {"input": source[0], "candidates": source[1]}
            cases = cases_of_row(pair, where, columns, reading, str(number))
        else:
            raise InputError(
                f"{where}: give a Case, a mapping, or a pair (input, candidates), not"
                f" {type(source).__name__}; give a data frame as frame.to_dict('records')"
            )

        for case in cases:
            columns.note_id(case.id)
            yield case

    renaming.refuse_unused()


def _read_images(case: Case, where: str, reading: RowReading) -> Case:
    """Return the case with its images as data URLs instead of paths and bytes."""
    if not (reading.images and (case.images or case.candidate_images)):
        return case
    images = read_images(case.images, f"{where}: images")
    candidate_images = tuple(
        read_images(urls, f"{where}: images of candidate {n}")
        for n, urls in enumerate(case.candidate_images, 1)
    )

    return replace(case, images=images, candidate_images=candidate_images)
