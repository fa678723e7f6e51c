"""The law of transparency: watching changes nothing, and every script is a script.

What the product wraps or calls behaves as it does without the product, in threads, forks, tasks
and generators. What holds for English texts holds for texts in all scripts.

A cell of the first half is a piece of a user's code, something that is done to it, and the place
where that happens: "generator / method / sent values / in a thread / a monitor" sends values into a
generator method that a monitor watches. Its right value is what the plain code gives at the same
place. A failure shows both records, the plain one second.

A cell of the second half is a function on texts, a relation and a script: "rouge-l / a replaced
word / Hindi". Its right value is worked out from the words in `transparency_scripts.py`, such as
4/5 if one of five words is another. A failure shows the value that the product gave.

Where a fork hangs, a cell waits three seconds for it: its record is then "it hung".
"""

import contextvars
import unicodedata
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import pytest

import textevolve
from laws.matrix import check_known, check_members, cover, parametrize
from laws.registries import list_metrics
from laws.studies import answer
from laws.transparency_clients import (
    ASYNC_FORMS,
    DOORS,
    OPENED,
    OWN_FORMS,
    READERS,
    VERBS,
    describe_argument,
    read_prompts,
    run_own_loop,
    write_own,
)
from laws.transparency_scripts import (
    CLUSTERS,
    EXACT,
    INFLECTED,
    SCRIPTS,
    SIGNS,
    SUBJECTS,
    check_rules,
    compare_steps,
    cut_documents,
    fill_column,
    find_formed,
    has_marks,
    judge_labels,
    list_statements,
    remember_facts,
    score_pairs,
    search_exactly,
    search_words,
)
from laws.transparency_world import (
    BEHAVIOURS,
    BLOCKS,
    BODIES,
    ENDINGS,
    FORMS,
    MARK,
    PLACES,
    READ_TO_THE_END,
    STEPS,
    TASKS,
    UPSIDE_DOWN,
    WATCHERS,
    GradedError,
    end_stream,
    exercise,
)
from textevolve import Client, InputError
from textevolve.node_eval import Monitor

pytestmark = pytest.mark.guard
LAW = "transparency"


@pytest.fixture
def make_client(home, server):
    """Open a client of the scripted server, with a store of its own."""
    server.script = answer
    clients: list[Client] = []

    def make(name: str = "client", **options: Any) -> Client:
        store = home / f"{name}.db"
        clients.append(Client(f"{server.url}#scripted", store=store, **options))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


# Callables that are watched.


FORKS = ("in a forked child", "in a child forked after its first use")


def list_watched() -> dict[str, tuple[str, ...]]:
    """Return the cells of watched callables: each pair of a form, a behaviour, a place and a
    watcher occurs."""
    cells: dict[str, tuple[str, ...]] = {}
    for flavour, behaviours in BEHAVIOURS.items():
        is_async = "async" in flavour or flavour == "coroutine"
        # Within a running loop no second one runs. A fork is dear: it is tried once a behaviour.
        left_out = {*FORKS, "within a running loop"} if is_async else set(FORKS)
        places = [place for place in PLACES if place not in left_out]
        tasks = tuple(TASKS) if is_async else ("",)
        rows = cover(FORMS, behaviours, places, WATCHERS, tasks)
        factors = [cycle(factor) for factor in (FORMS, FORKS, WATCHERS, tasks)]
        for behaviour in behaviours:
            form, place, watcher, task = (next(factor) for factor in factors)
            rows.append((form, behaviour, place, watcher, task))
        for row in rows:
            parts = [flavour, *row]
            cells[" / ".join(filter(None, parts))] = tuple(parts)
    return cells


WATCHED = list_watched()


@parametrize(LAW, "cell", WATCHED, quick=30)
def test_watched_code_behaves_as_plain(cell):
    flavour, form, behaviour, place, watcher_name, task = cell
    write = FORMS[form]
    chosen = BEHAVIOURS[flavour][behaviour]
    run = PLACES[place]
    plain_target = write(lambda body: body, BODIES[flavour])
    plain = run(lambda: exercise(plain_target, chosen, task or None))

    watcher = WATCHERS[watcher_name]()
    try:
        watched_target = write(watcher.wrap, BODIES[flavour])
        with watcher.around():
            watched = run(lambda: exercise(watched_target, chosen, task or None))
    finally:
        watcher.close()

    assert watched == plain


TURNED = {
    f"{flavour} / {form} / its result": (flavour, form)
    for flavour in BODIES
    for form in UPSIDE_DOWN
}
RESULTS = {"generator": "its values", "async generator": "its values"}


@parametrize(LAW, "cell", TURNED, quick=2)
def test_decorators_in_the_other_order(cell):
    flavour, form = cell
    write = UPSIDE_DOWN[form]
    behaviour = BEHAVIOURS[flavour][RESULTS.get(flavour, "its result")]
    plain = exercise(write(lambda body: body, BODIES[flavour]), behaviour, None)

    with Monitor([]) as monitor:
        try:
            target = write(monitor.node(), BODIES[flavour])
        except InputError:
            return  # a refusal in our words is no other behaviour
        except Exception as error:
            raise AssertionError(f"raised {type(error).__name__}: {error}") from error
        assert exercise(target, behaviour, None) == plain


def call_safely(make: Callable[[], Any]) -> Any:
    """Return what a function makes; what it raises is a wrong value of the cell."""
    try:
        return make()
    except Exception as error:
        raise AssertionError(f"raised {type(error).__name__}: {error}") from error


def test_watched_code_is_recorded():
    for name, open_watcher in WATCHERS.items():
        watcher = open_watcher()
        target = FORMS["as it is"](watcher.wrap, BODIES["function"])
        with watcher.around():
            exercise(target, BEHAVIOURS["function"]["its result"], None)
        assert watcher.count() == 1, name
        watcher.close()


# Blocks of a monitor that end elsewhere.

STREAMS = {
    f"{block} / a stream / {ending}": (block, ending) for block in BLOCKS for ending in ENDINGS
}


@parametrize(LAW, "cell", STREAMS, quick=6)
def test_a_block_ends_anywhere(cell):
    block, ending = cell
    plain, _ = end_stream(ENDINGS[ending], lambda monitor: nullcontext())
    record, nodes = end_stream(ENDINGS[ending], BLOCKS[block])

    assert record == plain
    words = [run for node, run in nodes if node == "word"]
    number = STEPS if ending in READ_TO_THE_END else 1
    assert words == ["one" if block == "a run" else "1"] * number
    assert dict(nodes)["after"] == "1"


# The user's own code within a verb.

ACTIONS = ("its value", "a context variable", "an error", "a loop of its own")


def list_own() -> dict[str, tuple[str, str, str]]:
    """Return the cells of the user's own code: each pair of a door, a form and an action that can
    be; only code that is not async may have a loop of its own."""
    cells: dict[str, tuple[str, str, str]] = {}
    for name, form, action in cover(DOORS, OWN_FORMS, ACTIONS):
        takes_form = form in DOORS[name].forms
        if takes_form and not (action == "a loop of its own" and form in ASYNC_FORMS):
            cells[f"{name} / {form} / {action}"] = (name, form, action)
    for name, door in DOORS.items():
        for number, form in enumerate(door.forms):
            actions = ACTIONS[:3] if form in ASYNC_FORMS else ACTIONS
            action = actions[number % len(actions)]
            cells[f"{name} / {form} / {action}"] = (name, form, action)
    return cells


OWN = list_own()


@parametrize(LAW, "cell", OWN, quick=1)
def test_own_code_is_called_as_it_is(make_client, cell):
    name, form, action = cell
    door = DOORS[name]
    seen: list[str] = []

    def own(value: Any) -> Any:
        seen.append(describe_argument(value))
        if action == "an error":
            raise GradedError("wrong", 7)
        if action == "a context variable":
            seen.append(MARK.get())
        if action == "a loop of its own":
            run_own_loop()
        return door.answer

    def use() -> Any:
        MARK.set("outer")
        return door.use(make_client(), write_own(own)[form])

    outcome = contextvars.copy_context().run(use)
    assert seen[0] == door.argument
    if action == "an error":
        assert "wrong" in str(outcome)
    else:
        assert outcome == door.outcome
    if action == "a context variable":
        assert seen[1] == "outer"


PROGRAMS = {f"prompts read {name}": reader for name, reader in READERS.items()}


@parametrize(LAW, "reader", PROGRAMS, quick=0)
def test_a_program_reads_the_tried_prompts(make_client, reader):
    texts = read_prompts(make_client(), reader)
    tried = {"What is {n} and {n} more?\nBe clear.", "What is {n} and {n} more?\nAdd carefully."}
    assert tried <= texts


# Verbs, wherever they are called.

NOT_TRIED = {
    "evaluate_memory": "it takes a second of computing for each place",
    "run": "it runs the specifications of the other verbs",
    "ask": "it makes a step, and does nothing by itself",
    "call": "it makes a step, and does nothing by itself",
    "load_chain": "it reads a file",
    "load_profile": "it reads a file",
    "load_rules": "it reads a file",
    "read_image": "it reads a file",
}
"""Public functions that are not called at each place, with the reason."""
VERB_PLACES = (
    "in a thread",
    "within a running loop",
    "in a forked child",
    "in a child forked after its first use",
)
_undisturbed: dict[str, list[Any]] = {}
"""What each verb returns when it is called twice without anything around it."""
CALLED = {f"{verb} / {place}": (verb, place) for verb in VERBS for place in VERB_PLACES}


@parametrize(LAW, "cell", CALLED, quick=1)
def test_a_verb_works_at_each_place(make_client, cell):
    verb, place = cell
    if verb not in _undisturbed:
        client = make_client("undisturbed")
        _undisturbed[verb] = [VERBS[verb](client), VERBS[verb](client)]
    first, second = _undisturbed[verb]
    right = {"in a thread": [first], "in a child forked after its first use": second}

    client = make_client()
    record = call_safely(lambda: PLACES[place](lambda: VERBS[verb](client)))
    assert record == right.get(place, first)


USED = {
    f"{name} / {place}": (name, place)
    for name in OPENED
    for place in VERB_PLACES
    # It is used before each place.
    if place != "in a forked child"
}


@parametrize(LAW, "cell", USED, quick=0)
def test_an_open_object_works_at_each_place(make_client, cell):
    name, place = cell
    use = OPENED[name](make_client())
    first = use()
    record = call_safely(lambda: PLACES[place](use))
    assert record == ([first] if place == "in a thread" else first)


def test_each_verb_is_tried():
    names = [name for name in textevolve.__all__ if name.islower()]
    # A debate is a way to evaluate.
    tried = set(VERBS) - {"debate"}
    check_members("verb", names, tried | set(NOT_TRIED))


# Functions on texts, in each script.

BETWEEN = "between 0 and 1"
"""A right value that is not worked out: texts that are neither equal nor without anything in
common."""
Pair = tuple[str, str]
OVERLAPS = ("edit-distance", "rouge-l", "rouge-n", "bleu", "gleu", "chrf")
MATCHES = ("exact", "contains", "regex:{label}")
NO_TEXTS = {
    "json-schema": "it compares names and types",
    "tool-called": "it reads the steps of an agent",
    "tool-sequence": "it reads the steps of an agent",
    "tool-args": "it reads the steps of an agent",
    "max-steps": "it counts the steps of an agent",
    "no-error": "it reads the steps of an agent",
}
"""Metrics that compare no texts, with the reason."""


@dataclass(frozen=True)
class Scored:
    """A cell of a function that scores: its pair of an output and a reference, and its value."""

    judge: str
    pair: Pair
    right: float | str


def list_scored() -> dict[str, Scored]:
    """Return the cells of all metrics and of the judge by length."""
    cells: dict[str, Scored] = {}
    for name, script in SCRIPTS.items():
        number = len(script.words)
        text = script.text
        for judge in (*MATCHES, *OVERLAPS):
            pairs = {"equal texts": (text, text)}
            if script.has_forms:
                pairs["two forms of a text"] = (script.decomposed, text)
            for relation, pair in pairs.items():
                cells[f"{judge} / {relation} / {name}"] = Scored(judge, pair, 1.0)

            right: float | str = 0.0 if judge in MATCHES else BETWEEN
            if judge == "rouge-l" and script.spaced:
                right = (number - 1) / number
            cells[f"{judge} / a replaced word / {name}"] = Scored(
                judge, (script.swapped, text), right
            )

        for judge in ("exact:ignore-case", "contains:ignore-case"):
            if script.case is not None:
                cells[f"{judge} / capitals / {name}"] = Scored(judge, script.case, 1.0)

        gap = " " if script.spaced else ""
        numbers: dict[str, tuple[Pair, float]] = {
            "a number": ((f"{text}{gap}42", "42"), 1.0),
            "another number": ((f"{text}{gap}42", "43"), 0.0),
        }
        if script.zero:
            digits = script.write_number(42)
            numbers |= {
                "a number in own digits": ((f"{text}{gap}{digits}", "42"), 1.0),
                "another number in own digits": ((f"{text}{gap}{digits}", "43"), 0.0),
                "a reference in own digits": ((f"{text}{gap}42", digits), 1.0),
            }
        for relation, (pair, value) in numbers.items():
            cells[f"numeric / {relation} / {name}"] = Scored("numeric", pair, value)

        if script.spaced:
            longer = f"{text} {script.words[0]}"
            length = number / (number + 100)
            cells[f"look:length / a text / {name}"] = Scored("look:length", (text, ""), length)
            cells[f"look:length / a word more / {name}"] = Scored(
                "look:length", (longer, ""), (number + 1) / (number + 101)
            )
    for name, (text, number) in WRITTEN.items():
        wrong = str(number + 1)
        right = str(number)
        cells[f"numeric / {name} as output"] = Scored("numeric", (f"It is {text}", right), 1.0)
        cells[f"numeric / {name} as reference"] = Scored("numeric", (right, text), 1.0)
        cells[f"numeric / {name} beside another"] = Scored("numeric", (f"It is {text}", wrong), 0.0)
    return cells


WRITTEN: dict[str, tuple[str, float]] = {
    "a sign before a currency": ("-$40", -40),
    "a sign behind a currency": ("€ −40", -40),
    "groups by no-break spaces": ("9\u00a0234", 9234),
    "groups by narrow spaces": ("9\u202f234", 9234),
    "groups by apostrophes": ("9’234", 9234),
    "groups as in India": ("₹2,50,000", 250_000),
    "groups by dots": ("9.234.567", 9_234_567),
    "a fraction": ("3 1/2", 3.5),
    "a fraction in one sign": ("3½", 3.5),
    "a power of ten": ("1.5 × 10³", 1500),
    "a word for a thousand": ("3 thousand", 3000),
    "percent": ("20 %", 20),
}
"""Ways to write a number in a sentence, each with the number."""
SCORED = list_scored()
_scores: dict[str, dict[str, float | None]] = {}


@parametrize(LAW, "name", {name: name for name in SCORED}, quick=40)
def test_texts_are_scored_alike(home, cli, name):
    cell = SCORED[name]
    if cell.judge not in _scores:
        pairs = {other: c.pair for other, c in SCORED.items() if c.judge == cell.judge}
        _scores[cell.judge] = score_pairs(home, cli, prefix(cell.judge), pairs)
    score = _scores[cell.judge][name]
    check_score(score, cell.right)


def prefix(judge: str) -> str:
    """Return the text of a judge or metric for the option --judge."""
    return judge if judge.startswith("look:") else f"metric:{judge}"


def check_score(score: float | None, right: float | str) -> None:
    """Assert that a score is the right one."""
    assert score is not None
    if right == BETWEEN:
        assert 0.0 < score < 1.0
    else:
        assert score == pytest.approx(right, abs=1e-6)


def test_each_metric_on_texts_is_tried(cli):
    tried = {cell.judge.partition(":")[0] for cell in SCORED.values()} - {"look"}
    check_members("metric", list_metrics(cli), tried | set(NO_TEXTS))


# Rules on texts.


@dataclass(frozen=True)
class Ruled:
    """A cell of a rule: the rule, the text, and the score that the text must get."""

    rule: Mapping[str, Any]
    text: str
    right: float | str = 1.0


def list_ruled() -> dict[str, Ruled]:
    """Return the cells of rules for words and lengths."""
    cells: dict[str, Ruled] = {}
    for name, script in SCRIPTS.items():
        number = len(script.words)
        word = script.swap[0]
        keyword = {"kind": "keywords", "all": [word]}
        cells[f"rule keywords / a word of the text / {name}"] = Ruled(keyword, script.text)
        cells[f"rule keywords / a word of another text / {name}"] = Ruled(
            keyword, script.swapped, 0.0
        )
        if script.inside is not None:
            part, text = script.inside
            absent = {"kind": "keywords", "none": [part]}
            cells[f"rule keywords / a part of a word / {name}"] = Ruled(absent, text)
        if script.spaced:
            exact = {"kind": "length", "min": number, "max": number}
            cells[f"rule length / words / {name}"] = Ruled(exact, script.text)
        else:
            short = {"kind": "length", "max": 1}
            cells[f"rule length / words / {name}"] = Ruled(short, script.text, BETWEEN)
        if script.has_forms:
            composed = unicodedata.normalize("NFC", script.text)
            same = {"kind": "length", "unit": "characters", "max": len(composed)}
            cells[f"rule length / two forms of a text / {name}"] = Ruled(same, script.decomposed)
            words = {"kind": "keywords", "all": [find_formed(script)]}
            cells[f"rule keywords / two forms of a text / {name}"] = Ruled(words, script.decomposed)
    return cells


RULED = list_ruled()


@parametrize(LAW, "cell", RULED, quick=15)
def test_rules_hold_alike(tmp_path, cell):
    check_score(check_rules(tmp_path, cell.rule, cell.text), cell.right)


# Steps of an agent that are compared.


def list_steps() -> dict[str, tuple[str, str, float | str]]:
    """Return the cells of the judge that compares steps of an agent."""
    cells: dict[str, tuple[str, str, float | str]] = {}
    for name, script in SCRIPTS.items():
        number = len(script.words)
        right = (number - 1) / number if script.spaced else BETWEEN
        cells[f"consistency / a replaced word / {name}"] = (script.text, script.swapped, right)
        if script.has_forms:
            cells[f"consistency / two forms of a text / {name}"] = (
                script.text,
                script.decomposed,
                1.0,
            )
    return cells


STEPS_COMPARED = list_steps()


@parametrize(LAW, "cell", STEPS_COMPARED, quick=5)
def test_steps_are_compared_alike(cell):
    text, other, right = cell
    check_score(compare_steps(text, other), right)


# Columns and placeholders.


def list_columns() -> dict[str, Pair]:
    """Return the cells of columns, each with its name in the rows and in the prompt."""
    cells: dict[str, Pair] = {}
    for name, script in SCRIPTS.items():
        column = max(script.words, key=lambda word: (has_marks(word), len(word)))
        cells[f"placeholder / a column / {name}"] = (column, column)
        if script.has_forms:
            word = find_formed(script)
            decomposed = unicodedata.normalize("NFD", word)
            cells[f"placeholder / a column in another form / {name}"] = (decomposed, word)
    return cells


COLUMNS = list_columns()


@parametrize(LAW, "cell", COLUMNS, quick=1)
def test_columns_fill_placeholders(make_client, server, cell):
    column, placeholder = cell
    client = make_client()
    server.script = lambda body, number: "Good."
    messages = call_safely(lambda: fill_column(client, server.requests, column, placeholder))
    assert messages == ["Say noon."]


# Labels that people gave.


def list_labels() -> dict[str, Pair]:
    """Return the cells of labels, each with the label in the file and in the option."""
    cells: dict[str, Pair] = {}
    for name, script in SCRIPTS.items():
        cells[f"labels / a word for good / {name}"] = (script.swap[0], script.swap[0])
        if script.has_forms:
            word = find_formed(script)
            decomposed = unicodedata.normalize("NFD", word)
            cells[f"labels / two forms of a word for good / {name}"] = (decomposed, word)
    return cells


LABELS = list_labels()


@parametrize(LAW, "cell", LABELS, quick=1)
def test_labels_are_read_alike(home, cli, cell):
    label, good = cell
    assert judge_labels(home, cli, label, good) == 0.5


# Memories, statements and documents: one run for all scripts.

_runs: dict[str, Any] = {}


def run_once(name: str, run: Callable[[], Any]) -> Any:
    """Return what a run gives that many cells share."""
    if name not in _runs:
        _runs[name] = run()
    return _runs[name]


FACTS = {f"memories / a fact that differs in a word / {name}": name for name in SCRIPTS}
FACTS |= {f"memories / a fact that differs in {name} / English": name for name in SIGNS}


@parametrize(LAW, "subject", FACTS, quick=0)
def test_facts_that_differ_are_kept(home, subject):
    texts = run_once("facts", lambda: remember_facts(home))
    # A sentence of the user about himself is kept as a quotation.
    for fact in SUBJECTS[subject]:
        assert any(fact in text for text in texts), fact


HEARD = {f"memories / a name in another case / {name}": name for name in INFLECTED}


@parametrize(LAW, "language", HEARD, quick=0)
def test_inflected_names_were_said(home, language):
    texts = run_once("facts", lambda: remember_facts(home))
    assert INFLECTED[language][1] in texts


SEARCHED = {f"search / a word of one memory / {name}": name for name in SCRIPTS}


@parametrize(LAW, "name", SEARCHED, quick=0)
def test_a_word_finds_its_memory(home, name):
    texts = run_once("search", lambda: search_words(home))
    assert texts[name] == SCRIPTS[name].swapped


FOUND = {f"search / an exact name / {name}": name for name in EXACT}


@parametrize(LAW, "name", FOUND, quick=0)
def test_an_exact_name_finds_its_memory(home, name):
    texts = run_once("exact", lambda: search_exactly(home))
    assert texts[name] == EXACT[name][1]


IDS = {
    f"ids / two forms of an id / {name}": name
    for name, script in SCRIPTS.items()
    if script.has_forms
}


def score_two_forms(home: Any, cli: Any) -> dict[str, float | None]:
    """Score rows whose ids differ in their form alone: the first is right, the other is not."""
    pairs: dict[str, Pair] = {}
    for name in IDS.values():
        script = SCRIPTS[name]
        pairs[script.text] = ("yes", "yes")
        pairs[script.decomposed] = ("no", "yes")
    return score_pairs(home, cli, "metric:exact", pairs)


@parametrize(LAW, "name", IDS, quick=0)
def test_ids_in_two_forms_are_two(home, cli, name):
    scores = run_once("ids", lambda: score_two_forms(home, cli))
    script = SCRIPTS[name]
    assert [scores.get(script.text), scores.get(script.decomposed)] == [1.0, 0.0]


STATED = {
    f"statements / an answer of two sentences / {name}": name
    for name, script in SCRIPTS.items()
    if script.has_stop
}


@parametrize(LAW, "name", STATED, quick=0)
def test_two_sentences_are_two_statements(make_client, server, name):
    listed = run_once("statements", lambda: list_statements(make_client(), server.requests))
    assert listed[name] is True


CUT = {
    f"documents / chunks of whole sentences / {name}": name
    for name, script in SCRIPTS.items()
    if script.has_stop
}


@parametrize(LAW, "name", CUT, quick=0)
def test_documents_are_cut_between_sentences(home, name):
    chunks = run_once("documents", lambda: cut_documents(home))[name]
    stop = SCRIPTS[name].stop
    assert len(chunks) > 1
    assert [chunk[-1] for chunk in chunks] == [stop] * len(chunks)


PIECES = {f"documents / signs in one piece / {name}": name for name in CLUSTERS}


@parametrize(LAW, "name", PIECES, quick=0)
def test_documents_are_cut_between_signs(home, name):
    chunks = run_once("documents", lambda: cut_documents(home))[f"{name} alone"]
    assert len(chunks) > 1
    assert [chunk.replace(CLUSTERS[name], "") for chunk in chunks] == [""] * len(chunks)


def test_known_failures_are_cells():
    code = (WATCHED, TURNED, STREAMS, OWN, PROGRAMS, CALLED, USED)
    texts = (
        SCORED,
        RULED,
        STEPS_COMPARED,
        COLUMNS,
        FACTS,
        HEARD,
        SEARCHED,
        FOUND,
        IDS,
        LABELS,
        STATED,
        CUT,
        PIECES,
    )
    check_known(LAW, *code, *texts)
