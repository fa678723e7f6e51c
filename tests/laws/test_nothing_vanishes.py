"""Law 3: what comes in is used, refused, or named in what goes out.

A cell is one place of what a command reads - a column, a part of a message, a field of a file, an
option - which holds a word that stands nowhere else. The command runs, and the word is found in a
request to the model or in what the command writes; or the command refuses its input and names the
place; or a line says that the place is left out. Options that no word can show are given another
value: the requests or the results are others then. An option that takes one value is given twice,
and is refused.

A failure reads as what was lost: `compare in a prompt / Anthropic / tool 1` is the name of a tool
in a chat of Anthropic's blocks, which a prompt of `compare` was filled with. The message has the
exit code and what the command printed. A row of places shares one run of its command, whichever of
them comes first.
"""

import io
import json

import pytest

from laws import nothing_vanishes_agents as agents
from laws import nothing_vanishes_chats as chats
from laws import nothing_vanishes_commands as commands
from laws import nothing_vanishes_files as files
from laws import nothing_vanishes_http as http
from laws import nothing_vanishes_kinds as kinds
from laws import nothing_vanishes_options as options
from laws import nothing_vanishes_rows as rows
from laws.judges import JUDGES
from laws.matrix import check_known, check_members, parametrize
from laws.nothing_vanishes_world import Evidence, Place, run_study
from laws.registries import list_judges, list_kinds
from laws.studies import RECIPES, WITHOUT_FILE

pytestmark = pytest.mark.guard

LAW = "nothing_vanishes"
SITUATIONS = {
    **kinds.list_studies(),
    **chats.list_chats(),
    **agents.list_agents(),
    **{f"{name} / a trajectory": part for name, part in chats.list_trajectories().items()},
    **{f"evaluate by {name}": part for name, part in agents.list_judges().items()},
    **{f"nodes evaluate / a span, {name}": part for name, part in agents.list_spans().items()},
    **{f"columns of {name}": part for name, part in rows.list_unread_columns().items()},
    **{f"pictures in {name}": part for name, part in rows.list_pictures().items()},
    **{f"levels for {name}": part for name, part in rows.list_rubrics().items()},
    **{f"an application / {name}": part for name, part in rows.list_targets().items()},
    **{f"a file / {name}": part for name, part in files.list_written().items()},
    **{f"an import / {name}": part for name, part in files.list_imported().items()},
    **{f"labels create / {name}": part for name, part in files.list_labelled().items()},
    **{f"twice / {name}": part for name, part in commands.list_repeatable().items()},
}
PLACES = {
    f"{name} / {place}": (name, place)
    for name, situation in SITUATIONS.items()
    for place in situation.places
}
CALLS = chats.list_calls()
REQUESTS = http.list_requests()
PARTS = {
    f"HTTP / {name} / {place}": (name, place)
    for name, request in REQUESTS.items()
    for place in request.places
}
CHANGES = {
    f"option / {name} / {field}": (name, field)
    for name, study in options.OPTIONS.items()
    for field in study.values
}
FORMATS = ("jsonl", "csv", "parquet")
EXPORTS = {
    f"export / {name} / {format}": (name, format) for name in options.OPTIONS for format in FORMATS
}
TWICE = {f"twice / {name}": command for name, command in commands.list_commands().items()}

evidence_of: dict[str, Evidence] = {}
"""What each situation gave, so that its places share one run."""


def assert_told(evidence: Evidence, place: Place) -> None:
    """Assert that a place was used, refused, or named as left out."""
    message = place.is_used(evidence) or place.is_refused(evidence) or place.is_left_out(evidence)
    printed = f"{evidence.err[-600:]}\n{evidence.out[-300:]}"
    assert message, f"'{place.word}' is nowhere; exit code {evidence.code}\n{printed}"


def run_once(request, name: str, run) -> Evidence:
    """Return what a run gives. It is made by the cell that comes first, and only that cell pays for
    a world."""
    if name not in evidence_of:
        evidence_of[name] = run(request.getfixturevalue("world"))
    return evidence_of[name]


@parametrize(LAW, "cell", PLACES, quick=11)
def test_a_word_is_told(request, cell):
    name, place = cell
    situation = SITUATIONS[name]
    assert_told(run_once(request, name, situation.run), situation.places[place])


@parametrize(LAW, "cell", CALLS, quick=1)
def test_a_call_counts(world, cell):
    tool, run = cell
    evidence = run(world)
    if evidence.code == 2:
        assert "chats.jsonl:1" in evidence.err
        return
    (candidate,) = json.loads(evidence.out)["candidates"]
    assert candidate["score"] == 1.0, f"{tool}: {candidate.get('feedback')}"


def run_undisturbed(request, name: str) -> Evidence:
    """Return what a study gives with the options that its recipe has, and its files of records."""
    names = [f"records.{format}" for format in FORMATS]
    outputs = [word for file in names for word in ("-o", file)]
    recipe = options.OPTIONS[name].recipe
    run = run_study(name.split()[0], recipe, "--json", *outputs, files=names)
    evidence = run_once(request, f"undisturbed {name}", run)
    assert evidence.code == 0, evidence.err
    return evidence


@parametrize(LAW, "cell", CHANGES, quick=2)
def test_an_option_changes_something(request, world, cell, tmp_path_factory, monkeypatch):
    name, field = cell
    undisturbed = run_undisturbed(request, name)
    # In a folder and a store of its own: nothing is replayed.
    world.home = tmp_path_factory.mktemp("changed")
    monkeypatch.chdir(world.home)
    monkeypatch.setenv("TEXTEVOLVE_STORE", str(world.home / "store.db"))
    changed = run_study(name.split()[0], options.OPTIONS[name].changed(field), "--json")(world)
    if changed.code == 2:
        assert field in changed.err
        return
    is_same = options.digest(changed) == options.digest(undisturbed)
    assert not is_same, f"{field} changes neither a request nor a result"


@parametrize(LAW, "cell", EXPORTS, quick=1)
def test_each_record_is_exported(request, cell):
    name, format = cell
    content = run_undisturbed(request, name).files[f"records.{format}"]
    text = content.decode() if format != "parquet" else read_parquet(content)
    missing = [word for word in options.RECORDS[name] if word not in text]
    assert missing == []


def read_parquet(content: bytes) -> str:
    """Return the rows of a Parquet file as JSON lines."""
    parquet = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(io.BytesIO(content)).to_pylist()
    return "\n".join(json.dumps(row, ensure_ascii=False, default=str) for row in table)


@parametrize(LAW, "command", TWICE, quick=6)
def test_a_second_value_is_refused(cli, command):
    accepted = []
    for option in command.options:
        if not commands.is_refused(cli, command, option):
            accepted.append(option.name)
    assert accepted == []


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """Our server with an agent, a judge and a model, for all cells over HTTP."""
    with http.serve(tmp_path_factory.mktemp("service")) as serving:
        yield serving


@parametrize(LAW, "cell", PARTS, quick=0)
def test_a_part_of_a_request_is_told(service, cell):
    name, place = cell
    request = REQUESTS[name]
    if name not in evidence_of:
        evidence_of[name] = request.send(service)
    assert_told(evidence_of[name], request.places[place])


def test_each_kind_is_in_the_matrix(cli):
    schemas = list_kinds(cli)
    tried = {name.split()[0] for name in (*kinds.STUDIES, *options.OPTIONS)}
    check_members("study", schemas, {*tried, *WITHOUT_FILE})
    check_members("columns of study", schemas, {*rows.ROWS_OF, *rows.ROWLESS})
    check_members("judge", list_asking_judges(cli), {*agents.list_judges(), *agents.UNTRIED})
    check_members("exported study", options.OPTIONS, options.RECORDS)
    for kind in RECIPES:
        assert list_silent_fields(kind, schemas[kind]) == [], kind


def list_asking_judges(cli) -> list[str]:
    """Return the judges that ask a model."""
    return [name for name in list_judges(cli) if name not in JUDGES or JUDGES[name].asks]


def list_silent_fields(kind: str, schema: dict) -> list[str]:
    """Return the fields of a kind that no cell shows and that have no reason."""
    lines = set(options.SILENT)
    for table in (kinds.STUDIES, options.OPTIONS):
        for name, study in table.items():
            if name.split()[0] == kind:
                lines |= set(getattr(study, "places", ())) | set(getattr(study, "values", ()))
    return sorted(set(schema["properties"]) - lines)


def test_known_failures_are_cells():
    check_known(LAW, PLACES, CALLS, CHANGES, EXPORTS, TWICE, PARTS)
