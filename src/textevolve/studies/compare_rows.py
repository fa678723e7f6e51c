"""The rows of a comparison: which columns prompts, applications and judges may read, what is
checked before a run, and the case that each row becomes.

`row_values` makes the values of a case again when its cells are planned.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from textevolve.errors import InputError
from textevolve.evaluation import CHECKS, GROUP, Case
from textevolve.images import IMAGES_PER_CASE, Pictures
from textevolve.json_texts import write_text
from textevolve.ledger import log
from textevolve.llm.chains.chain import check_templates
from textevolve.loops.rules import columns_of_checks, is_checks, list_reads, take_checks
from textevolve.mappings import map_values, omit
from textevolve.messages import list_messages
from textevolve.metrics.label_metrics import is_shipped
from textevolve.metrics.plain import require_one_mark
from textevolve.rows import Placed, Renaming, place_rows, read_rows
from textevolve.rows.chats import ASSISTANT, read_chat
from textevolve.rows.columns import CHECKS as CHECK_COLUMNS
from textevolve.rows.columns import (
    IMAGES,
    UNAPPLIED,
    check_prompt_value,
    column_text,
    find_contents,
    find_group,
    find_title,
    fold_name,
    join_passages,
    leave_out_columns,
    prompt_text,
    refuse_object,
)
from textevolve.rows.images import folder_of, read_images
from textevolve.runs.chains import chains_among, open_chain_named
from textevolve.studies.compare_spec import CompareSpec, judges_of
from textevolve.studies.conversations import (
    SESSION,
    TURN_COLUMNS,
    USER_COLUMNS,
    check_conversations,
)
from textevolve.studies.row_values import Draws, is_random, keep_values, read_sent_chat, wants_row
from textevolve.studies.rows import EqualRows, RowNames, check_body
from textevolve.texts.placeholders import Hidden, check_spelling, find_placeholders
from textevolve.trajectory import RECORDED, TRAJECTORY_FIELDS, Trajectory, read_trajectory
from textevolve.user_code import OWN

INPUTS = ("input", "prompt", "question", "instruction")
"""The columns that may hold the input if no prompt is compared; the first that exists is used."""


def read_compared_rows(spec: CompareSpec) -> Iterator[Case]:
    if not spec.data:
        raise InputError("--data is missing: rows with values for the placeholders")
    folder = ""

    def opened(file: str) -> None:
        nonlocal folder
        folder = folder_of(file)

    rows = read_rows(spec.data, "row", lambda _: True, spec.map, opened=opened)
    cases = row_cases(spec, (_with_images(*placed, folder) for placed in rows))
    yield from require_one_mark(spec.metric, cases)


def _with_images(where: str, row: Mapping[str, Any], folder: str = "") -> Placed:
    """Return the row with the files or addresses in its column of images replaced by data URLs."""
    if IMAGES not in row:
        return where, row
    return where, {**row, IMAGES: read_images(row[IMAGES], f"{where}: '{IMAGES}'", folder)}


def take_rows(
    spec: CompareSpec, rows: Iterable[Mapping[str, Any]], objects: Mapping[str, object]
) -> Iterator[Case]:
    """Yield a case for each row from Python, with columns renamed as in files. `objects`: the
    caller's Python objects by name."""
    renaming = Renaming(spec.map)
    renamed = [_with_images(where, renaming(row)) for where, row in place_rows(rows)]
    renaming.refuse_unused()
    return require_one_mark(spec.metric, row_cases(spec, renamed, objects))


SHOWN = "; {NAME} is filled in within a prompt, not within the value of another column"
"""The advice added to the warning about unread columns, if a value of the first rows has the name
of one in braces."""


@dataclass(frozen=True, slots=True)
class ComparedColumns:
    """The columns of a comparison by who may read them.

    Attributes:
        shown: Those that prompts, applications and chains may read: all but the hidden ones.
        hidden: The label, the checks and the existing outputs, with the kind of each.
        questions: For each variant that may answer the same question differently, by its name, the
            columns that decide what it asks.
    """

    shown: Sequence[str]
    hidden: Mapping[str, Hidden]
    questions: Mapping[str, Collection[str]]


def row_cases(
    spec: CompareSpec, rows: Iterable[Placed], objects: Mapping[str, object] = {}
) -> Iterator[Case]:
    """Yield a case for each row: its columns as JSON, its existing outputs, and its label.
    `objects`: the caller's Python objects by name.

    Raises:
        InputError: the rows do not fit the specification; names the place and the columns.
    """
    placed = list(rows)
    if not placed:
        raise InputError(f"{spec.data or 'data'}: has no rows")
    forms = dict.fromkeys(tuple(row) for _, row in placed)  # of which many rows have one
    names = list(dict.fromkeys(str(n) for form in forms for n in form if str(n).strip()))
    for judge in judges_of(spec):
        _check_needs(spec, names, f"judge {judge}", judge.needs)
    talks = check_conversations(spec, placed)
    of_checks = [name for name in names if _has_checks(spec, name, placed)]
    columns = _check_columns(spec, names, objects, of_checks, talks=talks)
    _check_prompts(spec, columns.shown, placed)

    if spec.samples > 1 and spec.temperature == 0 and spec.prompts:
        log.warning("samples at temperature 0 hardly differ: set --temperature, such as 0.7")

    asked = list_asked(spec, columns.shown)
    groups = [find_group(row, asked) for _, row in placed]
    of_groups = {group[0] for group in groups if group is not None}
    cells = [row.get(name) for name in of_checks for _, row in placed]
    checked = columns_of_checks(spec.check, cells)
    unread = list_unread(spec, columns.shown, {*asked, *of_groups, *checked})
    nested = find_placeholders(column_text(placed[:100]), unread)
    leave_out_columns(unread, sees_images=True, advice=SHOWN if nested else "")
    # Outputs that exist already may be about a column that nothing reads.
    ignored = () if spec.outputs else unread
    compared = (omit(row, ignored) for _, row in placed)
    contents = find_contents(compared, columns.hidden, asked)
    names_of_rows = RowNames()
    equal_rows = EqualRows()
    draws = Draws()
    applied = applies_checks(spec)
    of_checks = [name for name, kind in columns.hidden.items() if kind == "checks"]
    if of_checks and not applied:
        log.warning(UNAPPLIED, of_checks[0])
    has_functions = not all(map(is_shipped, spec.metric))
    takes_whole = wants_row(spec.metric, objects)
    chats = dict.fromkeys((*asked, input_column(spec, columns.shown)))
    unsent: list[str] = []
    # With `each_turn` a chat stays JSON, from which its turns are read.
    write_output = column_text if spec.each_turn else prompt_text

    for number, (where, row) in enumerate(placed, 1):
        label = None if spec.label is None else row.get(spec.label)
        if spec.label is not None and label in (None, []):
            raise InputError(f"{where}: the label column '{spec.label}' is missing or empty")
        refuse_object(label, spec.label or "", where)
        images, is_sent_whole = _gather_pictures(row, chats)
        if not is_sent_whole:
            unsent.append(where)
        if IMAGES in row:
            names_of_images = " ".join(f"(image {n})" for n, _ in enumerate(row[IMAGES], 1))
            row = {**row, IMAGES: names_of_images}
        values = {name: row.get(name) for name in columns.shown}
        if not spec.targets:  # which take values of JSON
            values = map_values(column_text, values)
        questions = [
            (variant, images, *(column_text(values.get(name)) for name in names))
            for variant, names in columns.questions.items()
        ]

        id = names_of_rows.name(row, number)
        parameters = keep_values(
            row,
            label if has_functions else None,
            whole=takes_whole,
            draw=draws.number(questions),
        )
        if applied:
            cell = next((row[name] for name in of_checks if row.get(name) is not None), None)
            checks = take_checks(spec.check, cell, row, where)
            _check_needs(spec, names, f"{where}: a check", list_reads(checks or {}))
            parameters |= {} if checks is None else {CHECKS: checks}
        group = groups[number - 1]
        if group is not None:
            parameters[GROUP] = group[1]
        else:
            parameters |= equal_rows.find(contents[number - 1], id)

        yield Case(
            write_text(values),
            tuple(write_output(row.get(column)) for column in spec.outputs),
            id,
            parameters,
            reference=None if label is None else column_text(label),
            # As `evaluate` reads passages; None without any.
            context=join_passages(row.get(spec.context)) or None if spec.context else None,
            images=images,
            trajectory=_read_chat_calls(spec, row, where),
        )

    if unsent:
        log.warning(
            "%d of %d chats have parts that are no text, such as audio, files and images elsewhere"
            " or in the last answer, which are not sent; first in %s",
            len(unsent),
            len(placed),
            unsent[0],
        )


def _gather_pictures(row: Mapping[str, Any], names: Iterable[str]) -> tuple[tuple[str, ...], bool]:
    """Return the images of a row and of its chats in the named columns, and whether all parts of
    the chats are sent."""
    images: tuple[str, ...] = row.get(IMAGES, ())
    is_sent_whole = True

    for name in names:
        chat = read_chat(row.get(name), Pictures(images, IMAGES_PER_CASE)) or ()
        # The answer at the end is not sent.
        before = [turn.images for turn in chat if turn.speaker != ASSISTANT]
        images = before[-1] if before else images
        if chat and (chat[-1].images != images or any(turn.others for turn in chat)):
            is_sent_whole = False

    return images, is_sent_whole


def applies_checks(spec: CompareSpec) -> bool:
    """Return whether a judge applies the checks of rows."""
    return any(judge.reads_checks for judge in judges_of(spec))


def _has_checks(spec: CompareSpec, column: str, placed: Sequence[Placed]) -> bool:
    """Return whether a column has the checks of rows. Without a judge that applies them it has, if
    its name and its content say so: they must reach no model under test either."""
    if fold_name(column) not in CHECK_COLUMNS:
        return False
    return applies_checks(spec) or any(is_checks(row.get(column)) for _, row in placed)


def _read_chat_calls(spec: CompareSpec, row: Mapping[str, Any], where: str) -> Trajectory | None:
    """Return the tool calls in the chat that is the only output of a row without a column of
    calls."""
    if len(spec.outputs) != 1 or any(row.get(name) is not None for name in RECORDED):
        return None
    messages = list_messages(row.get(spec.outputs[0]))
    return read_trajectory({"tool_calls": messages}, where) if messages else None


def list_asked(spec: CompareSpec, columns: Sequence[str]) -> list[str]:
    """Return the columns that the templates of variants show, or that their chains take."""
    templates = [spec.system, *(json.dumps(target.body) for target in spec.targets)]
    for prompt in spec.prompts:
        templates += [text for _, text in prompt.templates]
    asked = [*find_placeholders("\n".join(templates), columns)]
    for name in chains_among(*spec.models):
        if not name.startswith(OWN):
            asked += open_chain_named(name, {}).inputs

    return asked


def list_unread(spec: CompareSpec, columns: Sequence[str], asked: Collection[str]) -> list[str]:
    """Return the columns that neither a variant nor a metric or judge reads. An application without
    a body, a metric of the user's own, and judges that see the row itself read all. `asked`: the
    columns of templates and of groups."""
    own_chains = any(name.startswith(OWN) for name in chains_among(*spec.models))
    own_scorers = any(metric.startswith(OWN) or ":" in metric for metric in spec.metric)
    has_input = spec.prompts or spec.user_model or input_column(spec, columns)
    if reads_rows(spec) or own_chains or own_scorers or not has_input:
        return []

    used = {"id", spec.label, input_column(spec, columns), spec.context, IMAGES, *USER_COLUMNS}
    used |= {*asked, find_title(dict.fromkeys(columns, "title"))}
    if len(spec.outputs) == 1:
        used |= {*TRAJECTORY_FIELDS}

    return [name for name in columns if name not in used]


def reads_rows(spec: CompareSpec) -> bool:
    """Return whether an application or a judge reads whole rows."""
    is_sent = any(target.body is None for target in spec.targets)
    return is_sent or any(judge.reads_row for judge in judges_of(spec))


def row_columns(case: Case) -> dict[str, Any]:
    """Return the columns of a row, by name, that prompts and applications may use."""
    return json.loads(case.input)


def input_column(spec: CompareSpec, columns: Collection[str]) -> str:
    """Return the column that is the input for judges; "" if the input is a filled prompt."""
    if spec.input is not None or spec.prompts:
        return spec.input or ""
    return next((name for name in INPUTS if name in columns), "")


def _check_needs(
    spec: CompareSpec, columns: Sequence[str], owner: str, needs: Collection[str]
) -> None:
    """Check that the options name all columns that a judge or a check needs. `owner`: its name.

    Raises:
        InputError: no option names a column that it needs, so it could score no output.
    """
    options = {
        "context": ("--context", spec.context is not None or spec.targets),
        "reference": ("--label", spec.label is not None),
    }

    for need, (flag, is_met) in options.items():
        if need in needs and not is_met:
            raise InputError(
                f"{owner} needs a {need}: name its column with {flag}; columns:"
                f" {', '.join(columns)}"
            )


def _check_columns(
    spec: CompareSpec,
    columns: Sequence[str],
    objects: Mapping[str, object],
    of_checks: Sequence[str],
    *,
    talks: bool,
) -> ComparedColumns:
    """Return the columns by who may read them. `of_checks`: those with checks. `talks`: rows are
    conversations, whose prompts need no placeholder.

    Raises:
        InputError: a named column does not exist, or a prompt has no placeholder of a column.
    """
    options = {"--label": (spec.label,), "--input": (spec.input,), "--context": (spec.context,)}
    options |= {"--outputs": spec.outputs}

    for flag, option_columns in options.items():
        for column in option_columns:
            if column is not None and column not in columns:
                raise InputError(
                    f"{flag}: no row has a value in the column '{column}'; columns:"
                    f" {', '.join(columns)}"
                )

    hidden: dict[str, Hidden] = dict.fromkeys(of_checks, "checks")
    hidden |= dict.fromkeys(spec.outputs, "outputs")
    if spec.label is not None:
        hidden[spec.label] = "label"
    shown_columns = [name for name in columns if name not in hidden]
    if spec.input is not None and spec.input not in shown_columns:
        raise InputError(
            f"--input: the column '{spec.input}' is the label or an output, which is no input;"
            f" columns: {', '.join(shown_columns)}"
        )

    questions = _find_questions(spec, shown_columns, hidden, objects, talks=talks)
    has_input = (
        talks or spec.prompts or chains_among(*spec.models) or input_column(spec, shown_columns)
    )

    # The input of a judge of turns is the dialogue before each one.
    if not has_input and any(str(judge) not in spec.each_turn for judge in judges_of(spec)):
        raise InputError(
            "judges need an input to judge by: name its column with --input; columns:"
            f" {', '.join(columns)}"
        )

    return ComparedColumns(shown_columns, hidden, questions)


def _find_questions(
    spec: CompareSpec,
    shown: Sequence[str],
    hidden: Mapping[str, Hidden],
    objects: Mapping[str, object],
    *,
    talks: bool,
) -> dict[str, Collection[str]]:
    """Return the columns that decide what each variant asks, of those that may answer the same
    question differently.

    Raises:
        InputError: a chain, an application or a prompt names a column that it cannot have.
    """
    questions: dict[str, Collection[str]] = {}
    more = USER_COLUMNS if talks else ()

    for name in chains_among(*spec.models):
        if name.startswith(OWN) and name not in objects:
            continue  # opened when the run starts
        chain = open_chain_named(name, objects)
        chain.take_inputs(dict.fromkeys(shown, ""), others=True)
        check_templates(chain, (*shown, *hidden))
        if is_random(chain):
            questions[f"chain {name}"] = tuple(chain.inputs)

    for target in spec.targets:
        of_turns = (*TURN_COLUMNS, SESSION) if talks and target.session else TURN_COLUMNS
        check_body(target, [*shown, *of_turns] if talks else shown, hidden)
        asked_columns = shown
        if target.body is not None:
            asked_columns = find_placeholders(write_text(target.body), shown)
        questions[f"target {target.label}"] = (*asked_columns, *more)

    for prompt in spec.prompts:
        if prompt.is_blank:
            continue
        text = "\n".join([spec.system, *(text for _, text in prompt.templates)])
        check_spelling(text, shown, f"prompt {prompt.name}", hidden)
        if not (talks or prompt.placeholders(shown) or IMAGES in shown):
            raise InputError(
                f"prompt {prompt.name}: has no placeholder that the rows have a value for; columns:"
                f" {', '.join(shown)}"
            )
        if spec.temperature != 0:
            questions[f"prompt {prompt.name}"] = (*find_placeholders(text, shown), *more)

    return questions


def _check_prompts(spec: CompareSpec, shown: Collection[str], placed: Sequence[Placed]) -> None:
    """Check the values that prompts show, and warn of gaps and of what is not sent.

    Raises:
        InputError: a value is an object, or a chat that cannot be sent.
    """

    for prompt in spec.prompts:
        chats = prompt.chat_columns(shown)
        gaps: dict[str, list[str]] = {}
        cut: list[str] = []
        for name in prompt.placeholders(shown):
            for where, row in placed:
                value = row.get(name)
                if value is None:
                    gaps.setdefault(name, []).append(where)
                    continue
                check_prompt_value(where, name, value)
                if name in chats and (chat := read_sent_chat(value, where)) and chat.is_cut:
                    cut.append(where)

        for name, places in gaps.items():
            if name != IMAGES:
                log.warning(
                    "prompt %s: no value for {%s} in %d of %d rows, first in %s; there it is empty",
                    prompt.name,
                    name,
                    len(places),
                    len(placed),
                    places[0],
                )
        if cut:
            log.warning(
                "prompt %s: %d of %d chats end with an answer, which is not sent; first in %s",
                prompt.name,
                len(cut),
                len(placed),
                cut[0],
            )
