"""The report of an agent's nodes: a small history whole, of a big one the first, nothing obeyed."""

import re
from io import BytesIO, StringIO

from rich.console import Console

from textevolve.evaluation import EvaluationResult, Failure
from textevolve.node_eval.history import History, HistoryItem, Instruction
from textevolve.node_eval.judging import Episode, place_nodes
from textevolve.report.html import write_html
from textevolve.report.terminal import print_report
from textevolve.studies.node_report import (
    WHOLE_STATE,
    JudgedNode,
    UnusedLine,
    as_record,
    data,
    find_node_row,
    report,
    summarise_nodes,
)
from textevolve.studies.nodes import NodesSpec, list_chats


def item(node, **more):
    return HistoryItem(
        **{"timestamp": 1, "node": node, "instruction": Instruction.GENERATE, **more}
    )


def found(*episodes, unused=(), **more):
    records = [as_record(node, n) for n, node in enumerate(place_nodes(episodes), 1)]
    return summarise_nodes(NodesSpec(), [*records, *unused], **more)


def page(result, **more):
    target = BytesIO()
    write_html(report(NodesSpec(), result, **more), target)
    return target.getvalue().decode()


def test_scores_failures_and_states_are_shown_and_escaped():
    bad = "<script>alert(1)</script>"
    history = History(
        [
            [
                item(
                    bad,
                    input_state={"q": bad},
                    output_state="x" * (WHOLE_STATE + 5),
                    evaluation_results={
                        "good": EvaluationResult(0.75, True, bad),
                        "lost": Failure("failed", "no answer"),
                    },
                )
            ],
            [item("b", error="broke", path=("outer",)), item("c", error="you?", interrupted=True)],
        ]
    )
    text = page(found(Episode("one", history)))
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    for answer in (
        "0.75",
        "no score",
        "no answer",
        "… (5 more characters)",
        "outer/b",
        "failed: broke",
        "waits: you?",
        "Waits for",
        "3 nodes in 1 episode",
        "default-src &#39;none&#39;" if "&#39;none" in text else "default-src 'none'",
    ):
        assert answer in text, answer
    assert "http" not in text.replace("http-equiv", "")


def test_figures_are_by_evaluator_and_lines_that_were_not_used_are_named():
    results = {"good": EvaluationResult(0.5, False)}
    history = History(
        [
            [item("a", evaluation_results=results)],
            [item("b", instruction=None, evaluation_results={"good": EvaluationResult(1.0, True)})],
            [item("c", error="broke", evaluation_results={"good": Failure("skipped", "failed")})],
        ]
    )
    result = found(Episode("one", history), unused=[UnusedLine(4, "t.jsonl:9", "not JSON")])
    message = data(NodesSpec(), result)
    good = message["evaluators"]["good"]
    assert (good["mean"], good["passed"], good["scored"], good["skipped"]) == (0.75, 1, 2, 1)
    assert (message["episodes"], message["nodes"], message["errors"]) == (1, 3, 1)
    assert message["unused"] == [{"number": 4, "place": "t.jsonl:9", "reason": "not JSON"}]
    text = page(result)
    assert "t.jsonl:9" in text


def test_an_item_without_a_score_is_no_failure_and_one_that_failed_has_no_mean():
    def row(unasked="", **results):
        item = HistoryItem(timestamp=1, node="n", evaluation_results=results)
        return find_node_row(JudgedNode("a", 0, 1, item, 1, unasked))

    good, poor = EvaluationResult(1.0, True), EvaluationResult(0.5, False)
    assert (row(x=good, y=poor).score, row(x=good, y=poor).status) == (0.75, "scored")
    nothing = row(x=Failure("skipped", "the node failed"))
    assert (nothing.score, nothing.status, nothing.reason) == (None, "scored", "the node failed")
    failed = row(x=good, y=Failure("failed", "no answer"))
    assert (failed.score, failed.status, failed.reason) == (None, "failed", "y: no answer")
    assert row("the limit", x=good, y=Failure("skipped", "the limit")).status == "skipped"


def as_terminal(result):
    target = StringIO()
    print_report(report(NodesSpec(), result), Console(file=target, width=120))
    return target.getvalue()


def agent_run(**more):
    """Return a run of 4 s in which a search takes the second half, inside of the agent."""
    search = item(
        "search",
        path=("agent",),
        timestamp=102.0,
        seconds=2.0,
        instruction=Instruction.TOOL_CALL,
        evaluation_results={"fits": EvaluationResult(0.2, False, "the wrong city")},
    )
    request = {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "Go?"}]}
    agent = item("agent", timestamp=100.0, seconds=4.0, input_state=request, **more)
    return Episode("wYQjvI8eO+EQkyTnHPiNBA==", History([[search], [agent]]))


def test_bars_start_when_nodes_did():
    text = page(found(agent_run()))
    bars = re.findall(r'<rect x="([\d.]+)%" width="([\d.]+)%"', text)
    assert bars == [("0.0", "100.0"), ("50.0", "50.0")]
    lines = as_terminal(found(agent_run())).splitlines()
    (agent,) = (line for line in lines if "agent" in line and "━" in line)
    (search,) = (line for line in lines if "search" in line)
    assert agent.startswith("━" * 16 + "  ")
    assert search.startswith(" " * 8 + "━" * 8 + "  ")


def test_nodes_unfold_without_headings():
    text = page(found(agent_run()))
    headings = re.findall(r"<h[1-6][^>]*>(.*?)</h[1-6]>", text)
    assert not any("wYQjvI8" in heading for heading in headings)
    assert text.count('<details class="branch') == 2
    assert text.index("Episodes") < text.index("Evaluators")


def test_episodes_have_their_request():
    text = as_terminal(found(agent_run()))
    assert "Go?  episode wYQjvI8eO+EQkyTnHPi" in text
    assert "fits  0.20, not passed: the wrong city" in text
    assert "2 nodes in 1 episode. fits passed 0 of 1" in text


def test_terminals_count_further_branches():
    history = History([[item(f"step{n}", timestamp=n, seconds=1.0)] for n in range(100)])
    text = as_terminal(found(Episode("long", history)))
    assert "step58" in text
    assert "step59" not in text
    assert "41 more lines not shown here" in text
    assert "step99" in page(found(Episode("long", history)))


def test_nodes_without_times_have_no_bars():
    still = Episode("still", History([[item("a")], [item("b", seconds=0.0)]]))
    undated = [[item("a", timestamp=0.0, seconds=1.2)], [item("b", timestamp=0.0, seconds=6.5)]]
    for episode in (still, Episode("undated", History(undated))):
        assert "<rect" not in page(found(episode))


def test_long_reasons_are_whole_on_a_page():
    reason = "The city is wrong. " * 40 + "That is the end."
    judged = item("a", evaluation_results={"fits": EvaluationResult(0.2, False, reason)})
    result = found(Episode("one", History([[judged]])))
    assert page(result).count("That is the end.") == 1
    text = as_terminal(result)
    assert "0.20, not passed: The city is wrong." in text
    assert "That is the end." not in text


def test_a_chat_of_nodes_leaves_them_as_they_are():
    request = {"messages": [{"role": "user", "content": "Where is it?"}]}
    answers = [{"text": "In Rome."}, {"text": "Near the river."}]
    items = [
        HistoryItem(0.0, input_state=request, output_state=answer, node="ask") for answer in answers
    ]
    nodes = [JudgedNode("a", n, n + 1, item, n + 1) for n, item in enumerate(items)]
    first_chats = list(list_chats(nodes))
    assert list(list_chats(nodes)) == first_chats
    assert len(request["messages"]) == 1
    contents = [message["content"] for message in first_chats[0][1]]
    assert contents == ["Where is it?", "In Rome.", "Near the river."]
