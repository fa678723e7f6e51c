"""The roles of columns in users' data, by their names: which column is the input, which the output,
and so on; and a summary of how columns were read over all rows.

Names are compared without regard to case; spaces, hyphens and underscores are equal.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from textevolve.errors import InputError
from textevolve.evaluation import SPAN_IDS, empty_default
from textevolve.images import Pictures
from textevolve.json_texts import (
    as_array,
    as_object,
    is_mapping,
    is_sequence,
    parse_printed,
    write_text,
)
from textevolve.ledger import leave_out, log, note_line
from textevolve.mappings import omit
from textevolve.messages import list_entries, list_messages
from textevolve.rows.chats import read_chat, write_chat
from textevolve.trajectory import passage_text

TITLES = ("question_id", "case_id", "ticket_id", "ticket", "case", "key", "name", "number")
"""The columns by which people know a row, apart from `id`, the first that a row has; any other
column whose name ends in `_id` comes after them."""
TITLE_LENGTH = 60
INPUTS = ("input", "prompt", "question", "instruction", "query", "user_input")
CHATS = ("messages", "conversation", "conversations", "chat")
LISTS = ("candidates", "outputs", "responses", "completions")
OUTPUTS = ("candidate", "output", "actual_output", "response", "completion")
"""The names of columns with an output. If columns match several names, the first name here counts.
It stands for the name itself and its numbered forms, or else for all names that start with it, such
as output_gpt and output_llama."""
ANSWER = "answer"
"""The column that is the output if there is no other output column, and the reference otherwise."""
REFERENCES = (
    "reference",
    "expected",
    "ideal",
    "target",
    "gold",
    "ground_truth",
    "reference_answer",
    "expected_output",
    ANSWER,
)
"""The names of columns with a reference answer; the first that is not empty counts."""
IMAGES = "images"
CANDIDATE_IMAGES = "candidate_images"
"""The default columns with images: those of the input, and those of the candidates."""
CONTEXTS = ("retrieved_contexts", "retrieval_context", "context", "contexts")
"""The names of columns with the context of an answer: what was retrieved for it comes before what
should have been."""
CHECKS = ("checks", "assert")
"""The names of columns with the checks of a row."""
UNAPPLIED = "the column '%s' has checks that no judge applies: add --judge checks"
REPEATS = ("epoch", "attempt", "trial", "repeat", "repetition", "sample")
"""The names of columns with the number of a row among the repeats of one item."""
GROUPS = ("group", "chat_id", "conversation_id", "session_id", "thread_id", "trace_id")
"""The names of columns with the group of a row; the first that is not empty counts. Rows of one
group, such as the replies of one chat, are no independent observations."""
_IDENTIFIER = re.compile(
    r"(.*_)?id|uuid|guid|index|unnamed:_\d+|(.*_)?timestamp|.*_at|created|updated"
)
"""The folded names of columns that identify a row, or say when it was logged."""

_USUAL = frozenset(
    (*INPUTS, *CHATS, *LISTS, *OUTPUTS, *REFERENCES, *CONTEXTS, "id", "task", "text", "label")
)
_MEASURES = (
    "tokens",
    "cost",
    "time",
    "seconds",
    "latency",
    "length",
    "count",
    "date",
    "logprobs",
    "id",
    "name",
    "label",
    "model",
    "type",
    "format",
    "schema",
    "score",
    "scores",
    "images",
)
"""The endings of column names that describe an output but contain none, as in output_tokens."""
_BLANK = re.compile(r"\n\s*\n")
_BREAKS = re.compile(r"[\s_-]+|(?<=[a-z])(?=[A-Z])")
_LETTERS = ("a", "b")
"""The names of the two texts of a pair in labelled data."""


@dataclass(frozen=True, slots=True)
class Roles:
    """The columns of a row by role, under their names in the data.

    In each role the best matching column comes first, except in `outputs`, which keep their order
    in the row. `lists`: columns that may contain several outputs. `instruction`: a column whose
    text precedes the input, as in Alpaca's rows.
    """

    inputs: tuple[str, ...]
    chats: tuple[str, ...]
    lists: tuple[str, ...]
    outputs: tuple[str, ...]
    references: tuple[str, ...]
    contexts: tuple[str, ...]
    ids: tuple[str, ...]
    instruction: str = ""

    @property
    def has_outputs(self) -> bool:
        return bool(self.lists or self.outputs)


@lru_cache(maxsize=1024)
def fold_name(name: object) -> str:
    """Return a column's name in the form that is compared: lower case, with underscores for spaces
    and hyphens, and before the capitals of `expectedOutput`."""
    return _BREAKS.sub("_", str(name).strip()).lower().strip("_")


def names_column(text: str) -> bool:
    """Tell whether a text is one of the usual names of columns."""
    return fold_name(text) in _USUAL


@lru_cache(maxsize=256)
def find_roles(columns: tuple[object, ...], *, letters: bool = False) -> Roles:
    """Return the roles of columns, by the names of all of them. `letters`: whether `a` and `b` are
    outputs if no other column is one."""
    folded: dict[str, str] = {}
    names = [column for column in columns if isinstance(column, str)]
    for column in names:
        folded.setdefault(fold_name(column), column)
    lists = _named(LISTS, folded)
    families = [family for stem in OUTPUTS if (family := _family(stem, folded))]
    # Beside another output, `candidate` alone is the number of a text, as in exports.
    is_number = len(families) > 1 and families[0] == (folded.get(OUTPUTS[0]),)
    outputs = families[is_number] if families else ()
    if letters and not (lists or outputs):
        outputs = _named(_LETTERS, folded)
    answer = folded.get(ANSWER)
    references = _named(REFERENCES, folded)
    if answer is not None and not (lists or outputs):
        outputs = (answer,)
        references = tuple(name for name in references if name != answer)
    both = {"instruction", "input"} <= folded.keys()

    return Roles(
        inputs=_named(INPUTS, folded),
        chats=_named(CHATS, folded),
        lists=lists,
        outputs=outputs,
        references=references,
        contexts=_named(CONTEXTS, folded),
        ids=_named(("id",), folded),
        instruction=folded["instruction"] if both else "",
    )


def _named(names: Iterable[str], folded: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(folded[name] for name in names if name in folded)


def _family(stem: str, folded: Mapping[str, str]) -> tuple[str, ...]:
    """Return the column `stem` and its numbered forms, sorted by number; if there are none, the
    columns that start with `stem_`, except measures such as `stem_tokens`. `folded`: the columns by
    their folded names."""
    numbered: list[tuple[int, str]] = [(-1, folded[stem])] if stem in folded else []
    members: list[str] = []

    for name, column in folded.items():
        if match := re.fullmatch(rf"{stem}_?(\d+)", name):
            numbered.append((int(match[1]), column))
        elif name.startswith(f"{stem}_") and name.rpartition("_")[2] not in _MEASURES:
            members.append(column)

    return tuple(column for _, column in sorted(numbered)) or tuple(members)


def find_group(row: Mapping[str, Any], shown: Collection[str] = ()) -> tuple[str, str] | None:
    """Return the column that names the group of a row, and the group; None without one. `shown`:
    the columns that templates show; a column `group` among them is a value like any other."""
    for column in _list_groups(tuple(row)):
        text = column_text(row[column]).strip()
        is_value = column in shown and fold_name(column) == GROUPS[0]
        if text not in ("", "NaN") and not is_value:
            return column, text

    return None


@lru_cache(maxsize=256)
def _list_groups(columns: tuple[str, ...]) -> tuple[str, ...]:
    """Return the columns that may name the group of a row."""
    folded: dict[str, str] = {}
    for name in columns:
        folded.setdefault(fold_name(name), name)
    return _named(GROUPS, folded)


def fold_content(row: Mapping[str, Any], shown: Collection[str] = ()) -> str:
    """Return the values of a row in the form in which rows are compared: without the case and the
    white space of texts, and without ids and times of logs, which make equal rows different. Empty
    if nothing is left. `shown`: the columns that templates show, which count whatever their
    names."""
    folded: dict[str, str] = {}
    for name in sorted(map(str, row)):
        text = column_text(row[name])
        if text.strip() and (name in shown or not _IDENTIFIER.fullmatch(fold_name(name))):
            folded[name] = " ".join(text.casefold().split())

    return write_text(folded) if folded else ""


def find_contents(
    rows: Iterable[Mapping[str, Any]], answers: Collection[str], shown: Collection[str] = ()
) -> list[str]:
    """Return what each row holds (`fold_content`), by which rows are equal. Rows are told apart by
    their questions; if all have one, or none, the contents are empty, unless all rows are equal.
    `answers`: the columns that hold a right answer or an output, and no question."""
    contents: list[str] = []
    questions: set[str] = set()
    for row in rows:
        if len(questions) < 2:  # a second one tells them apart already
            questions.add(fold_content(omit(row, answers), shown))
        contents.append(fold_content(row, shown))

    tells = len(questions) > 1 or ("" not in questions and len(set(contents)) == 1)
    return contents if tells else [""] * len(contents)


def is_text_column(column: str, *, letters: bool = False) -> bool:
    """Tell whether the cells of a column are plain text, which must not be parsed as JSON."""
    name = fold_name(column)
    allowed = _LETTERS if letters else ()
    if name in (*INPUTS, *CHATS, *REFERENCES, *CONTEXTS, *SPAN_IDS, "id", "text", *allowed):
        return True
    return name not in LISTS and any(re.fullmatch(rf"{stem}(_.*|\d+)?", name) for stem in OUTPUTS)


def join_passages(value: object) -> str:
    """Return a context as one text. A text is returned unchanged; the passages of a list, or of a
    text that is one as JSON or Python writes it, are joined by blank lines, which are removed
    within passages. A passage is a text, or an object with one; None is no passage. An empty list
    and other values give an empty text."""
    parsed = parse_printed(value)
    if isinstance(parsed, str):
        return parsed if parsed.strip() else ""
    passages = [parsed] if is_mapping(parsed) else as_array(parsed)
    texts = [passage_text(passage) for passage in passages if passage is not None]
    if None in texts:
        return value if isinstance(value, str) else ""

    return "\n\n".join(_BLANK.sub("\n", text.strip()) for text in texts if text and text.strip())


def list_answers(label: object) -> tuple[str, ...]:
    """Return the accepted answers that a reference answer stands for: those of a list, or of a text
    that is a list of texts or numbers as JSON or Python writes it; otherwise the text itself. Blank
    ones are left out."""
    parsed = parse_printed(label)
    if isinstance(parsed, str):
        return (parsed,)
    answers = parsed if is_sequence(parsed) else (label,)
    if not answers or not all(map(is_answer, answers)):
        return (column_text(label),)
    texts = (
        str(answer).removesuffix(".0") if isinstance(answer, float) else str(answer)
        for answer in answers
    )
    return tuple(filter(str.strip, texts)) or (column_text(label),)


def is_answer(value: object) -> bool:
    """Tell whether a value can be a reference answer as it is: a text or a number."""
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def refuse_object(value: object, column: str, where: str) -> None:
    """Raise an InputError if a reference answer is an object, or a list of objects; it names the
    paths to its parts."""
    entries = as_array(value)
    path = f"{column}.0" if entries else column
    first_entry: object = entries[0] if entries else value
    if not is_mapping(first_entry) or list_messages(entries):
        return
    fields = [f"{path}.{name}" for name in first_entry]
    raise InputError(
        f"{where}: '{column}' is an object, and a reference answer is a text or a list of texts;"
        f" name the part with --map reference={fields[0] if fields else f'{path}.NAME'}"
        f" (it has {', '.join(fields[:NAMED]) or 'no fields'})"
    )


def column_text(value: object) -> str:
    """Return the value of a column as a text: None becomes an empty text, and other values than
    texts are written as JSON."""
    return "" if value is None else write_text(value)


def prompt_text(value: object, pictures: Pictures | None = None) -> str:
    """Return the value of a column as the text that a prompt and its judges see, in which a chat is
    written turn by turn. `pictures`: the pictures that are sent with it."""
    text = column_text(value)
    if not text.lstrip().startswith("["):
        return text
    chat = read_chat(value, pictures)
    return text if chat is None else write_chat(chat)


def find_title(row: Mapping[str, Any]) -> str:
    """Return the column by which people know a row, such as `ticket` or `question_id`; an empty
    text if there is none, or if the row has an `id`, which names it already."""
    names = {fold_name(name): name for name in row}
    if "id" in names:
        return ""
    titles = [names[title] for title in TITLES if title in names]
    titles += [name for folded, name in names.items() if folded.endswith("_id")]
    is_short = (name for name in titles if 0 < len(column_text(row[name]).strip()) <= TITLE_LENGTH)

    return next(is_short, "")


def check_prompt_value(where: str, name: str, value: Any) -> None:
    """Check that the value of a column is something that a prompt can show.

    Raises:
        InputError: it is an object, or a list of objects that is no chat.
    """
    if isinstance(value, str):
        return
    has_objects = any(isinstance(item, Mapping) for item in (value, *list_entries(value)))
    if has_objects and list_messages(value) is None:
        raise InputError(
            f"{where}: '{name}' must be text for a prompt, not {type(value).__name__}; give the"
            " field that the prompt needs a column of its own"
        )


NAMED = 12
"""The number of columns whose names a message lists."""


@dataclass
class Columns:
    """The roles in which the columns of cases were read, over all rows.

    Attributes:
        header: The columns of a table, also if they are empty in some rows.
        taken: The role of each column that was read.
        unread: The other columns that contain something.
        references: The columns with a reference answer.
        has_outputs: Whether a column has outputs.
        sees_images: Whether the study reads images.
        after_reply: The number of chats with turns after the assistant's last reply.
        thoughts: The number of turns whose thought is left out.
        parts: The number of parts of chats that are no text and no image that is shown.
        pictures: The number of outputs that are the data URL of an image.
    """

    header: tuple[str, ...] = ()
    taken: dict[str, str] = empty_default(dict)
    unread: dict[str, None] = empty_default(dict)
    references: dict[str, None] = empty_default(dict)
    has_outputs: bool = False
    sees_images: bool = False
    after_reply: int = 0
    thoughts: int = 0
    parts: int = 0
    pictures: int = 0
    _ids: set[int] = empty_default(set)
    _repeats: set[int] = empty_default(set)
    _items: dict[int, str] = empty_default(dict)
    _doubles: dict[str, None] = empty_default(dict)
    _answer: str = ""

    def take_header(self, names: Sequence[str]) -> None:
        self.header = tuple(names)

    def find_roles(
        self, row: Mapping[str, Any], where: str, aside: Collection[str], *, letters: bool
    ) -> Roles:
        """Return the roles of the columns of a row. `aside`: columns that contain no text.

        Raises:
            InputError: `answer` would be the output of some rows and the reference of others.
        """
        names = dict.fromkeys((*row, *self.header))
        roles = find_roles(tuple(name for name in names if name not in aside), letters=letters)
        answer = next((name for name in row if fold_name(name) == ANSWER), None)

        if answer is not None:
            role = "output" if answer in roles.outputs else "reference"
            if self._answer not in ("", role):
                raise InputError(
                    f"{where}: '{answer}' is the {role} here, and was the {self._answer} in earlier"
                    f" rows; choose with --map output={answer} or --map reference={answer}"
                )

            self._answer = role

        self.has_outputs = self.has_outputs or roles.has_outputs

        return roles

    def note_unread(self, row: Mapping[str, Any], read_names: Iterable[str]) -> None:
        """Record the columns of a row that contain something and were not read."""
        names = set(read_names)
        unread = (str(k) for k, v in row.items() if v not in (None, "", []) and k not in names)
        self.unread |= dict.fromkeys(unread)

    def note_id(self, id: str) -> None:
        if (digest := hash(id)) in self._ids and digest not in self._repeats:
            self._doubles[id] = None
        self._ids.add(digest)

    def note_repeat(self, input: str, id: str, item_id: str | None) -> str:
        """Return the id of a row that is a repeat: that of its item, or else of the first row with
        the same input."""
        if item_id is None:
            item_id = self._items.setdefault(hash(input), id)
        self._repeats.add(hash(item_id))
        return item_id

    def has_repeats(self, id: str) -> bool:
        """Tell whether the item with this id has repeats, each a row with this id."""
        return hash(id) in self._repeats

    def line(self) -> str:
        """Describe in one line the role of each column."""
        roles = [
            list_names([name]) if fold_name(name) == role else f"{list_names([name])} -> {role}"
            for name, role in self.taken.items()
        ]
        return f"columns: {', '.join(roles)}"

    def tell(self, *, reference: bool, context: bool = True) -> None:
        """Log the role of each column, unless all columns are read under the names of their roles.
        Record in the ledger the columns that nothing reads, references and passages that the judge
        ignores, and what `warnings` has. `reference`, `context`: whether the judge reads them."""
        if any(name != role for name, role in self.taken.items()):
            line = self.line()
            log.info(line, extra={"shown": line})
        self.leave_out_unread()
        passages = [name for name, role in self.taken.items() if role == "context"]
        if passages and not context:
            leave_out("column", f"no judge reads {list_names(passages)}", len(passages))
        for message in self.warnings(reference=reference):
            note_line(message)

    def warnings(self, *, reference: bool) -> list[str]:
        warnings: list[str] = []
        if self.references and not reference:
            names = ", ".join(self.references)
            warnings.append(
                f"only judges with a reference, such as --judge reference, read: {names}"
            )

        if self._doubles:
            warnings.append(f"ids that more than one case has: {list_names(self._doubles)}")

        if self.after_reply:
            warnings.append(
                f"turns after the assistant's last reply are left out in {self.after_reply} of the"
                " chats"
            )

        if self.thoughts:
            warnings.append(f"thoughts beside {self.thoughts} of the replies are left out")

        if self.parts:
            warnings.append(
                f"{self.parts} parts of the chats are no text: only the kind is named of audio, of"
                " files, and of images that are an address, a path or an id, or too many or too"
                " large; images are shown as data URLs, or from a column images"
            )

        if self.pictures:
            warnings.append(
                f"{self.pictures} of the outputs are data URLs of images, which are read as texts;"
                " show the images with --map candidate_images=COLUMN"
            )

        return warnings

    def leave_out_unread(self) -> None:
        if self.unread:
            leave_out_columns(self.unread, sees_images=self.sees_images)

    def watch(
        self, rows: Iterable[tuple[str, Mapping[str, Any]]], names: Collection[str]
    ) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield the placed rows of a study that reads the columns `names`, and record the others in
        the ledger after the last row."""
        for where, row in rows:
            self.note_unread(row, names)
            yield where, row
        self.leave_out_unread()


def leave_out_columns(
    names: Collection[str], *, sees_images: bool = False, advice: str = ""
) -> None:
    """Record columns that nothing reads in the ledger. `sees_images`: whether the study reads
    images, so that it says where they are looked for. `advice`: how to have them read."""
    reason = f"nothing reads {list_names(names)}"
    pictures = [
        name for name in names if re.fullmatch(r"(image|picture|photo|img)s?_?\d*", fold_name(name))
    ]
    if pictures and sees_images:
        reason += f"; pictures are a list in a column images, or one by --map images={pictures[0]}"
    leave_out("column", reason + advice, len(names))


def list_paths(row: Mapping[str, Any]) -> list[str]:
    """Return the names of a row's columns; instead of a column with an object, the paths of its
    fields, which `--map` takes."""
    paths: list[str] = []
    for name, value in row.items():
        fields = as_object(value)
        paths += [f"{name}.{field}" for field in fields] if fields else [str(name)]

    return paths


def list_names(names: Iterable[object]) -> str:
    """Join the first `NAMED` names into a text of one line, with the number of further names; long
    names are shortened. Without names the text is `no columns`."""
    shortened = [" ".join(str(name).split())[:40] for name in names]
    more = f" and {len(shortened) - NAMED} more" if len(shortened) > NAMED else ""
    return ", ".join(shortened[:NAMED]) + more or "no columns"
