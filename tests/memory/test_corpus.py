"""What becomes of chunks when a document is read again."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from textevolve.memory.corpus import ORIGINAL, Chunk, StoredChunk, align_chunks, digest, kept_chunk
from textevolve.memory.record import MemoryRecord, Origin


def chunks_of(sections):
    return [Chunk(f"{text}\n", heads, place) for place, (heads, text) in enumerate(sections, 1)]


def kept_of(chunks, role=""):
    return [StoredChunk(f"me_{c.position}", c.source_in("d"), role, digest(c.text)) for c in chunks]


sections = st.lists(
    st.tuples(
        st.sampled_from([(), ("A",), ("A", "B")]), st.sampled_from(["one", "two", "three", "four"])
    ),
    max_size=8,
)


@given(sections, sections)
def test_chunks_and_memories_count_once(old, new):
    old_memories, chunks = kept_of(chunks_of(old)), chunks_of(new)
    steps = align_chunks(old_memories, chunks, "d")
    assert [step.chunk for step in steps if step.chunk] == chunks
    reused = [step.memory for step in steps if step.memory]
    assert sorted(reused) == sorted(memory.id for memory in old_memories)
    same = Counter(old) & Counter(new)
    assert sum(step.action == "keep" for step in steps) == same.total()


def test_changed_new_and_lost_chunks():
    old = chunks_of([(("A",), "one"), (("A",), "two"), (("A",), "three")])
    new = chunks_of([(("Z",), "one"), (("A",), "two, changed")])
    actions = [(step.action, step.memory) for step in align_chunks(kept_of(old), new, "d")]
    assert actions == [("add", ""), ("replace", "me_1"), ("close", "me_2"), ("close", "me_3")]


def test_another_role_tells_everything_anew():
    chunks = chunks_of([((), "one")])
    (step,) = align_chunks(kept_of(chunks), chunks, "d", "a nurse")
    assert step.action == "replace"
    memory = MemoryRecord(
        id="me_1",
        collection="docs",
        kind="semantic",
        text="I know one.",
        importance=0.5,
        created=0.0,
        origin=Origin("d", 1, "a nurse"),
        reason=ORIGINAL + "one",
    )
    (step,) = align_chunks([kept_chunk(memory)], chunks, "d", "a nurse")
    assert step.action == "keep"
