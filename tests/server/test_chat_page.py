"""The chat page: turns as streams, what was recalled and learned, and chats that stay open."""

import http.client
import re
import time
from contextlib import closing, contextmanager
from urllib.parse import urlencode, urlsplit

import pytest
from agent_world import Browser, answer_chats, make_world, read_events

from pages import HOSTILE, Outline
from textevolve.llm.testing import Fault, ScriptedServer
from textevolve.store import kinds

CHAT = "/chat/acme/guide"


class Script:
    """As `answer_chats`, unless a test says otherwise."""

    other = None

    def __call__(self, body, number):
        return (self.other or answer_chats)(body, number)


@pytest.fixture
def script():
    return Script()


@pytest.fixture
def server(script):
    with ScriptedServer(script) as started:
        yield started


@pytest.fixture
def world(home, server):
    made = make_world(home / "store.db", f"{server.url}#embeds")
    yield made
    made.resources.close()


@pytest.fixture
def browser_of(serve, world):
    return Browser(serve())


def say(browser, text="", **fields):
    """A turn; its events."""
    page = browser.post(f"{CHAT}/say", CHAT, text=text, **fields)
    assert page[0] == 200, page
    return read_events(page[1])


def names(events):
    return list(dict.fromkeys(name for name, _ in events))


def test_a_turn_is_told_as_it_comes(browser_of, world):
    events = say(browser_of, "I live in Oslo.", user="ann")
    assert names(events) == ["begun", "recalled", "piece", "answer", "learned"]
    found = dict(events)
    assert "Ann loves the sea." in found["recalled"]["html"]
    assert all(one in found["recalled"]["html"] for one in ("score", "relevance", "similarity"))
    pieces = "".join(data["text"] for name, data in events if name == "piece")
    assert pieces == found["answer"]["text"]
    assert pieces.startswith("I hear you: ")
    assert pieces.endswith("I live in Oslo.")
    assert found["answer"]["position"] == 2
    assert "Ann lives in Oslo." in found["learned"]["html"]
    again = say(browser_of, "Where?", session=found["begun"]["session"])
    assert dict(again)["answer"]["position"] == 4
    assert "Ann lives in Oslo." in dict(again)["recalled"]["html"]
    assert "Nothing of this turn was new." in dict(again)["learned"]["html"]
    kept = world.resources.sessions("acme").messages(found["begun"]["session"])
    assert [one.role for one in kept] == ["user", "assistant"] * 2


def test_a_session_is_shown_and_gone_on_with(browser_of):
    begun = dict(say(browser_of, "I live in Oslo.", user="ann"))["begun"]
    _, page = browser_of.get(f"{CHAT}?session={begun['session']}")
    said = Outline(page).text
    assert said.count("I live in Oslo.") >= 2
    assert "1 memory recalled" in said
    assert 'aria-current="page">I live in Oslo.' in page
    _, page = browser_of.get("/agents/acme/guide")
    assert f'href="{CHAT}?session={begun["session"]}"' in page


def test_an_agent_that_was_changed_answers_as_it_is_now(browser_of, world, server):
    begun = dict(say(browser_of, "Hello."))["begun"]
    world.resources.write(
        kinds.update, kinds.AGENTS, "acme", "guide", {"persona": "You are a pirate."}
    )
    say(browser_of, "And now?", session=begun["session"])
    asked = [one["messages"] for one in server.requests if "response_format" not in one]
    assert "You are a pirate." in str(asked[-1])
    assert "Hello." in str(asked[-1])


@pytest.mark.slow
def test_a_session_that_went_on_elsewhere_is_read_anew(browser_of, world):
    begun = dict(say(browser_of, "Hello."))["begun"]
    sessions = world.resources.sessions("acme")
    last = sessions.messages(begun["session"])[-1]
    for place, role in ((3, "user"), (4, "assistant")):
        said = last.__class__(position=place, role=role, text="Elsewhere.", created=last.created)
        sessions.append(begun["session"], said)
    found = dict(say(browser_of, "Here again.", session=begun["session"]))
    assert found["answer"]["position"] == 6


def test_a_failure_is_told_and_answered_later(browser_of, script):
    script.other = lambda _body, _number: Fault.NOT_FOUND
    events = say(browser_of, "Hello.")
    assert names(events)[0] == "begun"
    assert events[-1][0] == "failed"
    session = events[0][1]["session"]
    _, page = browser_of.get(f"{CHAT}?session={session}")
    assert re.search(r'id="again">', page)
    script.other = None
    assert dict(say(browser_of, again="yes", session=session))["answer"]["position"] == 2
    assert (
        "there is no message"
        in dict(say(browser_of, again="yes", session=session))["failed"]["message"]
    )


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"text": "  "}, "the message"),
        ({"text": "Hello.", "session": "se_none"}, "there is no session"),
        ({"text": "Hello.", "session": "last", "user": "bo"}, "there is no chat yet"),
    ],
)
def test_what_cannot_be_said_is_told(browser_of, fields, told):
    events = say(browser_of, **fields)
    assert names(events) == ["failed"]
    assert told in events[0][1]["message"]


@contextmanager
def begun_to_count(url, **fields):
    """A turn whose answer is long, of which the first piece has come: what is still to be read."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    browser = Browser(url)
    token = re.search(r'name="csrf" value="([^"]*)"', browser.get(CHAT)[1])[1]
    body = urlencode({"csrf": token, "text": "Count.", **fields})
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Origin": url}
    headers["Cookie"] = browser.cookies
    connection.request("POST", f"{CHAT}/say", body, headers)
    with closing(connection), connection.getresponse() as response:
        told = b""
        while b"piece" not in told:
            told += response.read1(200)
        yield told, response


def test_who_leaves_stops_the_answer(browser_of, world):
    with begun_to_count(browser_of.url):
        pass
    sessions = world.resources.sessions("acme")
    until = time.monotonic() + 60
    while len(sessions.messages("last")) < 2:
        assert time.monotonic() < until, "the answer goes on"
        time.sleep(0.05)
    assert sessions.messages("last")[-1].details.interrupted


def test_hostile_texts_are_text(browser_of, script):
    for one in (each.replace("\x00", "") for each in HOSTILE):
        script.other = lambda body, number, one=one: (
            answer_chats(body, number) if body.get("response_format") else one
        )
        events = say(browser_of, one)
        found = dict(events)
        assert found["answer"]["text"] == one
        _, page = browser_of.get(f"{CHAT}?session={found['begun']['session']}")
        outline = Outline(page)
        assert not {tag for tag, _ in outline.elements} & {"img", "iframe", "svg", "style"}
        assert not [n for n, _ in outline.attributes if n.startswith("on") or n == "style"]
        assert page.count("<script") == page.count('<script src="/static/')


@pytest.mark.slow
def test_it_is_used_by_the_keyboard_alone(serve, world, page, check_page):
    page.goto(serve() + CHAT)
    check_page(page)
    box = page.get_by_label("Your message")
    box.focus()
    page.keyboard.type("I live")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("in Oslo.")
    page.keyboard.press("Enter")
    page.get_by_text("1 memory recalled").first.wait_for()
    page.get_by_text("I hear you").wait_for()
    assert box.input_value() == ""
    assert page.evaluate("document.activeElement.id") == "text"
    assert "session=se_" in page.url
    page.keyboard.type("Count.")
    page.keyboard.press("Enter")
    page.locator("article:last-child .text", has_text="4 5 6").wait_for()
    page.keyboard.press("Escape")
    page.get_by_text("Stopped; what was written is kept.").wait_for()
    assert page.evaluate("document.activeElement.id") == "text"
    page.keyboard.type("I live in Oslo.")
    page.keyboard.press("Enter")
    page.get_by_text("1 memory kept").wait_for()
    check_page(page)
    page.reload()
    page.get_by_text("Stopped; what was written is kept.").wait_for()
    check_page(page)


@pytest.mark.slow
def test_what_goes_wrong_stands_there(serve, world, page, script):
    page.goto(serve() + CHAT)
    script.other = lambda _body, _number: Fault.NOT_FOUND
    page.get_by_label("Your message").fill("Hello?")
    page.keyboard.press("Enter")
    page.locator("#failure:visible").wait_for()
    script.other = None
    page.get_by_role("button", name="Ask for an answer").click()
    page.get_by_text("I hear you").wait_for()
    script.other = lambda body, number: "<img src=x onerror=alert(1)>"
    page.get_by_label("Your message").fill("<b>bold</b>")
    page.keyboard.press("Enter")
    page.get_by_text("<img src=x onerror=alert(1)>").first.wait_for()
    page.get_by_text("<b>bold</b>").first.wait_for()
