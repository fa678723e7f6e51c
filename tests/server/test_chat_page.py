"""The chat page: what was said, recalled and learned, and its script."""

import pytest
from agent_world import answer_chats, make_world

from textevolve.llm.testing import Fault, ScriptedServer

CHAT = "/chat/acme/guide"


@pytest.fixture
def server():
    with ScriptedServer(answer_chats) as started:
        yield started


@pytest.fixture
def world(home, server):
    made = make_world(home / "store.db", f"{server.url}#embeds")
    yield made
    made.resources.close()


@pytest.mark.slow
def test_it_is_used_by_the_keyboard_alone(serve, world, page, check_page, server):
    page.goto(serve() + CHAT)
    box = page.get_by_label("Your message")
    box.focus()
    page.keyboard.type("I live")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("in Oslo.")
    page.keyboard.press("Enter")
    page.get_by_text("1 memory recalled").first.wait_for()
    page.wait_for_load_state("load")
    assert page.get_by_text("I hear you").count() == 1
    assert page.evaluate("document.activeElement.id") == "text"
    assert "session=se_" in page.url
    check_page(page)
    page.get_by_label("Your message").focus()
    page.keyboard.type("Count.")
    page.keyboard.press("Enter")
    page.locator("article:last-child .text", has_text="4 5 6").wait_for()
    page.keyboard.press("Escape")
    page.get_by_text("Stopped; what was written is kept.").wait_for()
    page.wait_for_load_state("load")  # the script listens by then
    server.script = lambda _body, _number: Fault.NOT_FOUND
    page.get_by_label("Your message").fill("<b>bold</b>")
    page.keyboard.press("Enter")
    page.locator("#failure:visible").wait_for()
    assert page.get_by_label("Your message").input_value() == "<b>bold</b>"
    page.said.clear()  # the console tells of the status
    server.script = lambda _body, _number: "<img src=x onerror=alert(1)>"
    page.keyboard.press("Enter")
    page.get_by_text("<img src=x onerror=alert(1)>").first.wait_for()
    page.get_by_text("<b>bold</b>").first.wait_for()
