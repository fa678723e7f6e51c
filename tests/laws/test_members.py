"""Each kind of study has a small run of its own, on which the laws are tried.

What fails here is a new kind without a recipe, or a recipe that does not run: add it to
`laws/studies.py`, and every law holds it from then on.
"""

import json

import pytest

from laws.judges import JUDGES, METRICS, OPTIONS_OF_JUDGES
from laws.matrix import check_members
from laws.registries import list_judges, list_metrics, list_outputs, list_row_formats
from laws.studies import RECIPES, WITHOUT_FILE

pytestmark = [pytest.mark.guard, pytest.mark.slow]


def test_each_kind_of_study_has_a_recipe(cli):
    schemas = json.loads(cli("run", "schema").out)["oneOf"]
    kinds = [schema["properties"]["kind"]["const"] for schema in schemas]
    check_members("study", kinds, [*RECIPES, *WITHOUT_FILE])


@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=[pytest.mark.slow] * (k == "memory-eval")) for k in RECIPES]
)
def test_a_recipe_runs(world, kind):
    recipe = RECIPES[kind]
    world.prepare(recipe)
    outcome = world.run(kind, recipe, "--json")
    assert outcome.code == 0, outcome.err
    assert outcome.out


def test_each_judge_and_metric_has_a_recipe(cli):
    check_members("judge", list_judges(cli), JUDGES)
    check_members("metric", list_metrics(cli), METRICS)


@pytest.mark.parametrize("name", [*JUDGES, *OPTIONS_OF_JUDGES, *METRICS])
def test_a_judge_scores_its_row(world, name):
    recipe = {**JUDGES, **OPTIONS_OF_JUDGES, **METRICS}[name]
    outcome = world.judge(recipe)
    assert outcome.code == 0, outcome.err
    scores = world.read_scores()
    assert scores
    assert all(0 <= score <= 1 for score in scores)


def test_formats_are_listed(cli):
    assert {".jsonl", ".csv", ".parquet"} <= set(list_row_formats(cli))
    assert {".json", ".csv", ".html", ".md"} <= set(list_outputs(cli))
