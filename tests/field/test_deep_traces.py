"""Traces in which each step is inside the one before: each span is read once, not once for each
step that it contains."""

from collections import UserDict

from textevolve.node_eval.span_states import Span
from textevolve.node_eval.traces import Reading, build_episodes


class CountedAttributes(UserDict):
    reads = 0

    def __getitem__(self, key):
        CountedAttributes.reads += 1
        return super().__getitem__(key)

    def __contains__(self, key):
        CountedAttributes.reads += 1
        return super().__contains__(key)


def count_reads(depth):
    spans = {
        str(n): Span(
            trace_id="t",
            span_id=str(n),
            parent_span_id=str(n - 1),
            name=f"step {n}",
            start=n,
            end=3 * depth - n,
            attributes=CountedAttributes(
                {"openinference.span.kind": "LLM", "input.value": "a", "output.value": "b"}
            ),
            events=(),
            status=None,
        )
        for n in range(1, depth + 1)
    }
    CountedAttributes.reads = 0
    (episode,) = build_episodes([("t", spans)], Reading(), {})
    items = list(episode.history.items)
    assert items[0].path == tuple(f"step {n}" for n in range(1, depth))
    assert len(items) == depth
    return CountedAttributes.reads


def test_reads_grow_with_the_spans_alone():
    assert count_reads(80) < 4.5 * count_reads(20)
