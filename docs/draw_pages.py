"""Draws pictures of every page of the server, from made data and a scripted model: nothing leaves
this machine, and no figure in them was measured.

    python docs/draw_pages.py [FOLDER]

Every page is drawn 1280 and 390 pixels wide, light and dark, into FOLDER (build/pages unless said);
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
from collections.abc import Generator, Mapping
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
from textevolve.store import Store, kinds
from textevolve.store import jobs as stored_jobs
from textevolve.store.jobs import JobRunStatus

KEPT = Path(__file__).with_name("pages")
SHOWN = {
    "run-1280-light",
    "chat-1280-light",
    "memories-1280-dark",
    "agent-1280-light",
    "chat-390-dark",
}
"""Of all pictures, those that docs/pages keeps."""
MOST_BYTES = 120_000
WIDTHS = {1280: 720, 390: 780}
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


def answer(body: Mapping[str, Any], _number: int) -> Answer | str | None:
    """A model for pictures: an agent's answers, facts of turns, and judges that have a view."""
    last = str(body["messages"][-1]["content"])
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
    """An evaluation."""
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
    return {
        "runs": "/runs",
        "run": "/runs/packing",
        "case": "/runs/packing/cases/0",
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
