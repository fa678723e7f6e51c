"""Try an installed TextEvolve outside of its checkout, as a user would.

    python try_install.py TICKETS.csv [memory] [server]

It compares two columns by a metric, lets agents debate against the scripted server, and, with the
extras named, searches a memory and opens a page. Exit code 1 where one of them fails.
"""

import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

from textevolve import Client, Settings
from textevolve.llm.testing import ScriptedServer

COMPARE = "--outputs before --outputs after --label department --metric exact -o report.html"


def run(*words: str, folder: Path) -> str:
    """The output of a command line of the installed program."""
    command = [sys.executable, "-m", "textevolve", *words]
    ran = subprocess.run(command, cwd=folder, capture_output=True, encoding="utf-8", timeout=300)
    if ran.returncode:
        sys.exit(f"{' '.join(words)} ended with {ran.returncode}:\n{ran.stdout}{ran.stderr}")
    return ran.stdout


def main(rows: str, *extras: str) -> None:
    with tempfile.TemporaryDirectory() as name, ScriptedServer() as models:
        folder, store = Path(name), str(Path(name, "store.db"))
        assert "Usage" in run("--help", folder=folder)
        table = str(Path(rows).resolve())
        words = ("compare", "--store", store, *COMPARE.split(), "--data", table)
        assert "after beats before" in run(*words, folder=folder)
        assert (folder / "report.html").stat().st_size > 10_000
        model = f"{models.url}#scripted"
        settings = Settings(model=model, embedder=f"{models.url}#embeds", store=Path(store))
        with Client(settings=settings) as client:
            debate = client.evaluate("Explain tides.", ["The moon pulls.", "Wind."], rounds=2)
            assert debate.best in (0, 1)
        if "memory" in extras:
            with Client(settings=settings) as client, client.namespace("acme", create=True) as acme:
                acme.collections.create("notes", dimension=32)
                acme.memories("notes").add("Ann likes the sea.")
                assert acme.memories("notes").search("Who likes the sea?")
        if "server" in extras:
            open_page(folder, store, model)
    print(f"TextEvolve works here, with Python {sys.version.split()[0]} on {sys.platform}")


def open_page(folder: Path, store: str, model: str) -> None:
    command = [sys.executable, "-m", "textevolve", "serve", "--port", "0", "--store", store]
    command += ["--model", model]
    with subprocess.Popen(command, cwd=folder, stdout=-1, stderr=-2, encoding="utf-8") as server:
        try:
            assert server.stdout is not None
            address = next(
                word for line in server.stdout for word in line.split() if "http" in word
            )
            with urllib.request.urlopen(address.rstrip(".,")) as page:
                assert page.status == 200
        finally:
            server.terminate()


if __name__ == "__main__":
    main(*sys.argv[1:])
