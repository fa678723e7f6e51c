"""README and docs stay true: commands parse, examples run, nothing public goes undescribed."""

import importlib
import re
import runpy
import shlex
import shutil
import sys
import tomllib
from dataclasses import replace
from functools import cache, reduce
from itertools import groupby
from operator import getitem, itemgetter
from pathlib import Path

import pytest
import typer.main
import yaml
from jsonschema import Draft202012Validator
from pydantic import BaseModel

import textevolve
from registered import own_judges
from textevolve.cli import FAILED, INTERRUPTED, MISUSED, PARTLY
from textevolve.cli.app import app
from textevolve.cli.commands import COMMANDS as COMMAND_TABLE
from textevolve.debate.profile import (
    COMPONENTS,
    Profile,
    load_profile,
    override,
    parse_profile,
    shipped_profiles,
)
from textevolve.debate.result import DebateResult, Turn, result_metrics
from textevolve.evaluation import Case, Failure
from textevolve.judges.judge import find_judge, judge_names, listed_judges, options_of
from textevolve.llm.catalogue import read_catalogue
from textevolve.llm.providers import PROVIDERS
from textevolve.metrics.label_metrics import SHIPPED
from textevolve.rows import SUFFIXES
from textevolve.runs.study import read_study, schema_of_all
from textevolve.settings import ENVIRONMENT, Settings
from textevolve.studies.evaluate import unusable
from textevolve.studies.evaluate_spec import DebateParameters, explicit_parameters
from textevolve.studies.judged_report import candidate_rows

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
PAGES += sorted((ROOT / "docs").glob("*.md"))
TEXTS = {page.relative_to(ROOT).as_posix(): page.read_text(encoding="utf-8") for page in PAGES}
EXAMPLES = ROOT / "examples"
SHOWN = ("tickets.csv", "tickets.txt", "replies.csv", "replies.yaml")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(language, *pages):
    """The code blocks in a language, each with its page."""
    return [
        (page, code)
        for page in pages or TEXTS
        for found, code in BLOCK.findall(TEXTS[page])
        if found == language
    ]


def typed_lines(code):
    """The lines of a shell block as a shell reads them: a backslash at the end joins two."""
    return code.replace("\\\n", "").splitlines()


def shell_lines():
    """Each command of the shell blocks, as words; pipes and redirections part commands."""
    for page, code in blocks("sh"):
        for line in typed_lines(code):
            words = shlex.shlex(line, posix=True, punctuation_chars=True)
            words.whitespace_split = True
            command: list[str] = []
            for word in [*words, ";"]:
                if set(word) <= set("|&;<>"):
                    if command:
                        yield page, line, command
                    command = []
                else:
                    command.append(word)


COMMANDS = {
    page: [(line, command[1:]) for _, line, command in found if command[0] == "textevolve"]
    for page, found in groupby(shell_lines(), itemgetter(0))
}


general = cache(load_profile)


@cache
def program():
    return typer.main.get_command(app)  # 0.1 s, which a hundred command lines share


def parse_command(words):
    """The parameters of a command line, as the program itself reads them."""
    command, rest = program(), list(words)
    while hasattr(command, "commands"):
        named_name = not command.default or (rest and rest[0] in command.commands)
        command = command.commands[rest.pop(0) if named_name else command.default]
    return command.make_context(command.name, rest).params


@pytest.mark.parametrize("page", COMMANDS)
def test_commands_parse(page):
    faults = []
    for line, words in COMMANDS[page]:
        try:
            check_command(words)
        except Exception as error:  # noqa: BLE001 - all that are wrong are named
            faults.append(f"{line}: {error}")
    assert faults == []


def check_command(words):
    found_command = parse_command(words)
    given = {name: value for name, value in found_command.items() if value is not None}
    if "nodes" in words:  # its threshold is another
        return
    parameters = {name: given[name] for name in DebateParameters.model_fields if name in given}
    override(general("general"), explicit_parameters(DebateParameters(**parameters)))


IN_PAGES = re.compile(r"<code>textevolve ([^<]+)</code>")
IN_LISTS = re.compile(r"(?:make one|begin one) with: textevolve ([^\n]+)")
LISTS = (
    ("runs", "list"),
    ("jobs", "list"),
    ("labels", "list"),
    ("agents", "list"),
    ("agents", "users", "list"),
    ("agents", "namespaces", "list"),
    ("memories", "collections", "list"),
    ("agents", "sessions", "list"),
    ("config", "keys", "list"),
)


def test_commands_of_empty_states_run(cli, home):
    """What a page or a list says when it has nothing yet can be typed as it stands there."""
    pages = sorted((ROOT / "src/textevolve/server/pages/templates").glob("*.html"))
    texts = [text for page in pages for text in IN_PAGES.findall(page.read_text("utf-8"))]
    texts += [text for words in LISTS for text in IN_LISTS.findall(cli(*words).out)]
    assert len(texts) > 12
    (home / "rows.csv").write_text("input,output\nWhy?,So.\n")
    (home / "study.yaml").write_text("kind: evaluate\ncases: [rows.csv]\njudge: metric:exact\n")
    cli("agents", "namespaces", "create", "space")
    cli("memories", "collections", "create", "space/talks", "--embedder", "none")
    for text in texts:
        whole = re.sub(
            r"{{ namespace }}", "space", re.sub(r"{{ \w+.full_name }}", "space/talks", text)
        )
        words = shlex.split(whole)
        if words[0] in ("evaluate", "chat", "memories") or "--run" in words:  # they ask a model
            parse_command(words)
        else:
            outcome = cli(*words)
            assert outcome.code == 0 or "already" in outcome.err, (text, outcome.err)


def test_commands_are_found():
    """The check above sees something, and would see an option that does not exist."""
    assert sum(map(len, COMMANDS.values())) > 20
    with pytest.raises(Exception, match="No such option"):
        parse_command(["runs", "list", "--no-such-option"])


def test_shell_lines_fit_the_column_of_the_site():
    """The site shows about 75 characters of a line of code; the end of a longer one is hidden."""
    for page, code in blocks("sh") + blocks("console"):
        assert re.findall("^.{76,}", code, re.MULTILINE) == [], page


def test_every_command_is_shown():
    lines = [" ".join(words) for page in COMMANDS.values() for _, words in page]
    for path in command_paths(program()):
        assert any(line.startswith(path) for line in lines), path


def test_every_help_begins_with_two_examples():
    faults = []
    for path, entry in command_entries(COMMAND_TABLE):
        assert len(entry.examples) == 2, path
        for example in entry.examples:
            assert len(f"  $ textevolve {example}") <= 80, example
            words = shlex.split(example.partition(" | ")[0].partition(" > ")[0])
            assert words[: len(path)] == path or entry.path in DEFAULTS, example
            try:
                check_command(words)
            except Exception as error:  # noqa: BLE001 - all that are wrong are named
                faults.append(f"{example}: {error}")
    assert faults == []


def command_entries(below, beginning=()):
    for name, entry in below.items():
        if entry.below:
            yield from command_entries(entry.below, (*beginning, name))
        else:
            yield [*beginning, name], entry


DEFAULTS = ("study:memory-eval", "study:", "nodes:evaluate", "config:show")


def command_paths(group, beginning=""):
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from command_paths(command, f"{beginning}{name} ")
        elif name == group.default:  # what is meant where none is named
            yield beginning.strip()
        else:
            yield f"{beginning}{name}"


def test_every_option_of_evaluate_is_described():
    everything = "\n".join(TEXTS.values())
    command = program().commands["evaluate"]
    for parameter in command.params:
        for option in [o for o in parameter.opts if o.startswith("--") and o != "--help"]:
            name = option.removeprefix("--").replace("-", "_")
            assert option in everything or f"`{name}`" in everything, option


OTHER_PROGRAMS = {"measurements", "batches"}
"""The pages that name options of benchmarks alone."""
FOREIGN = {"--repeat", "--chat-template", "--collect-only", "--faults", "--batches", "--labels"}
"""Options of other programs that the docs name alone."""


def test_options_named_alone_are_there():
    known = FOREIGN | list_options(program())
    for path in (ROOT / "docs").glob("*.md"):
        text = path.read_text(encoding="utf-8")
        named = (
            set() if path.stem in OTHER_PROGRAMS else set(re.findall(r"`(--[a-z][a-z-]+)", text))
        )
        assert {name for name in named - known if "--textevolve-" not in name} == set(), path


def list_options(command):
    """Return the options of a command and of all below it."""
    options = {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
    for inner in getattr(command, "commands", {}).values():
        options |= list_options(inner)

    return options


def test_makefile_has_the_targets_named():
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named_name = set(re.findall(r"(?:^|`)make (\w+)", "\n".join(TEXTS.values()), re.MULTILINE))
    assert {"demo", "test"} <= named_name <= targets


def setting_names(model, prefix=""):
    """Names of all settings, with those below in dotted form."""
    for name, field in model.model_fields.items():
        if isinstance(field.default, BaseModel):
            yield from setting_names(type(field.default), f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", field


def test_every_setting_is_described():
    text = blocks("toml", "docs/settings.md")[0][1]
    for name, field in setting_names(Settings):
        value = reduce(getitem, name.split("."), tomllib.loads(text))
        if isinstance(field.default, str | int | float):
            assert value == field.default, f"the default of {name}"
    for variable, name in ENVIRONMENT.items():
        row = next(line for line in text.splitlines() if line.startswith(f"{name} = "))
        assert f"# {variable}; " in row
    assert "`TEXTEVOLVE_CONFIG=FILE`" in TEXTS["docs/settings.md"]


def test_examples_of_settings_are_valid():
    found = blocks("toml", "docs/settings.md", "docs/models.md", "docs/decisions.md")
    assert len(found) >= 3
    for _, code in found:
        Settings.model_validate(tomllib.loads(code))


def test_the_complete_file_of_settings_is_complete():
    values = tomllib.loads(blocks("toml", "docs/settings.md")[0][1])
    assert set(values) == set(Settings.model_fields)
    provider, price = (next(iter(values[name].values())) for name in ("providers", "prices"))
    settings = Settings.model_validate(values)
    assert set(provider) == set(type(next(iter(settings.providers.values()))).model_fields)
    assert set(price) == set(type(next(iter(settings.prices.values()))).model_fields)


def test_profiles_in_the_docs_load():
    found = blocks("yaml", "docs/debate.md")
    assert found
    for page, code in found:
        assert set(parse_profile(code, page).model_fields_set) == set(Profile.model_fields)
    load_profile(EXAMPLES / "profile.yaml")


def test_fields_of_a_profile_are_described_with_their_defaults():
    text = TEXTS["docs/debate.md"]
    for name, field in Profile.model_fields.items():
        row = next((line for line in text.splitlines() if line.startswith(f"| `{name}` |")), "")
        assert row, f"{name} is not described"
        plain = field.default is None or isinstance(field.default, str | int | float)
        if plain and field.default != "" and not field.is_required():
            spelt = {"None": "none", "True": "true", "False": "false"}  # as YAML does
            default = spelt.get(str(field.default), field.default)
            assert row.startswith(f"| `{name}` | `{default}` |"), f"the default of {name}"
    for name in (*shipped_profiles(), *(component.name for component in COMPONENTS)):
        assert f"\n- `{name}`" in text, name


def test_providers_and_weights_are_those_of_the_program():
    text = TEXTS["docs/models.md"].partition("## Providers")[2]
    for name, provider in PROVIDERS.items():
        row = next((line for line in text.splitlines() if line.startswith(f"| `{name}` |")), "")
        for part in (provider.base_url, provider.key_env, provider.default_model):
            assert not part or f"`{part}`" in row, f"{name}: {part}"
    for name, weights in read_catalogue().items():
        assert f"| `{name}` | {weights.bytes / 1e9:.2f} GB | {weights.licence} |" in text


def test_every_judge_and_option_is_described():
    text = TEXTS["docs/judges.md"]
    names = text.partition("| name | method |")[2].partition("\n\n")[0]
    options = text.partition("| option | for |")[2].partition("\n\n")[0]
    for form in listed_judges():
        assert re.search(rf"`{re.escape(form.partition('PROFILE')[0])}", names), form
    for name in judge_names():
        for option in options_of(find_judge(name)):
            assert re.search(rf"`{option}\b", options), f"{name}+{option}"


def test_every_metric_is_described():
    text = TEXTS["docs/metrics.md"]
    for name in SHIPPED:
        assert re.search(rf"^- .*`{re.escape(name)}\b", text, re.MULTILINE), name


def test_every_format_of_rows_is_described():
    text = TEXTS["docs/data.md"].partition("## Files")[2].partition("\n## ")[0]
    for suffix in SUFFIXES:
        assert f"`{suffix}`" in text, suffix


def test_every_public_name_is_described():
    everything = "\n".join(text for page, text in TEXTS.items() if page.startswith("docs/"))
    missing = [n for n in textevolve.__all__ if not re.search(rf"\b{n}\b", everything)]
    assert not missing


def test_every_part_of_a_result_is_described():
    everything = TEXTS["docs/debate.md"] + TEXTS["docs/python.md"]
    parts = [n for n, v in vars(DebateResult).items() if hasattr(v, "__get__") and n[0] != "_"]
    missing = [n for n in parts if not re.search(rf"\b{n}\b", everything)]
    assert not missing


def test_columns_of_result_files_are_described():
    text = TEXTS["docs/batches.md"]
    failure = Failure("failed", "a reason")
    failed = unusable(Case("x", ("y",)), 0, load_profile("general"), failure)
    turn = Turn(0, 0, "m", (0,), failure=failure)
    rows = candidate_rows(replace(failed, turns=(turn,)))
    for column in (name for row in rows for name in row):
        if not column.startswith("component_"):
            assert f"`{column}`" in text, column
    for name in result_metrics(failed):
        assert f"`{name}`" in text, name


def test_exit_codes_are_described():
    for code in (0, FAILED, MISUSED, PARTLY, INTERRUPTED):
        assert f"\n| {code} |" in TEXTS["docs/batches.md"]


def test_links_resolve():
    anchors = {page: headings(text) for page, text in TEXTS.items()}
    for page, text in TEXTS.items():
        for target in re.findall(r"\]\(([^)\s]+)\)", BLOCK.sub("", text)):
            if "://" in target:
                continue
            name, _, anchor = target.partition("#")
            file = (ROOT / page).parent / name if name else ROOT / page
            assert file.is_file(), f"{page}: {target}"
            if anchor:
                there = file.resolve().relative_to(ROOT).as_posix()
                assert anchor in anchors[there], f"{page}: {target}"


def test_every_page_is_in_the_navigation_and_on_the_first_page():
    navigation = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:")[2]
    for page in (path.name for path in PAGES if path.parent.name == "docs"):
        assert re.search(rf" {re.escape(page)}$", navigation, re.MULTILINE), page
        assert page == "index.md" or f"]({page}" in TEXTS["docs/index.md"], page


def test_packages_of_the_site_are_pinned_as_all_others():
    pins, others = (
        dict(re.findall(r"^([\w.-]+)==(\S+)", (ROOT / name).read_text("utf-8"), re.MULTILINE))
        for name in ("docs/constraints.txt", "constraints.txt")
    )
    assert "mkdocs-material" in pins
    assert {name: pins[name] for name in pins.keys() & others} == {
        name: others[name] for name in pins.keys() & others
    }


PROMPTS = [
    ["Hi {a}", {"file": "a.txt"}],
    {"one": "Hi {a}"},
    {"one": [{"role": "user", "content": "{a}"}]},
]
STUDIES = [
    {"kind": "evaluate", "cases": ["input", "output"], "weights": "accuracy=1", "agents": ["Ann"]},
    {"kind": "evaluate", "cases": "cases.csv", "weights": {"accuracy": 1}, "agents": "Ann,Bob"},
    {"kind": "agreement", "items": "items.csv", "judge": "probe", "good": 1},
    {"kind": "calibrate", "template": {"ask": "Hi {a}"}, "data": "rows.csv"},
    *({"kind": "compare", "prompts": prompts, "data": "rows.csv"} for prompts in PROMPTS),
]


def test_the_schema_takes_what_a_study_file_may_have(home):
    schema = Draft202012Validator(schema_of_all())
    pages = [yaml.safe_load(code) for _, code in blocks("yaml") if re.search("^kind:", code, re.M)]
    (home / "a.txt").write_text("Hi {a}")
    assert len(pages) >= 2
    for study in [*pages, *STUDIES]:
        schema.validate(study)
        read_study(study)
    wrong = {"kind": "compare", "prompts": {"a": [{"role": "nobody", "content": "{a}"}]}}
    assert not any(map(schema.is_valid, [wrong, {**STUDIES[0], "jugde": "probe"}, {"kind": "no"}]))


def headings(text):
    """The anchors that a page's headings have, as the usual viewers make them."""
    titles = re.findall(r"^#+ (.+)$", BLOCK.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_paths_named_in_the_docs_are_there():
    source = ROOT / "src" / "textevolve"
    rooms = "api|cli|studies|store|report|debate|memory|llm|engine"
    rooms += "|examples|benchmarks|tests"
    for page, text in TEXTS.items():
        for path in re.findall(rf"`((?:{rooms})/[\w./*-]+)`", text):
            there = [*ROOT.glob(path), *source.glob(path)]
            assert there or "NAME" in path, f"{page}: {path}"


def test_tables_of_measurements_have_their_commands():
    page = TEXTS["docs/measurements.md"]
    rows = yaml.safe_load((ROOT / "benchmarks" / "tables.yaml").read_text(encoding="utf-8"))
    titles = {row["title"] for row in rows}
    assert titles <= {*re.findall(r"(?m)^#+ (.+)$", page), *re.findall(r"\*\*(.+?)\*\*", page)}
    scripts = {command.split()[0] for row in rows for command in row["run"]}
    assert {*re.findall(r"python benchmarks/(\w+\.py)", page)} - {"tables.py"} <= scripts
    assert all((ROOT / "benchmarks" / script).is_file() for script in scripts)


def test_no_registry_and_no_place_of_one_machine():
    hosts = ("pypi" + ".org", "python" + "hosted.org", "registry" + ".npmjs", "deb" + ".debian.org")
    for page, text in TEXTS.items():
        for bad in (*hosts, "/home/", "/root/", "/tmp/", str(ROOT) + "/"):
            assert bad not in text, f"{page}: {bad}"


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "docs/bench.md",
        "docs/calibrate.md",
        "docs/chains.md",
        "docs/judges.md",
        "docs/own-judge.md",
        "docs/python.md",
        "docs/decisions.md",
        "docs/images.md",
        "docs/testing.md",
        "docs/node-eval.md",
        "docs/models.md",
        "docs/ci.md",
    ],
)
def test_python_examples_run(page, home, model, monkeypatch):
    """The blocks of a page, one after another, in one namespace; tests in them are run too."""
    monkeypatch.setenv("TEXTEVOLVE_MODEL", model)
    namespace = {"__name__": "docs"}
    with own_judges():
        for number, (_, code) in enumerate(blocks("python", page), 1):
            exec(compile(code, f"{page}, block {number}", "exec"), namespace)
            for name in [n for n in namespace if n.startswith("test_")]:
                namespace.pop(name)(home)


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md"])
def test_commands_print_what_the_page_shows(page, home, model, cli, monkeypatch):
    """Typed in their order in a folder with the examples; estimates are of the model on the page,
    all else asks the scripted server. A block of text is the output of the command before it, or
    is in a file of the examples."""
    shutil.copytree(EXAMPLES, home / "examples")
    files = "\n".join((EXAMPLES / name).read_text("utf-8") for name in SHOWN)
    monkeypatch.setenv("COLUMNS", "80")
    named_name, output, typed = "", "", 0
    for language, code in BLOCK.findall(TEXTS[page]):
        for line in typed_lines(code) if language == "sh" else ():
            command, _, expected = line.partition("  # exit code ")
            words = shlex.split(command)
            if words[0] == "export":
                named_name = words[1].removeprefix("TEXTEVOLVE_MODEL=")
            elif words[0] == "textevolve":
                monkeypatch.setenv(
                    "TEXTEVOLVE_MODEL", named_name if "--dry-run" in words else model
                )
                outcome = cli(*words[1:])
                assert outcome.code == int(expected or 0), f"{line}: {outcome.err}"
                output = re.sub(" +$", "", outcome.out + outcome.err, flags=re.MULTILINE)
                typed += 1
        if language in {"text", "yaml"} and "uses:" not in code:
            assert code in output + files, code
    assert typed >= 3


@pytest.mark.parametrize(
    "page",
    [
        "bench.md",
        "card.md",
        "ci.md",
        "compare.md",
        "data.md",
        "fitted-judges.md",
        "metrics.md",
        "traces.md",
    ],
)
def test_guides_begin_with_the_output_of_their_first_commands(page, home, cli, monkeypatch):
    """Those that read the examples and need no model; the page may leave out lines between."""
    shutil.copytree(EXAMPLES, home / "examples")
    monkeypatch.setenv("COLUMNS", "80")
    (_, commands), *_ = blocks("sh", f"docs/{page}")
    (_, expected), *_ = blocks("text", f"docs/{page}")
    lines = [line for line in typed_lines(commands) if re.search("examples/|look:length", line)]
    outcomes = [cli(*shlex.split(line)[1:]) for line in lines]
    printed = [
        line.rstrip() for outcome in outcomes for line in (outcome.out + outcome.err).splitlines()
    ]
    assert lines
    assert [line for line in expected.splitlines() if line not in printed] == []


@pytest.mark.parametrize("name", ["batch.py", "custom_recall.py"])
def test_example_programs_run(name, home, model, monkeypatch, capsys):
    arguments = [str(EXAMPLES / "cases.jsonl"), model] if name == "batch.py" else [model]
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    output = capsys.readouterr().out
    assert "* candidate" in output if name == "batch.py" else "recalled 2" in output


def test_the_layers_drawn_are_those_that_are_checked():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = contracts["contracts"][0]["layers"]
    expected = [row.replace("textevolve.", "") for row in layers]
    drawn = TEXTS["docs/architecture.md"].split("```")[1].strip().splitlines()
    assert [re.split(r"  +", row)[0] for row in drawn] == expected


def test_modules_named_in_the_docs_are_there():
    for page, text in TEXTS.items():
        for name in re.findall(r"`(textevolve(?:\.\w+)+)\b", text):
            if name.endswith((".db", ".toml")):
                continue
            module, _, last = name.rpartition(".")
            found = importlib.import_module(module)
            assert hasattr(found, last) or importlib.import_module(name), f"{page}: {name}"
