"""The page of an agent's nodes: all of a small history, the first of a big one, nothing obeyed."""

from textevolve.evaluation import EvaluationResult, Failure
from textevolve.export.nodes_page import STATE_SHOWN, write_nodes_page
from textevolve.node_eval.episodes import Episode
from textevolve.node_eval.history import History, HistoryItem
from textevolve.node_eval.instructions import Instruction
from textevolve.node_eval.statistics import Tallies


def item(node, **more):
    return HistoryItem(timestamp=1, instruction=Instruction.GENERATE, node=node, **more)


def page(tmp_path, *episodes, **more):
    tallies = Tallies()
    for episode in episodes:
        tallies.add(episode)
    path = tmp_path / "nodes.html"
    write_nodes_page(episodes, tallies, path, {"Run": "r1"}, **more)
    return path.read_text()


def test_scores_failures_and_states_are_shown_and_escaped(tmp_path):
    bad = "<script>alert(1)</script>"
    history = History(
        [
            [
                item(
                    bad,
                    input_state={"q": bad},
                    output_state="x" * (STATE_SHOWN + 5),
                    evaluation_results={
                        "good": EvaluationResult(0.75, True, bad),
                        "lost": Failure("failed", "no answer"),
                    },
                )
            ],
            [item("b", error="broke", path=("outer",)), item("c", error="you?", interrupted=True)],
        ]
    )
    text = page(tmp_path, Episode("one", history))
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    for said in (
        "0.75",
        "no score",
        "no answer",
        "… (5 more characters)",
        "outer/b",
        "failed: broke",
        "waits: you?",
        "Waits for",
        "1 episode, 3 nodes",
        "default-src &#39;none&#39;" if "&#39;none" in text else "default-src 'none'",
    ):
        assert said in text, said
    assert "http" not in text.replace("http-equiv", "")


def test_a_big_history_is_cut_and_says_so(tmp_path):
    episodes = [
        Episode(str(n), History([[item(f"n{n}-a"), item(f"n{n}-b")], [item(f"n{n}-c")]]))
        for n in range(3)
    ]
    text = page(tmp_path, *episodes, most=4)
    assert "The first 4 nodes of 9 nodes are on this page" in text
    assert text.count('<details class="node">') == 4
    assert "n1-a" in text
    assert "n1-b" not in text
    assert "Episode 2" not in text
    assert "are on this page" not in page(tmp_path, *episodes)
