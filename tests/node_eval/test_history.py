from textevolve.node_eval import History, HistoryItem


def item(node, order=0, **more):
    return HistoryItem(1.0, more.pop("instruction", None), node=node, order=order, **more)


def test_nothing_in_a_history_moves_the_terminal():
    history = History([[item("<b>bold</b>\x1b[2J", error="<script>")]])
    assert "\x1b" not in str(history)
