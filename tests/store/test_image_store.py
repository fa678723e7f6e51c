"""Images in the store: each kept once, found again, and removed with the last run that has it."""

from dataclasses import replace

from made_images import png
from textevolve.evaluation import Case, Usage
from textevolve.images import image_facts, image_url
from textevolve.llm.model import JournalEntry, Message, Request, Response, request_key

URLS = [image_url(png(colour=(n, 0, 0))) for n in range(4)]
CASE = Case(
    "q", ("a", "b"), "1", {"seed": 1}, "ref", "about", (URLS[0], URLS[1]), ((URLS[2],), (URLS[0],))
)


def sql(store, query):
    return [tuple(row) for row in store.read(lambda c: c.exec_driver_sql(query).all())]


def count_texts(store):
    return sql(store, "SELECT count(*) FROM texts")[0][0]


def entry_of(case):
    request = Request(messages=(Message("user", (case.input,), case.images),))
    response = Response("yes", "stop", Usage(1, 10, 0, 1, 0.0))
    return JournalEntry(
        key=request_key("m", request),
        model="m",
        request=request,
        response=response,
        error=None,
        started=1.0,
        seconds=1.0,
        attempts=1,
    )


def test_cases_come_back_whole_and_images_are_kept_once(store, new_run):
    run = new_run()
    cases = [replace(CASE, id=str(n)) for n in range(30)]
    store.add_cases(run.id, cases)
    assert list(store.iterate_cases(run.id)) == cases
    assert count_texts(store) == 3
    for url in URLS[:3]:
        assert store.find_image(image_facts(url).key) == url
    assert store.find_image(image_facts(URLS[3]).key) is None


async def test_the_journal_shares_them_and_the_last_run_takes_them_along(store, new_run):
    run, other = new_run(), new_run()
    store.add_cases(run.id, [CASE])
    store.add_cases(other.id, [replace(CASE, images=(URLS[3],), candidate_images=())])
    await store.journal(run.id).append(entry_of(CASE))
    (call,) = store.calls(run.id)
    assert store.read_request(call).messages[0].images == CASE.images
    assert count_texts(store) == 5  # four images and the text of the message
    store.delete_run(run.id)
    assert count_texts(store) == 1
    (case,) = store.iterate_cases(other.id)
    assert case.images == (URLS[3],)
    # A writer that knew them must not think that they are still there.
    again = new_run()
    store.add_cases(again.id, [CASE])
    await store.journal(again.id).append(entry_of(CASE))
    (call,) = store.calls(again.id)
    assert store.read_request(call).messages[0].images == CASE.images
    store.delete_run(again.id)
    store.delete_run(other.id)
    assert count_texts(store) == 0
