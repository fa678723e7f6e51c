"""Pages of agents, of memories, of chats and of jobs."""

import pytest
from agent_world import Browser, answer_chats, make_world

from pages import HOSTILE, Outline
from textevolve.agents.resources import AgentSpec, NamespaceSpec, UserSpec
from textevolve.jobs.job_spec import JobSpec, next_due
from textevolve.llm.testing import Fault
from textevolve.memory.record import Origin, Relation
from textevolve.store import jobs as stored_jobs
from textevolve.store import keys as stored_keys
from textevolve.store import kinds
from textevolve.store.keys import KeySpec


@pytest.fixture
def world(home, server):
    new_world = make_world(home / "store.db", f"{server.url}#embeds")
    yield new_world
    new_world.resources.close()


@pytest.fixture
def browser_of(serve, world):
    return Browser(serve(jobs=False))


def text_of(page):
    return Outline(page).text


def test_an_agent_has_its_versions_with_the_memories_behind_each(browser_of, world):
    _, page = browser_of.get("/agents/acme/guide")
    answer = text_of(page)
    assert "From version 1 to version 2" in answer
    assert "<del>like boats.</del>" in page or "<del>" in page
    assert "She said so." in answer
    assert f'href="/memories/acme/chats/{world.new}"' in page
    assert "me_none is not there any more" in answer
    _, first = browser_of.get("/agents/acme/guide?version=1")
    assert "No visible difference." in text_of(first)
    assert browser_of.get("/agents/acme/guide?version=99")[0] == 200
    assert browser_of.get("/agents/acme/guide?version=x")[0] in (400, 422)


def test_a_memory_has_its_history_and_is_forgotten(browser_of, world, ask):
    where = f"/memories/acme/chats/{world.new}"
    _, page = browser_of.get(where)
    answer = text_of(page)
    assert all(one in answer for one in ("Newer.", "talk.txt", "History", "Ann likes the sea."))
    forget = f"/v1/namespaces/acme/collections/chats/memories/{world.new}"
    for address, output in ((forget, "forgotten"), (f"{forget}?erase=true", "erased")):
        assert f'data-call="DELETE {address}"' in page
        assert ask(browser_of.url + address, method="DELETE")[0] == 204
        _, page = browser_of.get(where)
        assert output in text_of(page)
        assert f'data-call="DELETE {forget}"' not in page
    assert "Ann loves the sea." not in page


def test_what_is_not_there_is_a_404(browser_of, world):
    for path in (
        "/agents/none/guide",
        "/agents/acme/none",
        "/agents/none/collections/counts",
        "/memories/none/chats",
        "/memories/acme/none",
        "/memories/acme/chats/me_none",
        "/memories/acme/chats?before=me_none",
        "/memories/acme/chats?before={foreign}",
        "/memories/acme/chats/{foreign}",
        "/chat/acme/none",
        "/chat/none/guide",
        "/chat/acme/guide?session=se_none",
    ):
        status, page = browser_of.get(path.format(foreign=world.foreign))
        assert status == 404, path
        assert "A secret." not in page, path


def test_a_key_shows_its_namespaces_and_does_what_its_scopes_allow(serve, world):
    _, key = world.resources.write(
        stored_keys.add_key, "reader", KeySpec(scopes=("read",), namespaces=("acme",))
    )
    browser = Browser(serve(), key)
    _, page = browser.get("/agents")
    answer = text_of(page)
    assert "That of acme." in answer
    assert "other" not in answer
    assert "/chat/" not in page
    for path in (
        "/agents/other/guide",
        "/memories/other/chats",
        "/agents/other/collections/counts",
    ):
        assert browser.get(path)[0] == 404
    assert browser.get("/chat/acme/guide")[0] == 403
    _, page = browser.get("/memories/acme/chats?q=sea")
    assert "the key has no scope 'run'" in text_of(page)
    assert "Ann loves the sea." in page
    assert "Forget it" not in browser.get(f"/memories/acme/chats/{world.new}")[1]
    _, key = world.resources.write(
        stored_keys.add_key, "runner", KeySpec(scopes=("run", "read"), namespaces=("acme",))
    )
    runner = Browser(browser.url, key)
    assert runner.get("/chat/other/guide")[0] == 404


def test_hostile_texts_are_text(browser_of, world):
    resources = world.resources
    clean = [text.replace("\x00", "") for text in HOSTILE]
    text = "\n".join(clean)
    resources.write(kinds.create, kinds.NAMESPACES, "", NamespaceSpec(name="bad", description=text))
    resources.write(kinds.create, kinds.USERS, "bad", UserSpec(name="bo", description=text))
    spec = AgentSpec(name="guide", persona=text, description=text, memories=None)
    resources.write(kinds.create, kinds.AGENTS, "bad", spec, source=text)
    change = {"action": text, "text": text, "before": text, "reason": text, "memories": [text]}
    better = {"persona": f"{text} too"}
    resources.write(kinds.update, kinds.AGENTS, "bad", "guide", better, text, [change])
    ids = world.keep(
        *clean,
        origin=Origin(clean[0], 1, clean[1]),
        reason=clean[2],
        entities=(clean[3],),
        relations=(Relation(clean[4], clean[5], clean[0]),),
    )
    paths = ["/agents", "/memories/acme/chats", f"/memories/acme/chats/{ids[1]}"]
    paths += ["/agents/bad/guide", "/chat/bad/guide", "/memories/acme/chats?q=alert"]
    paths += ["/memories/acme/chats?q=%22%3E%3Cscript%3Ealert(1)%3C/script%3E"]
    for path in paths:
        status, page = browser_of.get(path)
        assert status == 200, path
        outline = Outline(page)
        scripts = [dict(a) for tag, a in tagged(page) if tag == "script"]
        assert all(text.get("src", "").startswith("/static/") for text in scripts), path
        assert not {tag for tag, _ in outline.elements} & {"img", "iframe", "svg", "style"}, path
        assert not [n for n, v in outline.attributes if n.startswith("on") or n == "style"], path
        assert "49" not in outline.words, path


def tagged(page):
    outline = Outline(page)
    matches, at = [], 0
    for tag, names in outline.elements:
        matches.append((tag, outline.attributes[at : at + len(names)]))
        at += len(names)
    return matches


def test_jobs_are_listed_with_what_they_did_last(browser_of, world):
    write = world.resources.write
    spec = {"study": {"kind": "evaluate", "data": "rows.jsonl"}, "zone": "Europe/Vienna"}
    for name, cron in (("nightly", "0 3 * * *"), ("yearly", "0 0 1 1 *")):
        write(stored_jobs.create_job, "acme", JobSpec(name=name, cron=cron, **spec), next_due)
    for status, run_id in (("failed", ""), ("finished", "20260101-abcd")):
        write(stored_jobs.hasten_job, "acme", "nightly")
        claim = world.resources.claim_due_job(60)
        write(stored_jobs.note_job_run, claim, run_id)
        write(stored_jobs.end_claim, claim, status, "a detail", next_due)
    _, page = browser_of.get("/jobs")
    answer = text_of(page)
    assert all(one in answer for one in ("acme/nightly", "acme/yearly", "evaluate", "0 3 * * *"))
    assert "Europe/Vienna" in answer
    assert "finished" in answer
    assert 'href="/runs/20260101-abcd"' in page
    assert "failed" not in answer


@pytest.mark.slow
def test_they_stand_in_a_browser(serve, world, page, check_page):
    world.keep(*(f"The memory number {n}, of many words of every kind." for n in range(60)))
    url = serve()
    for path in ("/agents", "/agents/acme/guide", "/memories/acme/chats?q=sea"):
        page.goto(url + path)
        page.wait_for_load_state("networkidle")
        check_page(page)
    page.goto(f"{url}/agents")
    page.locator("#count-acme-chats", has_text="61").wait_for()
    page.goto(f"{url}/agents/acme/guide")
    page.get_by_role("button", name="Go back to it").click()
    page.get_by_text("back to version 1").first.wait_for()


@pytest.mark.slow
def test_a_chat_is_used_by_the_keyboard_alone(serve, world, page, check_page, server):
    server.script = answer_chats
    page.goto(f"{serve()}/chat/acme/guide")
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


@pytest.mark.slow
def test_what_is_written_stands_at_the_foot(serve, world, page, server):
    """Below few messages and below many, with the list of chats beside it."""
    server.script = lambda body, number: "Line.\n" * (1 if number < 2 else 90)
    page.goto(f"{serve(jobs=False)}/chat/acme/guide")
    for number in range(2):
        page.get_by_label("Your message").fill(f"Question {number}?")
        page.keyboard.press("Enter")
        page.locator(".said-by.assistant").nth(number).get_by_text("Line.").wait_for()
        page.wait_for_url("**?session=*")
        page.wait_for_load_state("networkidle")
        form = page.locator("#say").bounding_box()
        chats = page.get_by_role("navigation", name="Chats").bounding_box()
        height = page.viewport_size["height"]
        assert height - 80 < form["y"] + form["height"] <= height + 1
        assert chats["x"] > form["x"] + form["width"]
