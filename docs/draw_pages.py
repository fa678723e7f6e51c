"""Draws pictures of every page of the server, from made data and a scripted model: nothing leaves
this machine, and no figure in them was measured.

    python docs/draw_pages.py [FOLDER]

Every page is drawn 1400 and 420 pixels wide, light and dark, into FOLDER (build/pages unless said);
those that the documentation shows are kept in docs/pages. Chromium must be on the path.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import sys
import tempfile
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright

from textevolve.agents.resources import AgentSpec, CollectionSpec, NamespaceSpec, UserSpec
from textevolve.cli.app import app as commands
from textevolve.engine import sync
from textevolve.jobs.job_spec import JobSpec, next_due
from textevolve.llm.testing import Answer, ScriptedServer
from textevolve.memory.recall_settings import RecallSettings
from textevolve.memory.record import Add, Change, Forget, NewMemory, Origin, Supersede
from textevolve.server.app import bind, create_app, make_server, run, url_of
from textevolve.server.options import ServerOptions
from textevolve.settings import Settings
from textevolve.store import jobs as stored_jobs
from textevolve.store import kinds
from textevolve.store.jobs import JobRunStatus
from textevolve.store.repository import Store

KEPT = Path(__file__).with_name("pages")
SHOWN = {
    "runs-1400-light",
    "run-1400-light",
    "chat-1400-light",
    "memories-1400-dark",
    "agent-1400-light",
    "chat-420-dark",
}
"""Of all pictures, those that docs/pages keeps."""
MOST_BYTES = 140_000
WIDTHS = {1400: 900, 420: 840}
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
DIMENSION = 32
PERSONA = "You are a guide to the north of Norway.\nYou answer in short sentences."
BETTER = "You are a patient guide to the north of Norway.\nYou ask about the weather first."
SAID = (
    "Ferries to the islands run until October.",
    "Ann plans a week on the Lofoten islands in June.",
    "Bo would rather fish than hike.",
    "The huts on the long trail are booked out in July.",
    "Ann is a vegetarian.",
)


TEAMS = ("payroll", "access", "billing")
MAILS = (
    "My pay for October has not come.",
    "I cannot log in since this morning.",
    "The same invoice was sent twice.",
    "Who approves my days off in May?",
    "My badge does not open the side door.",
    "The amount on the invoice is wrong.",
)


def answer(body: Mapping[str, Any], _number: int) -> Answer | str | None:
    """A model for pictures: an agent's answers, facts of turns, and judges that have a view."""
    last = str(body["messages"][-1]["content"])
    if last.startswith("Which team"):
        return route(last)
    if "support bot" in str(body["messages"][0]["content"]) and not body.get("response_format"):
        return "Open the page of the account and press Reset. You get a mail within a minute."
    if "facts" in str(body.get("response_format", "")):
        fact = {"turn": 1, "fact": "Ann has a tent for two.", "status": "true", "importance": 7}
        return json.dumps({"facts": [{**fact, "since": ""}] if "tent" in last else []})
    if body.get("response_format"):
        return None
    shown = re.findall(r"([^\n]+)\n\[\[/\w+ response\]\]", last)
    if shown:
        worth = [0.9 if "It is." in text else 0.3 for text in shown]
        return Answer(yes=worth[0] / sum(worth))
    if "tent" in last:
        return (
            "Good. With a tent for two you need no huts in July, which are booked out anyway. In"
            " June the nights are light; take something to cover your eyes. How is the weather?"
        )
    return None


def route(text: str) -> str:
    """Route an e-mail: a prompt that defines the teams makes fewer mistakes."""
    for number, mail in enumerate(MAILS):
        if mail in text:
            is_right = "as follows" in text or number % 3 != 2
            return TEAMS[number % 3] if is_right else "billing desk"
    return "none"


def vector(number: int) -> Any:
    made = np.zeros(DIMENSION, dtype="<f4")
    made[number % DIMENSION] = 1
    return made


def fill(settings: Settings, embedder: str) -> None:
    """A namespace with an agent that has changed, memories that have, users and jobs."""
    with closing(Store(settings.memory_location)) as store:
        store.write(
            kinds.create,
            kinds.NAMESPACES,
            "",
            NamespaceSpec(name="nord", description="Guides to the north."),
        )
        for name in ("talks", "insights"):
            spec = CollectionSpec(name=name, embedder=embedder, dimension=DIMENSION)
            store.write(kinds.create, kinds.COLLECTIONS, "nord", spec)
        memory = RecallSettings(limit=2)
        spec = AgentSpec(
            name="guide", persona=PERSONA, memory=memory, memories="talks", insights="insights"
        )
        store.write(kinds.create, kinds.AGENTS, "nord", spec)
        store.write(
            kinds.create,
            kinds.USERS,
            "nord",
            UserSpec(name="ann", description="Plans a week on the islands."),
        )
        ids = keep_memories(store)
        change = {"action": "replace", "sentence": 2, "before": PERSONA.split("\n")[1]}
        change |= {"text": BETTER.split("\n")[1], "memories": list(ids[:2])}
        change |= {"reason": "Every plan so far was turned over by the weather."}
        source = "evolve-persona, run 20260114-k3fx"
        better = {"persona": BETTER}
        store.write(kinds.update, kinds.AGENTS, "nord", "guide", better, source, [change])
        study = {"kind": "integrate-memories", "agent": "nord/guide"}
        nightly = JobSpec(name="nightly", study=study, zone="Europe/Oslo", cron="0 3 * * *")
        for spec in (nightly, JobSpec(name="hourly", study=study, cron="0 * * * *")):
            store.write(stored_jobs.create_job, "nord", spec, next_due)
        late = "the model did not answer in time"
        ends: tuple[tuple[JobRunStatus, str], ...] = (("finished", ""), ("failed", late))
        for status, detail in ends:
            store.write(stored_jobs.hasten_job, "nord", "nightly")
            claim = store.claim_due_job(60)
            assert claim is not None
            store.write(stored_jobs.end_claim, claim, status, detail, next_due)


def keep_memories(store: Store) -> tuple[str, ...]:
    memories = store.memories("nord")

    def change(*changes: Change) -> tuple[str, ...]:
        return sync.run(memories.apply("talks", changes)).ids

    def new(text: str, number: int) -> NewMemory:
        origin = Origin("talk with ann", number + 1, "Ann", 0.8)
        return NewMemory(
            text=text, embedding=vector(number), importance=0.4 + number / 10, origin=origin
        )

    ids = change(*(Add(new(text, number)) for number, text in enumerate(SAID)))
    later = new("Ann plans two weeks on the Lofoten islands in June.", 1)
    change(Supersede((ids[1],), later))
    change(Forget(ids[2]))
    return ids


def make_runs(folder: Path, model: str) -> None:
    """Runs of several kinds: an evaluation by a debate, comparisons of prompts on two days, of two
    bots, and of an application with tools, judges beside people, and a task for labelling."""
    make_debate(folder, model)
    make_comparisons(folder, model)
    make_conversations(folder, model)
    make_labels(folder, model)


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> str:
    path.write_text("\n".join(map(json.dumps, rows)))
    return str(path)


def make_comparisons(folder: Path, model: str) -> None:
    rows = [
        {"ticket": f"T-{100 + n}", "message": mail, "team": TEAMS[n % 3]}
        for n, mail in enumerate(MAILS)
    ]
    data = write_rows(folder / "tickets.jsonl", rows)
    (folder / "terse.txt").write_text("Which team gets this e-mail? {message}")
    (folder / "defined.txt").write_text("Which team, as follows, gets this e-mail? {message}")
    options = ("--label", "team", "--metric", "exact", "-m", model, "-d", data)
    prompts = [("-p", str(folder / f"{name}.txt")) for name in ("terse", "defined")]
    store = ("--store", str(folder / "store.db"))
    run_command("compare", *prompts[0], *prompts[1], *options, "--name", "monday", *store)
    (folder / "defined.txt").write_text("Which team is right for it? {message}")
    run_command("compare", *prompts[0], *prompts[1], *options, "--name", "tuesday", *store)
    calls = [
        {"name": "find_order", "arguments": {"number": 118}, "result": "sent on May 2"},
        {"name": "refund", "arguments": {"order": 118, "euros": 20}},
    ]
    rows = [
        {"id": f"order-{n}", "input": f"Where is my order {n}?", "reply": "It is on its way."}
        | {"tool_calls": calls[: 1 + n % 2]}
        for n in range(6)
    ]
    data = write_rows(folder / "agent.jsonl", rows)
    tools = ("--outputs", "reply", "--metric", "max-steps:1", "-d", data)
    run_command("compare", *tools, "--name", "assistant", *store)


def make_conversations(folder: Path, model: str) -> None:
    rows = [
        {"id": f"lost-{n}", "goal": f"Get a new password for account {n}.", "persona": who}
        for n, who in enumerate(("A teacher, easily annoyed.", "A pupil.", "A busy nurse."))
    ]
    data = write_rows(folder / "chats.jsonl", rows)
    (folder / "curt.txt").write_text("You are a curt support bot.")
    (folder / "kind.txt").write_text("You are a kind support bot.")
    bots = ("-p", str(folder / "curt.txt"), "-p", str(folder / "kind.txt"), "-m", model)
    options = ("--user-model", model, "--judge", "probe", "--max-turns", "2", "-d", data)
    run_command("compare", *bots, *options, "--name", "bots", "--store", str(folder / "store.db"))


def make_labels(folder: Path, model: str) -> None:
    rows = [
        {"id": f"reply-{n}", "input": mail, "output": reply, "label": label}
        for n, (mail, reply, label) in enumerate(
            zip(MAILS, ("It is. Look again.", "No.") * 3, ("pass", "fail", "pass") * 2, strict=True)
        )
    ]
    data = write_rows(folder / "replies.jsonl", rows)
    store = ("--store", str(folder / "store.db"))
    run_command("bench", "agreement", data, "--judge", "probe", "-m", model, *store)
    run_command("labels", "create", "replies", data, *store)


def make_debate(folder: Path, model: str) -> None:
    pairs = [("It is. Light, in layers.", "No idea."), ("No.", "It is.")] * 6
    rows = [
        {"id": f"hike-{n}", "input": f"How do I pack for {n + 1} days?", "candidates": pair}
        for n, pair in enumerate(pairs)
    ]
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    store = ("--store", str(folder / "store.db"), "--model", model)
    run_command(
        "evaluate", str(folder / "rows.jsonl"), "--rounds", "1", "--name", "packing", *store
    )


def run_command(*arguments: str) -> None:
    try:
        commands(list(arguments), standalone_mode=False)
    except SystemExit as ended:
        if ended.code:
            raise


@contextmanager
def served(settings: Settings, model: str) -> Generator[str]:
    """The address of a server in a thread of its own."""
    ready = threading.Event()
    app = create_app(ServerOptions(model=(model,)), settings, None, lambda _serving: ready.set())
    listener = bind("127.0.0.1", 0)
    server = make_server(app)
    thread = threading.Thread(target=lambda: asyncio.run(run(server, app, listener)))
    thread.start()
    try:
        ready.wait()
        yield url_of(listener)
    finally:
        server.should_exit = True
        thread.join()


def talk(page: Page) -> None:
    """A turn of a chat, and what was recalled for it."""
    page.get_by_label("Your name").fill("ann")
    page.get_by_label("Your message").fill("I have a tent. Do I need to book huts in July?")
    page.keyboard.press("Enter")
    page.locator("details.beside summary").first.click()


def find_pages(page: Page, url: str) -> dict[str, str]:
    """The address of each page, by the name of its picture."""
    page.goto(f"{url}/memories/nord/talks")
    memory = page.locator("main a[href*='/me_']").first.get_attribute("href") or ""
    page.goto(f"{url}/labelling")
    task = page.locator("main th a").first.get_attribute("href") or ""
    page.goto(f"{url}/runs?kind=agreement")
    agreement = page.locator("main th a").first.get_attribute("href") or ""
    return {
        "runs": "/runs",
        "found": "/runs?kind=compare&data=tickets",
        "none": "/runs?q=no+such+run",
        "prompts": "/runs/tuesday",
        "prompts-report": "/runs/tuesday/report",
        "compare": "/compare?a=monday&b=tuesday",
        "tools": "/runs/assistant/report",
        "bots": "/runs/bots/report",
        "bots-case": "/runs/bots/cases/1",
        "agreement": f"{agreement}/report",
        "calls": "/runs/packing/calls",
        "labelling": "/labelling",
        "label": task,
        "run": "/runs/packing",
        "case": "/runs/packing/cases/1",
        "report": "/runs/packing/report",
        "agents": "/agents",
        "agent": "/agents/nord/guide",
        "memories": "/memories/nord/talks",
        "search": "/memories/nord/talks?q=islands",
        "memory": memory.partition("#")[0],
        "chat": "/chat/nord/guide",
        "jobs": "/jobs",
        "job": "/jobs/nord/nightly",
    }


def draw(browser: Browser, url: str, folder: Path) -> None:
    for width, height in WIDTHS.items():
        for scheme in SCHEMES:
            size = ViewportSize(width=width, height=height)
            context = browser.new_context(viewport=size, color_scheme=scheme)
            page = context.new_page()
            for name, path in find_pages(page, url).items():
                page.goto(url + path)
                page.wait_for_load_state("networkidle")
                if name == "chat":
                    talk(page)
                if name == "label" and page.get_by_label("Your name").count():
                    page.get_by_label("Your name").fill("ann")
                    with page.expect_navigation(wait_until="networkidle"):
                        page.keyboard.press("Enter")
                page.screenshot(path=folder / f"{name}-{width}-{scheme}.png")
            context.close()


def keep(folder: Path) -> None:
    for name in sorted(SHOWN):
        picture = folder / f"{name}.png"
        if (size := picture.stat().st_size) > MOST_BYTES:
            raise SystemExit(f"{picture.name} has {size:,} bytes, more than {MOST_BYTES:,}")
        shutil.copy(picture, KEPT)


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "build/pages")
    folder.mkdir(parents=True, exist_ok=True)
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        raise SystemExit("there is no Chromium on the path")
    os.environ["TEXTEVOLVE_TODAY"] = "2026-01-15"
    with tempfile.TemporaryDirectory() as made, ScriptedServer(answer) as scripted:
        home = Path(made)
        model = f"{scripted.url}#scripted"
        settings = Settings(store=home / "store.db", embedder=f"{scripted.url}#embeds")
        make_runs(home, model)
        fill(settings, f"{scripted.url}#embeds")
        with served(settings, model) as url, sync_playwright() as playwright:
            options = ["--no-sandbox"] if os.geteuid() == 0 else []
            browser = playwright.chromium.launch(executable_path=chromium, args=options)
            draw(browser, url, folder)
            browser.close()
    keep(folder)
    print(f"drawn in {folder}; the documentation's are in {KEPT}")


if __name__ == "__main__":
    main()
