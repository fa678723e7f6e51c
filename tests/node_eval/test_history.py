import datetime

from textevolve.evaluation import EvaluationResult, Failure
from textevolve.node_eval import GENERATE, VERIFY, History, HistoryItem
from textevolve.node_eval.history import seen_from


def item(node, order=0, **more):
    return HistoryItem(1.0, more.pop("instruction", None), node=node, order=order, **more)


def test_prints_as_a_tree():
    history = History(
        [
            [item("plan", instruction=GENERATE, seconds=0.25, tokens=7)],
            [
                item("search", error="raised OSError: gone"),
                item(
                    "check",
                    instruction=VERIFY,
                    path=("inner",),
                    evaluation_results={
                        "sure": EvaluationResult(0.5, False, "too low\n by far"),
                        "judge": Failure("failed", "no answer within 1 s"),
                        "later": Failure("skipped", "dropped"),
                    },
                ),
            ],
        ]
    )
    assert str(history) == (
        "2 supersteps, 3 nodes\n"
        "├── superstep 1\n"
        "│   └── plan  GENERATE  0.25 s  7 tokens\n"
        "└── superstep 2\n"
        "    ├── search  failed: raised OSError: gone\n"
        "    └── inner/check  VERIFY\n"
        "        ├── sure  0.50 not passed: too low by far\n"
        "        ├── judge  not scored: no answer within 1 s\n"
        "        └── later  skipped: dropped"
    )
    assert str(History()) == "0 supersteps, 0 nodes"


def test_nothing_in_a_history_is_markup_or_moves_the_terminal():
    history = History([[item("<b>bold</b>\x1b[2J", error="<script>")]])
    assert "\x1b" not in str(history)
    assert "<b>" not in history._repr_html_()
    assert "&lt;script&gt;" in history._repr_html_()


def test_a_datetime_becomes_unix_time():
    at = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
    assert HistoryItem(at).timestamp == at.timestamp()


def entries():
    """The node of an outer graph (order 4) ends after those of the inner one (2, 3)."""
    return [
        [item("first", 1)],
        [item("beside", 2), item("outer", 5)],
        [item("inner", 3)],
        [item("inner again", 4), item("late", 6)],
    ]


def seen(own, place, count):
    past = entries()
    return seen_from(past, past[own][place], own, count).entries


def test_an_evaluator_sees_its_node_last_and_nothing_that_ended_later():
    assert [[i.node for i in step] for step in seen(3, 0, 4)] == [
        ["first"],
        ["beside"],
        ["inner"],
        ["inner again"],
    ]
    assert [[i.node for i in step] for step in seen(1, 1, 4)] == [
        ["first"],
        ["inner"],
        ["inner again"],
        ["beside", "outer"],
    ]
    steps = seen(1, 0, 2)
    assert steps[-1][-1].node == "beside"
    assert (len(steps), len(steps[:1]), steps[-2] is steps[0]) == (2, 1, True)


def test_what_is_seen_is_a_copy():
    past = [[item("a", 1, output_state={"deep": [1, {"x": 2}]})]]
    past[0][0].evaluation_results = {"sure": EvaluationResult(0.5, True, "", {"n": [1]})}
    view = seen_from(past, past[0][0], 0, 1)
    current = view.entries[-1][-1]
    current.output_state["deep"][1]["x"] = 3
    current.output_state["deep"].append(4)
    current.evaluation_results["sure"].metadata["n"].append(2)
    current.evaluation_results["mine"] = None
    current.node = "b"
    assert isinstance(current, HistoryItem)
    assert [i.output_state for i in view.items] == [{"deep": [1, {"x": 3}, 4]}]
    assert past[0][0].output_state == {"deep": [1, {"x": 2}]}
    assert past[0][0].evaluation_results == {"sure": EvaluationResult(0.5, True, "", {"n": [1]})}
    assert past[0][0].node == "a"
