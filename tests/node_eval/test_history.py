from textevolve.evaluation import EvaluationResult, Failure
from textevolve.node_eval import GENERATE, VERIFY, History, HistoryItem


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
        "superstep 1\n"
        "    plan  GENERATE  0.25 s  7 tokens\n"
        "superstep 2\n"
        "    search  failed: raised OSError: gone\n"
        "    inner/check  VERIFY\n"
        "        sure  0.50 not passed: too low by far\n"
        "        judge  not scored: no answer within 1 s\n"
        "        later  skipped: dropped"
    )
    assert str(History()) == "0 supersteps, 0 nodes"


def test_nothing_in_a_history_moves_the_terminal():
    history = History([[item("<b>bold</b>\x1b[2J", error="<script>")]])
    assert "\x1b" not in str(history)
