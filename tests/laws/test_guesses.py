"""Law 7: a guess is tried, not believed.

Meaning that hangs on words, on a first token or on one alternative is settled by alignment or by
one more try, and remembered. The scripted model knows its verdict on each text. It says it in each
way in which servers are known to say it, and what is read must be what it knows, or be missing with
a reason: never another verdict.

A cell is a reader and a way of answering, such as "probe / thinking in the text". The readers are:
judges, each with scores worked out by hand; kinds of study, each compared with the same run of a
model that answers plainly; `doctor`, whose statement must be what a judge can read; rows and traces
with recorded thoughts; and the client itself, which reads refusals: of a schema, a field, a value,
or one row.

How to read a failure: `probe / a line break alone` with "scores [0.1, 0.8], expected [0.9, 0.2]"
says that probe read this way of answering as another verdict. A failure that speaks of a readable
way says that a verdict is missing that stands where any reader finds it.
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from laws.guesses_decisions import ANSWERS, WIRES, decider
from laws.guesses_refusals import (
    FAILED_GENERATIONS,
    FIELD_REFUSALS,
    NESTS,
    ROW_REFUSALS,
    SCHEMA_REFUSALS,
)
from laws.guesses_studies import (
    ASKS_NOTHING,
    FORMS,
    REASON,
    VARIANTS,
    Run,
    fits,
    list_differences,
    list_other_verdicts,
    run_study,
)
from laws.guesses_ways import CHOICES, OBJECTS, SCRIPT_ERRORS, TEXTS, WAYS, speaker
from laws.guesses_world import BAD_TEXT, answer_study, form_of, judge_row, schema_of, wants_object
from laws.judges import JUDGES, OPTIONS_OF_JUDGES, PLAIN, JudgeRecipe
from laws.matrix import check_known, check_members, parametrize
from laws.registries import choose, list_judges
from laws.studies import RECIPES, World, write_rows
from laws.studies import SCORES as SCORES_FILE
from textevolve.llm.testing import Answer

pytestmark = pytest.mark.guard

SETTINGS = """\
[retries]
attempts = 2
first = 0.001
longest = 0.002

[providers.decider]
base_url = "URL"
decisions = "WIRE"
keyless = true
"""
"""The settings of each cell: a second try comes at once."""


@pytest.fixture(autouse=True)
def settings(request):
    """Write the settings of a cell that runs commands; after it, check that its script worked."""
    if "world" in request.fixturenames:
        write_settings(request.getfixturevalue("world"))
    SCRIPT_ERRORS.clear()
    yield
    assert not SCRIPT_ERRORS


def write_settings(world: World, wire: str = "systemone") -> None:
    """Write the settings, with the protocol in which the provider `decider` answers."""
    text = SETTINGS.replace("URL", world.server.url).replace("WIRE", wire)
    (world.home / "textevolve.toml").write_text(text, encoding="utf-8")


# Judges -----------------------------------------------------------------------------------------

GOOD_AND_BAD = (0.9, 0.2)
BETTER_AND_WORSE = (0.9, 0.1)
SCORES = (1.0, 0.2)

READERS_OF_WORDS: Mapping[str, tuple[float, ...]] = {
    "probe": GOOD_AND_BAD,
    "reference": GOOD_AND_BAD,
    "checklist": GOOD_AND_BAD,
    "trajectory": (0.9,),
    "cascade:BELOW:FIRST,SECOND": GOOD_AND_BAD,
    # The mean of its rule and the judge; the rule fails the other candidate.
    "hybrid:FILE.yaml:JUDGE": (0.95, 0.0),
    "faithfulness": GOOD_AND_BAD,
    "answer-relevance": GOOD_AND_BAD,
    # Context and reference are the same for both candidates.
    "context-recall": (0.9, 0.9),
    "context-precision": (1.0, 1.0),
    "decide": GOOD_AND_BAD,
    "single+readout=after-argument": GOOD_AND_BAD,
}
READERS_OF_LABELS: Mapping[str, tuple[float, ...]] = {
    "pairwise": BETTER_AND_WORSE,
    "pairwise+rules": BETTER_AND_WORSE,
    "decide+pairwise": BETTER_AND_WORSE,
    "decide+choice": BETTER_AND_WORSE,
    # Levels of 0, 1/2 and 1 with the shares .05, .05 and .9.
    "single+readout=decide": (0.925, 0.075),
}
READERS_OF_OBJECTS: Mapping[str, tuple[float, ...]] = {
    "debate:PROFILE": SCORES,
    "jury:PROFILE": SCORES,
    "single": SCORES,
    "escalation:PROFILE": SCORES,
    "single+readout=verbalized": SCORES,
    # 10, 9 and 8 with the shares .7, .2 and .1; 2, 1 and 0.
    "single+readout=logprob-weighted": (0.96, 0.16),
}
EXPECTED = {**READERS_OF_WORDS, **READERS_OF_LABELS, **READERS_OF_OBJECTS}
"""The scores of the candidates by what the model knows, worked out by hand."""

FALLBACKS = {"cascade:BELOW:FIRST,SECOND": SCORES}
"""The scores of judges that ask another way where the first one cannot be read."""

WITHOUT_ANSWERS = {
    "instruction-likelihood": "it reads the likelihood of a text that it forces",
    "embedding@MODEL": "it reads vectors",
    "metric:NAME": "it asks no model",
    "metric:FILE.py:FUNCTION": "it asks no model",
    "look:length": "it asks no model",
    "look:facts": "it asks no model",
    "rules:FILE.yaml": "it asks no model",
    "FILE.judge": "it calibrates the answers that `probe` reads",
    "checks": "its rubrics read a label of a schema, whole",
    "investigator": "its answers are words of a schema, whole",
    "prompt:FILE": "it reads a label of a schema, whole",
    "prompt:FILE+logprobs": "it asks a choice, as `decide` with options of its own",
}
"""Judges that read no answer themselves, each with the reason."""

ALL_JUDGES = {**JUDGES, **OPTIONS_OF_JUDGES}
LISTED = "thinking's tokens listed, reasoning_content"
"""The way that is tried on every reader of a choice."""
WAYS_OF_LABELS = 4
"""How many ways are tried on each reader of labels."""


def has_scores(way: str) -> bool:
    """Return whether a way of saying an object changes anything in the objects of judges, which
    hold texts and scores."""
    return not way.startswith(("truths", "choices"))


def make_judge_cells() -> Mapping[str, tuple[str, str, str]]:
    """Return the cells of judges: the judge, the form of answers, and the way."""
    cells: dict[str, tuple[str, str, str]] = {}

    def add(judge: str, form: str, way: str) -> None:
        cells[f"{judge} / {way}"] = (judge, form, way)

    for way in CHOICES:
        readers = {**READERS_OF_WORDS, **READERS_OF_LABELS}
        for judge in readers if way == LISTED else choose(way, READERS_OF_WORDS, 1):
            add(judge, "choice", way)
    for judge in READERS_OF_LABELS:
        for way in choose(judge, CHOICES, WAYS_OF_LABELS):
            add(judge, "choice", way)
    for way in filter(has_scores, OBJECTS):
        for judge in choose(way, READERS_OF_OBJECTS, 1):
            add(judge, "object", way)
    for way in ("numbers in two tokens", LISTED):
        add("single+readout=logprob-weighted", "object", way)
    return cells


JUDGE_CELLS = make_judge_cells()


def test_each_judge_has_its_scores(cli):
    judges = [*list_judges(cli), *OPTIONS_OF_JUDGES]
    check_members("judge", judges, [*EXPECTED, *WITHOUT_ANSWERS])


def near(score: float, expected: float) -> bool:
    """Return whether two scores are the same but for rounding."""
    return math.isclose(score, expected, abs_tol=1e-6)


def check_scores(
    scores: Sequence[float | None], expected: Sequence[float], ended: Any, *, readable: bool
) -> None:
    """Assert that each score is the expected one or missing with a reason; that of a readable way
    is not missing."""
    assert len(scores) in (0, len(expected))
    pairs = [pair for pair in zip(scores, expected, strict=False) if pair[0] is not None]
    assert all(near(*pair) for pair in pairs), f"scores {scores}, expected {list(expected)}"
    if len(pairs) == len(expected):
        return
    assert not readable, f"a readable way was not read: {ended.err}"
    assert ended.code != 0
    assert "error:" in ended.err or "lacks a score:" in ended.err


@parametrize("guesses", "cell", JUDGE_CELLS, quick=4)
def test_judge_reads_each_way(world, cell):
    judge, form, way = cell
    world.script = speaker(judge_row, form, way)
    judgement = world.judge(ALL_JUDGES[judge])

    scores = world.read_scores()
    expected = EXPECTED[judge]
    fallback = FALLBACKS.get(judge, ())
    if fallback and scores == list(fallback):
        expected = fallback
    check_scores(scores, expected, judgement, readable=WAYS[form][way].readable)


# Kinds of study ---------------------------------------------------------------------------------

READABLE_WAYS = 2
OTHER_WAYS = 1


def make_study_cells() -> Mapping[str, tuple[str, str, str]]:
    """Return the cells of studies: the study, the form of answers, and the way."""
    cells: dict[str, tuple[str, str, str]] = {}
    for study, forms in FORMS.items():
        for form in forms:
            ways = [way for way in WAYS[form] if fits(study, way)]
            readable = [way for way in ways if WAYS[form][way].readable]
            others_texts = [way for way in ways if not WAYS[form][way].readable]
            drawn = choose(f"{study} {form}", readable, READABLE_WAYS)
            drawn += choose(f"{study} {form}", others_texts, OTHER_WAYS)
            # Few kinds have truths or choices, so all these ways are tried there.
            drawn += [way for way in others_texts if way.startswith(("truths", "choices"))]
            for way in drawn:
                cells[f"{study} / {form} / {way}"] = (study, form, way)
    return cells


STUDY_CELLS = make_study_cells()

PLAIN_RUNS: dict[str, Run] = {}
"""The run of each study with plain answers: several cells share it."""


@pytest.fixture
def plain_run(world, monkeypatch):
    """Return the run of a study whose model answers plainly, in a folder and a store of its own."""

    def run(study: str) -> Run:
        if study not in PLAIN_RUNS:
            folder = world.home / "plain"
            folder.mkdir()
            with monkeypatch.context() as patch:
                patch.chdir(folder)
                patch.setenv("TEXTEVOLVE_STORE", str(folder / "store.db"))
                apart = replace(world, home=folder)
                write_settings(apart)
                plain = run_study(apart, study, speaker(answer_study))
            assert plain.ended.code == 0, plain.ended.err
            assert plain.values
            PLAIN_RUNS[study] = plain
        return PLAIN_RUNS[study]

    return run


def test_each_kind_has_its_forms(cli):
    schemas = json.loads(cli("run", "schema").out)["oneOf"]
    kinds = [schema["properties"]["kind"]["const"] for schema in schemas]
    check_members("study", [*kinds, *VARIANTS], [*FORMS, *ASKS_NOTHING])


@parametrize("guesses", "cell", STUDY_CELLS, quick=1)
def test_study_reads_each_way(world, plain_run, cell):
    study, form, way = cell
    plain = plain_run(study)
    run = run_study(world, study, speaker(answer_study, form, way))
    differences = list_differences(plain, run)
    if not differences:
        return
    assert not WAYS[form][way].readable, differences[:5]
    assert REASON.search(run.ended.err + run.ended.out), differences[:5]
    assert list_other_verdicts(differences) == []


# Refusals ---------------------------------------------------------------------------------------

READERS_OF_SCHEMAS = [study for study, forms in FORMS.items() if "object" in forms]
READERS_OF_SCHEMAS.remove("ablation")
"""Studies that ask for objects. `ablation` asks as `escalation` does, in many more calls."""
ONE_AT_A_TIME = ("--concurrency", "1")
MOST_TRIES = 1


@dataclass
class RefusingModel:
    """A model that answers plainly, but refuses some requests.

    Attributes:
        refusal: The answer to the refused requests.
        is_refused: Whether a request is refused.
        most: The most requests that are refused; None: all.
        refused: The refused requests.
        answered: The other requests.
    """

    refusal: Answer
    is_refused: Callable[[Mapping[str, Any]], bool]
    most: int | None = None
    refused: list[Mapping[str, Any]] = field(default_factory=list)
    answered: list[Mapping[str, Any]] = field(default_factory=list)

    def __call__(self, body: Mapping[str, Any], number: int) -> Answer | None:
        schema_of(body)  # The model remembers what the prompt asks for.
        if self.is_refused(body) and (self.most is None or len(self.refused) < self.most):
            self.refused.append(body)
            return self.refusal
        self.answered.append(body)
        return speaker(answer_study)(body, number)


def count_tries(bodies: Sequence[Mapping[str, Any]]) -> int:
    """Return how often the most frequent schema was sent."""
    return max(Counter(json.dumps(body["response_format"]) for body in bodies).values())


def make_schema_cells() -> Mapping[str, tuple[str, str]]:
    """Return the cells of refused schemas: the study and the refusal."""
    pairs = [(choose(refusal, READERS_OF_SCHEMAS, 1)[0], refusal) for refusal in SCHEMA_REFUSALS]
    drawn = {study for study, _refusal in pairs}
    pairs += [(study, "OpenAI") for study in READERS_OF_SCHEMAS if study not in drawn]
    return {f"{study} / a schema refused / {refusal}": (study, refusal) for study, refusal in pairs}


SCHEMA_CELLS = make_schema_cells()


@parametrize("guesses", "cell", SCHEMA_CELLS, quick=1)
def test_refused_schema_is_left_out(world, plain_run, cell):
    study, refusal = cell
    plain = plain_run(study)
    model = RefusingModel(SCHEMA_REFUSALS[refusal], lambda body: "response_format" in body)
    run = run_study(world, study, model, *ONE_AT_A_TIME)
    assert model.refused
    assert list_differences(plain, run) == []
    assert run.ended.code == plain.ended.code
    assert count_tries(model.refused) == MOST_TRIES, "the refusal of a schema was forgotten"


GENERATION_CELLS = {
    f"{study} / one failed generation / {refusal}": (study, refusal)
    for refusal in FAILED_GENERATIONS
    for study in choose(refusal, READERS_OF_SCHEMAS, 3)
}


@parametrize("guesses", "cell", GENERATION_CELLS, quick=0)
def test_failed_generation_keeps_schemas(world, plain_run, cell):
    study, refusal = cell
    plain = plain_run(study)
    refused = FAILED_GENERATIONS[refusal]
    model = RefusingModel(refused, lambda body: "response_format" in body, most=1)
    run = run_study(world, study, model, *ONE_AT_A_TIME)
    assert list_differences(plain, run) == []
    bare = [body for body in model.answered if wants_object(body) and "response_format" not in body]
    assert bare == []


def make_field_cells() -> Mapping[str, tuple[str, str, str]]:
    """Return the cells of refused fields: the study, the field, and the form of the refusal."""
    cells: dict[str, tuple[str, str, str]] = {}

    def add(name: str, nest: str) -> None:
        studies = READERS_OF_SCHEMAS if name == "response_format" else SENDERS_OF_FIELDS
        (study,) = choose(f"{name} {nest}", studies, 1)
        cells[f"{study} / {name} refused / {nest}"] = (study, name, nest)

    for name in FIELD_REFUSALS:
        add(name, "as OpenAI does")
    for nest in NESTS:
        for name in choose(nest, FIELD_REFUSALS, 1):
            add(name, nest)
    return cells


SENDERS_OF_FIELDS = [study for study, forms in FORMS.items() if "text" not in forms]
for name in ("ablation", "chain with fields", "compare with a simulated user"):
    SENDERS_OF_FIELDS.remove(name)
"""Studies whose requests have a temperature, a seed and a limit of tokens, and whose answers do not
depend on the seed, as texts do. A run of `ablation` is dear."""
FIELD_CELLS = make_field_cells()


@parametrize("guesses", "cell", FIELD_CELLS, quick=1)
def test_refused_field_is_left_out(world, plain_run, cell):
    study, name, nest = cell
    plain = plain_run(study)
    refusal = NESTS[nest](FIELD_REFUSALS[name], name)
    model = RefusingModel(refusal, lambda body: name in body)
    run = run_study(world, study, model, *ONE_AT_A_TIME)
    assert model.refused
    assert list_differences(plain, run) == []
    if name == "max_tokens":
        assert all("max_completion_tokens" in body for body in model.answered)


@dataclass(frozen=True)
class Part:
    """The row of a study that an endpoint refuses.

    Attributes:
        words: Words that stand in the requests of this row alone, and not in the first request.
        place: The beginning of the paths of its values; empty where the result has no rows.
        scored: The path of the number of scored rows, and that number without this row.
    """

    words: str
    place: str = ""
    scored: tuple[tuple[Any, ...], int] | None = None


PARTS: Mapping[str, Part] = {
    "evaluate": Part("Text 1.", place="1."),
    "chain": Part("What is 2 and", place="runs.2."),
    "nodes": Part("the sea, b 0", place="2."),
    "compare": Part("What is 2 and", scored=(("variants", 0, "scored"), 3)),
    "compare-quants": Part("What is 2 and", scored=(("variants", 0, "scored"), 3)),
    "agreement": Part("number 3", scored=(("summary", "judges", 0, "covered"), 5)),
    "create-memories": Part("black tea", scored=(("dialogues", "read"), 1)),
    "memory-eval": Part("Hallucination", scored=(("judgements", "judged"), 12)),
}


def make_row_cells() -> Mapping[str, tuple[str, str]]:
    """Return the cells of a refused row: the study and the refusal."""
    pairs = [(study, "403 by a safety check") for study in PARTS]
    for refusal in ROW_REFUSALS:
        pairs += [(study, refusal) for study in choose(refusal, PARTS, 1)]
    return {f"{study} / one row refused / {refusal}": (study, refusal) for study, refusal in pairs}


ROW_CELLS = make_row_cells()


@parametrize("guesses", "cell", ROW_CELLS, quick=1)
def test_refused_row_fails_alone(world, plain_run, cell):
    study, refusal = cell
    part = PARTS[study]
    plain = plain_run(study)
    model = RefusingModel(ROW_REFUSALS[refusal], lambda body: part.words in json.dumps(body))
    run = run_study(world, study, model, *ONE_AT_A_TIME)
    assert model.refused
    assert model.answered
    assert run.ended.code == 3, run.ended.err
    if part.scored is not None:
        path, count = part.scored
        assert run.values.get(path) == count
        return
    others_texts = [
        path for path, *_ in list_differences(plain, run) if not path.startswith(part.place)
    ]
    assert [path for path in others_texts if path != "failed"] == []
    scores = [value for path, value in run.values.items() if is_score(path, part)]
    assert [score for score in scores if score is not None] == []


def is_score(path: tuple[Any, ...], part: Part) -> bool:
    """Return whether a path is that of the score of a refused row."""
    return ".".join(map(str, path)) == f"{part.place}score"


# A refused value --------------------------------------------------------------------------------

VALUE_CELLS = {
    f"compare / {name} refused / {nest}": (name, nest)
    for name in ("a temperature of 1.5", "a limit of 20,000 tokens")
    for nest in ("as OpenAI does", "a message alone")
}
VALUE_OPTIONS = {
    "a temperature of 1.5": {"temperature": 1.5},
    "a limit of 20,000 tokens": {"max_output_tokens": 20_000},
}
VALUE_REFUSALS = {
    "a temperature of 1.5": ("temperature: values above 1 are not supported", "temperature"),
    "a limit of 20,000 tokens": (
        "max_tokens is too large: 20000. This model supports at most 1024 completion tokens.",
        "max_tokens",
    ),
}


def limit_of(body: Mapping[str, Any]) -> int | None:
    """Return the most tokens of an answer, by either name of the field."""
    return body.get("max_tokens", body.get("max_completion_tokens"))


def has_refused_value(body: Mapping[str, Any]) -> bool:
    """Return whether a request has a value that is out of the endpoint's range."""
    return body.get("temperature", 0) > 1 or body.get("max_tokens", 0) > 1024


@parametrize("guesses", "cell", VALUE_CELLS, quick=0)
def test_refused_value_is_no_field(world, cell):
    name, nest = cell
    recipe = RECIPES["compare"].changed(**VALUE_OPTIONS[name])
    model = RefusingModel(NESTS[nest](*VALUE_REFUSALS[name]), has_refused_value)
    world.prepare(recipe)
    world.script = model
    world.run("compare", recipe, *ONE_AT_A_TIME)
    assert model.refused
    judged = [body for body in model.answered if form_of(body) == "choice"]
    assert [body.get("temperature") for body in judged] == [0] * len(judged)
    assert {limit_of(body) for body in judged} == {1}
    sent = [body.get("max_completion_tokens", 0) for body in model.answered]
    assert max(sent, default=0) <= 1024, "the limit went out under another name"


# What `doctor` says -----------------------------------------------------------------------------

DOCTOR_WAYS = 8
DOCTOR_CELLS = {f"doctor / {way}": way for way in [LISTED, *choose("doctor", CHOICES, DOCTOR_WAYS)]}


@parametrize("guesses", "way", DOCTOR_CELLS, quick=1)
def test_doctor_knows_what_judges_read(world, way):
    world.script = speaker(judge_row, "choice", way)
    world.judge(JUDGES["probe"])
    scores = world.read_scores()
    is_read = bool(scores) and None not in scores
    is_right = is_read and all(map(near, scores, EXPECTED["probe"]))

    statement = json.loads(world.cli("doctor", world.model, "--json").out)
    decisions = statement["models"][0]["capabilities"]["decisions"]["value"]
    assert bool(decisions) == is_right, f"doctor says {decisions}, probe reads {scores}"


# Decision endpoints -----------------------------------------------------------------------------

DECIDERS = {"decide": GOOD_AND_BAD, "decide+pairwise": BETTER_AND_WORSE}
DECIDERS["decide+choice"] = BETTER_AND_WORSE


def make_decision_cells() -> Mapping[str, tuple[str, str, str]]:
    """Return the cells of decision endpoints: the judge, the protocol and the way."""
    cells: dict[str, tuple[str, str, str]] = {}
    for way in ANSWERS:
        for wire in WIRES:
            (judge,) = choose(f"{wire} {way}", DECIDERS, 1)
            cells[f"{judge} / {wire} / {way}"] = (judge, wire, way)
    return cells


DECISION_CELLS = make_decision_cells()


@parametrize("guesses", "cell", DECISION_CELLS, quick=1)
def test_decision_is_read(world, cell):
    judge, wire, way = cell
    write_settings(world, wire)
    world.server.wires = (wire,)
    world.server.script = decider(wire, way)
    (world.home / "row.jsonl").write_text(write_rows([PLAIN]), encoding="utf-8")
    command = ("evaluate", "row.jsonl", "--judge", judge, "-m", "decider/scripted")
    outcome = world.cli(*command, "-o", SCORES_FILE)
    check_scores(world.read_scores(), DECIDERS[judge], outcome, readable=ANSWERS[way].readable)


# Recorded thoughts ------------------------------------------------------------------------------

THOUGHT = f"Perhaps 7. {BAD_TEXT}"
RECORDED: Mapping[str, Mapping[str, Any]] = {
    "tags in the text": {"content": f"<think>\n{THOUGHT}\n</think>\n\nOslo."},
    "a closing tag alone": {"content": f"{THOUGHT}\n</think>\n\nOslo."},
    "reasoning_content": {"content": "Oslo.", "reasoning_content": THOUGHT},
    "a part of reasoning": {
        "content": [{"type": "reasoning", "text": THOUGHT}, {"type": "text", "text": "Oslo."}]
    },
    "a part of thinking": {
        "content": [{"type": "thinking", "thinking": THOUGHT}, {"type": "text", "text": "Oslo."}]
    },
    "brackets": {"content": f"[THINK]{THOUGHT}[/THINK]Oslo."},
    "channels": {
        "content": f"<|channel|>analysis<|message|>{THOUGHT}<|end|><|start|>assistant"
        "<|channel|>final<|message|>Oslo."
    },
}
"""The forms in which answers are recorded with their thoughts."""
READERS_OF_RECORDS = {"probe": 0.9, "decide": 0.9, "metric:exact": 1.0}


def make_record_cells() -> Mapping[str, tuple[str, str]]:
    """Return the cells of recorded thoughts: the reader and the form. Recorded steps are tried on
    the forms that are texts."""
    pairs = [(judge, name) for name in RECORDED for judge in choose(name, READERS_OF_RECORDS, 2)]
    pairs += [("nodes", name) for name in RECORDED if isinstance(RECORDED[name]["content"], str)]
    return {f"{reader} / recorded thoughts / {name}": (reader, name) for reader, name in pairs}


RECORD_CELLS = make_record_cells()


@parametrize("guesses", "cell", RECORD_CELLS, quick=1)
def test_recorded_thought_is_no_answer(world, cell):
    reader, name = cell
    world.script = speaker(judge_row)
    if reader == "nodes":
        step = {"episode": "a", "step": 0, "node": "chat", "input": {"text": "Which city?"}}
        row = {**step, "output": {"text": RECORDED[name]["content"]}}
        recipe = RECIPES["nodes"].with_file("trace.jsonl", [row])
        world.prepare(recipe)
        ended = world.run("nodes", recipe, "--json")
        scores = [result["score"] for result in ended.rows]
        check_scores(scores, GOOD_AND_BAD[:1], ended, readable=True)
        return
    message = {"role": "assistant", **RECORDED[name]}
    question = {"role": "user", "content": "What is the capital of Norway?"}
    row = {"id": "a", "messages": [question, message], "reference": "Oslo."}
    ended = world.judge(JudgeRecipe(reader, row))
    check_scores(world.read_scores(), [READERS_OF_RECORDS[reader]], ended, readable=True)


# Chats ------------------------------------------------------------------------------------------

CHAT_WAYS = [way for way in TEXTS if way != "streamed unasked"]
CHAT_CELLS = {
    f"chat / {way}": way for way in ["a closing tag alone", *choose("chat", CHAT_WAYS, 5)]
}


@parametrize("guesses", "way", CHAT_CELLS, quick=0)
def test_chat_shows_the_answer_alone(world, way):
    created = world.cli("agents", "create", "ada", "--persona", "You are Ada, a nurse.")
    assert created.code == 0, created.err
    world.server.script = speaker(judge_row, "text", way)
    words = ("chat", "ada", "--once", "Good morning.", "--no-memory", "-m", world.model)
    outcome = world.cli(*words)
    assert outcome.out.strip() == "It names a city.\nIt is brief.\nIt is right."


ALL_CELLS = (
    *(JUDGE_CELLS, STUDY_CELLS, SCHEMA_CELLS, GENERATION_CELLS, FIELD_CELLS, ROW_CELLS),
    *(VALUE_CELLS, DOCTOR_CELLS, DECISION_CELLS, RECORD_CELLS, CHAT_CELLS),
)


def test_known_failures_are_cells():
    check_known("guesses", *ALL_CELLS)
