"""A client: what it is told once, the one type of result, judges as objects, what it closes."""

import inspect

import pytest

from textevolve import (
    AsyncClient,
    Case,
    Client,
    Debate,
    DebateResult,
    InputError,
    Limits,
    Settings,
    load_profile,
    run,
)
from textevolve.api import verb_options
from textevolve.api.results import CaseResult
from textevolve.errors import BudgetError
from textevolve.evaluation import Failure
from textevolve.judges.opening import JudgedCase
from textevolve.llm.testing import Fault
from textevolve.runs.study import find_study
from textevolve.store.repository import open_store
from textevolve.studies.evaluate_spec import EvaluateSpec

pytestmark = pytest.mark.usefixtures("home")

CASE = ("Is 7 prime?", ["Yes, it is.", "No, it is 1 x 7."])


@pytest.mark.parametrize("judge", ["debate", "probe"])
def test_all_judges_give_one_type_of_result(model, home, judge):
    result = Client(model).evaluate(*CASE, judge=judge)
    assert len(result.scores) == len(result.feedback) == 2
    assert result.best == max((0, 1), key=lambda place: result.scores[place])
    assert all(0 <= score <= 1 for score in result.scores)
    assert isinstance(result.debate, DebateResult) == (judge == "debate")
    with open_store(home / "store.db") as store:
        assert store.run_totals(store.get_run(result.run).id).spent == result.usage


def test_a_missing_score_is_none_and_its_reason_stands_in_the_feedback(model, server):
    server.script = lambda _body, _number: Fault.EMPTY
    result = Client(model).evaluate(*CASE, judge="probe")
    assert (result.scores, result.best) == ((None, None), None)
    assert result.failure is not None
    assert result.feedback == (result.failure.reason,) * 2
    limit = Failure("skipped", "the limit")
    record = JudgedCase(Case("?", ("a", "b")), 0, (Failure("failed", "no answer"), limit))
    assert CaseResult(record, "run").failure == record.failure == limit


def test_judges_as_objects_are_those_of_the_same_name(model):
    client = Client(model)

    def run_of(**options):
        return client.evaluate(*CASE, **options).run

    full_profile = load_profile("general").model_copy(update={"rounds": 1})
    assert run_of(judge=Debate(profile=full_profile)) == run_of(profile=full_profile)
    assert run_of(judge=Debate(rounds=1, seed=3)) == run_of(rounds=1, seed=3)
    assert client.evaluate(*CASE, judge=Debate(convergence=None)).debate.profile.convergence is None
    spec = EvaluateSpec(rounds=1, seed=3, model=model)
    assert run(spec, cases=[Case(CASE[0], tuple(CASE[1]), "1")]).chosen[0].usage.calls == 3
    with pytest.raises(InputError, match="unknown field 'round'"):
        Debate(round=1)


def test_what_a_client_is_told_holds_for_all_its_verbs(model, home, server):
    message = {"store": home / "other.db", "limits": Limits(calls=0)}
    client = Client(settings=Settings(model=model), **message)
    assert client.evaluate(*CASE).scores == (None, None)
    with pytest.raises(BudgetError):
        client.summarize("The sea is deep. " * 300, 50)
    assert server.calls == 0
    assert (home / "other.db").is_file()
    assert not (home / "store.db").exists()


async def test_what_is_open_is_closed_with_the_client(model):
    with Client(model) as client:
        plain = client.judge("probe")
        assert len((await plain(Case(CASE[0], tuple(CASE[1])))).result) == 2
    async with AsyncClient(model) as client:
        awaited = client.judge("probe+rules")
        assert len((await awaited(Case(CASE[0], tuple(CASE[1])))).result) == 2
    for judge in (plain, awaited):
        with pytest.raises(InputError, match="is closed"):
            await judge(Case(CASE[0], tuple(CASE[1])))


KINDS_OF_VERBS = {
    "evaluate": "evaluate",
    "evaluate_batch": "evaluate",
    "compare": "compare",
    "calibrate": "calibrate",
    "optimize": "optimize",
    "innovate": "innovate",
    "guide": "guide",
    "generate_profile": "profile",
    "summarize": "summarize",
    "fit_judge": "fit",
    "compare_quants": "compare-quants",
    "run_chain": "chain",
    "evaluate_memory": "memory-eval",
    "create_memories": "create-memories",
    "integrate_memories": "integrate-memories",
    "read_corpus": "read-corpus",
    "evolve_persona": "evolve-persona",
}


@pytest.mark.parametrize("verb", KINDS_OF_VERBS)
def test_options_are_fields_of_the_specification(verb):
    fields = find_study(KINDS_OF_VERBS[verb]).spec.model_fields
    options = getattr(AsyncClient, verb).__wrapped__.__annotations__["options"]
    listed = getattr(verb_options, options.removeprefix("Unpack[").removesuffix("]"))
    assert listed.__annotations__.keys() <= fields.keys()
    mapping_proxy_type = inspect.signature(getattr(Client(), verb)).parameters
    assert listed.__annotations__.keys() <= mapping_proxy_type.keys()
    assert "options" not in mapping_proxy_type


def test_an_unknown_option_is_refused():
    with pytest.raises(TypeError, match="rouns"):
        Client().innovate("Write.", rouns=2)
