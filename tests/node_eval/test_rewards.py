"""Rewards for training: a line for each node, null where there is no score, never a made-up one."""

import json
from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from textevolve.errors import InputError
from textevolve.evaluation import EvaluationResult, Failure
from textevolve.node_eval.episode_evaluation import PlacedNode
from textevolve.node_eval.history import HistoryItem
from textevolve.node_eval.instructions import Instruction
from textevolve.node_eval.rewards import collect_names, weigh, write_rewards


def item(node="n", **scores):
    results = {
        name: EvaluationResult(score, score >= 0.5) if isinstance(score, float) else score
        for name, score in scores.items()
    }
    return HistoryItem(
        timestamp=1,
        instruction=Instruction.GENERATE,
        input_state={"q": 1},
        output_state="a",
        evaluation_results=results,
        node=node,
    )


FAILED = Failure("failed", "no answer")


def write(*items, weights=None):
    nodes = [PlacedNode("run", step, step + 1, one) for step, one in enumerate(items)]
    file = BytesIO()
    number = write_rewards(nodes, collect_names(nodes), file, weights)
    lines = [json.loads(line) for line in file.getvalue().splitlines()]
    assert number == len(lines)
    return lines


def test_each_node_is_a_line_with_a_reward_from_each_evaluator():
    first, second = write(item("a", good=0.5, short=1.0), item("b", good=FAILED))
    assert first == {
        "episode": "run",
        "step": 0,
        "node": "a",
        "path": [],
        "instruction": "GENERATE",
        "input": {"q": 1},
        "output": "a",
        "error": None,
        "rewards": {"good": 0.5, "short": 1.0},
    }
    assert (second["step"], second["rewards"]) == (1, {"good": None, "short": None})


def test_a_total_is_of_those_who_were_to_judge_and_missing_where_one_failed():
    weights = {"good": 3.0, "short": 1.0}
    lines = write(
        item(good=1.0, short=0.0),
        item(good=1.0),
        item(good=FAILED, short=1.0),
        item(),
        item(good=0.0, short=0.0),
        weights=weights,
    )
    assert [line["total"] for line in lines] == [0.75, 1.0, None, None, 0.0]


@given(
    st.dictionaries(st.sampled_from("abcd"), st.floats(0, 1), min_size=1),
    st.dictionaries(st.sampled_from("abcd"), st.floats(0.01, 10), min_size=1),
)
def test_a_total_lies_between_the_scores_that_it_is_made_of(scores, weights):
    total = weigh(item(**scores), weights)
    used = [scores[name] for name in weights if name in scores]
    if not used:
        assert total is None
    else:
        assert min(used) - 1e-9 <= total <= max(used) + 1e-9


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        ({"god": 1.0}, "no such evaluator; there are: good"),
        ({"good": -1.0}, "must be 0 or more"),
        ({"good": float("nan")}, "must be 0 or more"),
        ({"good": 0.0}, "all weights are 0"),
    ],
)
def test_weights_that_cannot_be_used_are_refused(weights, said):
    with pytest.raises(InputError, match=said):
        write(item(good=1.0), weights=weights)
