"""Law 4: what we write we read. Every file of ours comes back through every reader as what it was,
and there is one reader for one thing.

A cell is a reader or a writer, a format, and an awkward text or value. The names of cells begin
with the one that reads, or with the kind of study that wrote the file:

- `agreement, response / CSV / texts like numbers`: the texts of this group in the column `response`
  of a CSV file that another program wrote, read by `bench agreement`;
- `agreement, scores / figures / CSV`: the figures of rows with such values, which must be those of
  the same rows in JSON lines;
- `guide / .csv / read by compare`: the file that a run of this kind wrote, read by `compare`;
- `guide / .csv / values`: the same file, read without us, has the values of the JSON lines;
- `pairs / .parquet / bench agreement`: labels that `labels export` wrote, read by that command.

A failure shows what was read beside what was written. First look at the file: if the value is wrong
in it, its writer is at fault, otherwise the reader. A sentence in place of values is the refusal of
a file that should have been read.
"""

import json
import re
import xml.etree.ElementTree as ET

import pytest

from laws.matrix import check_known, check_members, parametrize
from laws.registries import list_outputs, list_programs, list_row_formats
from laws.round_trips_documents import (
    DOORS,
    LABEL_READERS,
    LABELLED,
    REPORTS,
    RESOURCES,
    SERVED,
    TASKS,
    agree_on_grades,
    ask_by_profile,
    calibrate,
    compare_template,
    convert_and_back,
    export_labels,
    judge_by_file,
    list_labels,
    rate_results,
    read_labels,
    read_memories,
    read_resource,
    serve_texts,
    strings_of,
)
from laws.round_trips_documents import ENDINGS as LABEL_ENDINGS
from laws.round_trips_exports import (
    AWKWARD,
    ENDINGS,
    LOGGED,
    NESTED,
    PROGRAMS,
    READ_BY_EVALUATE,
    STUDIES,
    TABLES,
    evaluate_export,
    expand_cases,
    find_differences,
    list_pairs,
    read_table,
    run_study,
)
from laws.round_trips_values import VALUES, read_figures
from laws.round_trips_world import (
    FILES,
    FORMATS,
    GROUPS,
    KEYS,
    READERS,
    WITHOUT_WRITER,
    Seen,
    read_lines,
    read_texts,
)
from laws.studies import WITHOUT_FILE

pytestmark = pytest.mark.guard

LAW = "round_trips"

# Files of rows that other programs wrote

TEXTS = {
    f"{name} / {format} / {group}": (name, format, group)
    for name, reader in READERS.items()
    for format in reader.formats
    for group in GROUPS
    if group not in reader.without
}
_texts: dict[tuple[str, str], dict[str, Seen | str]] = {}


@parametrize(LAW, "cell", TEXTS, quick=4)
def test_texts_are_read_as_written(request, cell):
    name, format, group = cell
    reader = READERS[name]
    if (name, format) not in _texts:
        _texts[name, format] = read_texts(request.getfixturevalue("world"), reader, format)
    seen = _texts[name, format][group]
    assert not isinstance(seen, str), seen
    texts = {key: text for key, text in KEYS.items() if text in GROUPS[group]}
    if reader.samples:
        assert len(seen) > len(KEYS) / 2
        texts = {key: text for key, text in texts.items() if key in seen}
    assert {key: seen.get(key) for key in texts} == texts


LONG = "word " * 210_000 + "end"
HARD_TEXTS = {"a megabyte": LONG, "NUL": "one\0two", "half a pair": "one\ud83dtwo"}
HARD = {
    f"evaluate, output / {format} / {name}": (format, name)
    for format in ("JSON lines of Windows", "CSV", "TSV")
    for name in HARD_TEXTS
    # A table is written in UTF-8, which has no half of a pair.
    if name != "half a pair" or format.startswith("JSON")
}


@parametrize(LAW, "cell", HARD, quick=0)
def test_a_hard_text_stays_or_fails(world, cell):
    format, name = cell
    text = HARD_TEXTS[name]
    reader = READERS["evaluate, output"]
    ending, write = FORMATS[format]
    for file, content in FILES.items():
        (world.home / file).write_text(content, encoding="utf-8")
    (world.home / f"hard{ending}").write_bytes(write([reader.row("k00", text)]))

    command = [f"hard{ending}" if word == "FILE" else word for word in reader.command]
    outcome = world.cli(*command)

    assert outcome.code == 0, outcome.err
    # What no store can hold is mended as everywhere: it becomes U+FFFD.
    assert reader.read(world) == {"k00": text.replace("\ud83d", "\ufffd").replace("\0", "\ufffd")}


FIGURES = {
    f"{name} / figures / {format}": (name, format)
    for name, valued in VALUES.items()
    for format in valued.formats
}


@parametrize(LAW, "cell", FIGURES, quick=1)
def test_figures_depend_on_no_format(request, cell):
    name, format = cell
    figures = read_figures(request, name, "JSON lines")
    assert not isinstance(figures, str), figures
    assert figures
    assert read_figures(request, name, format) == figures


SCALES = {f"grades in two files / {ending}": ending for ending in LABEL_ENDINGS}


@parametrize(LAW, "ending", SCALES, quick=0)
def test_one_scale_for_all_files(world, ending):
    in_two_files, in_one = agree_on_grades(world, ending)
    assert in_two_files == in_one


# Files that runs wrote

ALIKE = {
    f"{kind} / {ending} / exported again": (kind, ending) for kind in STUDIES for ending in ENDINGS
}


@parametrize(LAW, "cell", ALIKE, quick=0)
def test_an_export_equals_the_file(request, cell):
    kind, ending = cell
    run = run_study(request, kind)
    assert run.exported[ending] == run.written[ending]


TABLES_OF_VALUES = {
    f"{kind} / {ending} / values": (kind, ending) for kind in STUDIES for ending in TABLES[1:]
}


@parametrize(LAW, "cell", TABLES_OF_VALUES, quick=0)
def test_a_table_has_the_values(request, cell):
    kind, ending = cell
    run = run_study(request, kind)
    rows = expand_cases(run.rows) if kind == "evaluate" else run.rows
    assert rows
    assert list(find_differences(rows, read_table(run.written[ending], ending))) == []


TEXT_OF_STUDY = {f"{kind} / .jsonl / text": kind for kind, study in STUDIES.items() if study.text}


@parametrize(LAW, "kind", TEXT_OF_STUDY, quick=0)
def test_records_have_the_text(request, kind):
    assert STUDIES[kind].text in strings_of(run_study(request, kind).rows)


@parametrize(LAW, "kind", {f"{kind} / copied store": kind for kind in STUDIES}, quick=0)
def test_a_copied_store_has_the_run(request, kind):
    run = run_study(request, kind)
    assert run.copied == run.written[".jsonl"]


@parametrize(LAW, "kind", {f"{kind} / runs show": kind for kind in STUDIES}, quick=0)
def test_a_run_is_shown_as_printed(request, kind):
    run = run_study(request, kind)
    assert run.shown == run.printed
    assert read_lines(run.shown) in (run.rows, [json.loads(run.written[".json"])])


NAMED_IN_JUNIT = ("ablation", "agreement", "escalation", "fit", "memory-eval")


@parametrize(LAW, "kind", {f"{kind} / JUnit": kind for kind in NAMED_IN_JUNIT}, quick=0)
def test_junit_names_cases_as_written(request, kind):
    cases = ET.fromstring(run_study(request, kind).junit).iter("testcase")
    assert any(AWKWARD in case.attrib["name"] for case in cases)


READ_BY_COMPARE = {
    f"{kind} / {ending} / read by compare": (kind, ending)
    for kind, study in STUDIES.items()
    for ending in TABLES
    if study.column and (kind, ending) not in NESTED
}


@parametrize(LAW, "cell", READ_BY_COMPARE, quick=0)
def test_compare_reads_an_export(request, cell):
    kind, ending = cell
    assert STUDIES[kind].text in run_study(request, kind).seen[ending]


READ_AGAIN = {
    f"{kind} / {ending} / read by evaluate": (kind, ending)
    for kind in ("evaluate", *READ_BY_EVALUATE)
    for ending in TABLES
    if kind != "evaluate" or ending == ".jsonl"
}


@parametrize(LAW, "cell", READ_AGAIN, quick=0)
def test_evaluate_reads_an_export(request, cell):
    pairs, read_pairs = evaluate_export(request, *cell)
    assert read_pairs == pairs


LOGS = {
    f"{kind} / {program} / read by evaluate": (kind, program)
    for kind in LOGGED
    for program in PROGRAMS
}


@parametrize(LAW, "cell", LOGS, quick=1)
def test_evaluate_reads_a_log_for_another_program(request, cell):
    kind, program = cell
    run = run_study(request, kind)
    read_pairs = run.logs[program]
    assert not isinstance(read_pairs, str), read_pairs
    # A summary has a line for each score of an output.
    assert set(read_pairs) == set(list_pairs(run, kind))


RATED = {f"evaluate / {ending} / read by bench rate": ending for ending in (".csv", ".parquet")}


@parametrize(LAW, "ending", RATED, quick=0)
def test_rate_finds_each_verdict(world, ending):
    missing, rate = rate_results(world, ending)
    other_index = range(10, len(LABELLED))
    assert missing == 0
    assert rate == pytest.approx(sum(number % 2 for number in other_index) / len(other_index))


# Labels, memories, agents

LABELS = {
    f"{task} / {ending} / {name}": (task, ending, name)
    for name, reader in LABEL_READERS.items()
    for task in reader.tasks
    for ending in LABEL_ENDINGS
}


@parametrize(LAW, "cell", LABELS, quick=1)
def test_exported_labels_are_read(world, cell):
    task, ending, name = cell
    assert read_labels(world, task, ending, LABEL_READERS[name]) == LABELLED


VALUES_OF_LABELS = {
    f"{task} / {ending} / values": (task, ending) for task in TASKS for ending in LABEL_ENDINGS
}


@parametrize(LAW, "cell", VALUES_OF_LABELS, quick=0)
def test_exported_labels_have_the_values(world, cell):
    task, ending = cell
    content = export_labels(world, task, ending)
    table = read_table(content, ending)
    assert list(find_differences(list_labels(task), table)) == []


MEMORIES = {
    f"memories / {ending} / {group}": (ending, group)
    for ending in LABEL_ENDINGS
    for group in GROUPS
    if group != "a long text"
}


@parametrize(LAW, "cell", MEMORIES, quick=1)
def test_exported_memories_are_read(request, cell):
    ending, group = cell
    collections = read_memories(request, ending)
    notes, copies = (
        [memory for memory in collections[name] if memory["text"] in GROUPS[group]]
        for name in ("notes", "copies")
    )
    assert [memory["text"] for memory in notes] == list(GROUPS[group])
    assert copies == notes


IN_RESOURCES = ("line ends", "rare separators", "quotes", "scripts", "texts like objects")
"""The groups of texts that are tried in agents and what belongs to them."""
THINGS = {f"{kind} / {group}": (kind, group) for kind in RESOURCES for group in IN_RESOURCES}


@parametrize(LAW, "cell", THINGS, quick=0)
def test_an_imported_thing_is_the_same(request, cell):
    kind, group = cell
    text = " / ".join(GROUPS[group])
    first_records, imported = read_resource(request, kind, text)
    assert any(text in string for string in strings_of(first_records))
    assert imported == first_records


# Templates, judges, profiles

CONVERTED = ("line ends", "rare separators", "quotes", "scripts", "markup", "braces")


@parametrize(LAW, "group", {f"formats of chats / {group}": group for group in CONVERTED}, quick=1)
def test_a_prompt_is_converted_back(world, cli, group):
    listed = cli("models", "templates", "list").out
    formats = re.findall(r"^([a-z][\w.-]+)  ", listed, re.MULTILINE)
    assert len(formats) > 15
    chats = {format: convert_and_back(world, format, GROUPS[group][0]) for format in formats}
    assert {f: back for f, (_, back) in chats.items()} == {f: c for f, (c, _) in chats.items()}


PLACEHOLDERS = {f"calibrate / placeholder {text}": text for text in ("{n}", "{{n}}", "{{ n }}")}


@parametrize(LAW, "placeholder", PLACEHOLDERS, quick=0)
def test_a_placeholder_keeps_its_spelling(world, placeholder):
    assert f"What is {placeholder} and more?" in calibrate(world, placeholder)


@parametrize(LAW, "text", {"calibrate / best.txt / read by compare": "=1 \u2028 \\boxed"}, quick=0)
def test_a_calibrated_template_is_sent(world, text):
    filled, sent = compare_template(world, text)
    assert sent == filled


@parametrize(LAW, "kind", {"fit / .judge / read by evaluate": "fit"}, quick=0)
def test_a_fitted_judge_scores_by_its_formula(world, kind):
    score, expected = judge_by_file(world)
    assert score == pytest.approx(expected, abs=1e-4)


@parametrize(LAW, "kind", {"profile / .yaml / read by evaluate": "profile"}, quick=0)
def test_a_generated_profile_is_sent(world, kind):
    world.server.script = world.script
    texts, unsent = ask_by_profile(world)
    assert len(texts) >= 4
    assert unsent == []


# A server


@parametrize(LAW, "door", {f"HTTP / {door}": door for door in DOORS}, quick=0)
def test_a_server_gives_back_texts(request, door):
    texts = serve_texts(request).texts[door]
    # A memory takes no text as long as the last one.
    is_memory = "memor" in door
    assert texts == {k: t for k, t in SERVED.items() if len(t) < 20_000 or not is_memory}


@parametrize(LAW, "format", {f"HTTP / report as {format}": format for format in REPORTS}, quick=0)
def test_a_served_report_equals_the_export(request, format):
    served = serve_texts(request)
    assert served.reports[format] == served.exports[format]


# The registries, and what is known


def test_each_format_has_a_writer(cli):
    endings = [f".{ending.rpartition('.')[2]}" for ending, _ in FORMATS.values()]
    check_members("format of rows", list_row_formats(cli), {*endings, *WITHOUT_WRITER})


def test_each_ending_of_exports_is_tried(cli):
    check_members("format of exports", list_outputs(cli), ENDINGS)


def test_each_program_is_tried(cli):
    check_members("log for", list_programs(cli), PROGRAMS)


def test_each_kind_has_an_export(cli):
    schemas = json.loads(cli("run", "schema").out)["oneOf"]
    kinds = [schema["properties"]["kind"]["const"] for schema in schemas]
    check_members("export of", kinds, {*STUDIES, *WITHOUT_FILE})


def test_known_failures_are_cells():
    matrices = (
        *(TEXTS, HARD, FIGURES, SCALES, ALIKE, TABLES_OF_VALUES, TEXT_OF_STUDY, READ_BY_COMPARE),
        *(READ_AGAIN, LOGS, RATED, LABELS, MEMORIES, THINGS, PLACEHOLDERS),
        ("calibrate / best.txt / read by compare",),
    )
    check_known(LAW, *matrices)
