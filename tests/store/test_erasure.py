"""What is erased is gone from every table, from free pages and from the write-ahead log."""

import json
from contextlib import closing

import pytest

from textevolve.errors import StoreError
from textevolve.evaluation import Case, Usage
from textevolve.llm.model import (
    JournalEntry,
    Message,
    Request,
    Response,
    TokenLogprobs,
    request_key,
)
from textevolve.settings import StoreAddress
from textevolve.store import upkeep
from textevolve.store.database import open_database
from textevolve.store.records import StoredRecord
from textevolve.store.repository import open_store
from textevolve.store.tables import messages
from textevolve.store.upkeep import ERASED, erase_texts

SECRET = 'Ann is "allergic"\nto walnuts, and Zoé <|im_start|> knows.'
QUOTED = 'Facts:\n> Ann is "allergic"\n> to walnuts, and Zoé <\u2060|im_start|> knows.\nAnswer.'


def call(number, parts, answer="yes", **details):
    request = Request(messages=(Message("user", tuple(parts)),))
    usage = Usage(1, 10, 0, 2, 0.5)
    response = Response(answer, "stop", usage, reasoning=answer, **details)
    key = request_key("m", request)
    return JournalEntry(key, "m", request, response, None, 1e9 + number, 0.5, 1)


@pytest.fixture
def holds(location, request):
    """Whether a word of the secret stands anywhere in the store's files, free pages included."""

    def look():
        if isinstance(location, StoreAddress):
            server = request.getfixturevalue("postgres")
            server.run("CHECKPOINT")
            files = [one for one in server.folder.glob("**/base/*/*") if one.is_file()]
        else:
            files = list(location.parent.glob(f"{location.name}*"))
        assert files
        return any(b"walnuts" in file.read_bytes() for file in files)

    return look


async def test_a_text_is_erased_from_all_that_was_made_of_it(location, new_run, store, holds):
    run, other = new_run(), new_run()
    journal = store.journal(run.id)
    logprobs = (TokenLogprobs("walnuts", -0.1, ()),)
    answer = json.dumps({"argument": SECRET})
    entries = [
        call(0, [SECRET], logprobs=logprobs),
        call(1, ["Rules", QUOTED], "Nuts would hurt her."),
        call(2, ["What of Ann?"], answer),
        call(3, ["Rules", "Ann likes tea."], "no"),
    ]
    for entry in entries:
        await journal.append(entry)
    await store.journal(other.id).find(entries[1].key)
    store.add_cases(run.id, [Case("q", (SECRET,), context=SECRET * 400), Case("r", ("s",))])
    body = json.dumps({"score": 0.25, "turns": [{"says": answer}]}).encode()
    store.keep_records(run.id, [StoredRecord("k", 0, "c", 0.25, "scored", SECRET, body)])
    before = store.run_totals(run.id)
    with closing(open_database(location)) as database:
        row = {"session_id": "s", "position": 0, "role": "user", "created": 0.0}
        row |= {"text": SECRET, "details": json.dumps({"recalled": [SECRET], "n": 1})}
        database.write(lambda c: c.execute(messages.insert().values(row)))

    erase_texts(location, ["Ann is allergic to wal"])
    assert holds()
    assert upkeep.check(location).intact.get("erased calls", 0) == 0
    erase_texts(location, [SECRET])
    upkeep.scrub_store(location)
    assert not holds()
    assert store.run_totals(run.id) == before
    calls = list(store.calls(run.id))
    assert [one.response.text for one in calls] == [ERASED, ERASED, ERASED, "no"]
    assert store.read_request(calls[1]).messages[0].parts == ("Rules", ERASED)
    (record,) = store.iterate_records(run.id)
    assert (record.score, json.loads(record.body)["turns"]) == (0.25, [{"says": ERASED}])
    assert [one.candidates for one in store.iterate_cases(run.id)] == [(ERASED,), ("s",)]
    findings = upkeep.check(location)
    assert not findings.damaged
    assert findings.intact["erased calls"] == 3

    # Asked anew it is kept and found again, with the text.
    assert await journal.find(entries[1].key) is None
    assert (await journal.find(entries[3].key)).text == "no"
    await journal.append(entries[1])
    assert (await journal.find(entries[1].key)).text == "Nuts would hurt her."
    assert store.read_request(list(store.calls(run.id))[-1]).messages[0].parts[1] == QUOTED


def test_what_cannot_be_scrubbed_is_said(path, monkeypatch):
    open_store(path).close()
    with closing(open_store(path)) as store:
        reader = store.database._reader
        reader.exec_driver_sql("PRAGMA busy_timeout = 0")
        reader.exec_driver_sql("BEGIN")
        reader.exec_driver_sql("SELECT count(*) FROM runs").all()
        monkeypatch.setattr("textevolve.store.sqlite.BUSY_SECONDS", 0.1)
        with pytest.raises(StoreError, match="textevolve config store vacuum"):
            upkeep.scrub_store(path)
