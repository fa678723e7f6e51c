"""Files and code of the server's machine that no client may get at, each named after a canary."""

import sys

CANARY, CODE = "canary-of-this-machine", "canary_of_this_machine"
SECRET = "Is it secret?"
CASE = '{"id": "a", "input": "Question?", "candidates": ["one", "two"]}\n'


def lay_canaries(home, monkeypatch):
    """Yield the folder with the files, until a test is done."""
    (home / f"{CANARY}.jsonl").write_text(CASE.replace("Question?", SECRET))
    (home / f"{CANARY}.yaml").write_text("rules: []\n")
    (home / f"{CANARY}.gguf").write_bytes(b"GGUF")
    (home / f"{CANARY}.md").write_text(SECRET)
    folder = home / f"{CANARY}-folder"
    folder.mkdir()
    (folder / "question.jsonl").write_text(CASE)
    (home / f"{CODE}.py").write_text("def f(*a, **k):\n    return 1.0\n")
    monkeypatch.syspath_prepend(str(home))
    yield home
    sys.modules.pop(CODE, None)


def foreign_files(home):
    """Names of files that no client sent, in all the forms that fields take."""
    files = [str(home / f"{CANARY}{end}") for end in (".jsonl", ".yaml", ".md", ".gguf")]
    files += [f"{CANARY}.jsonl", f"../{home.name}/{CANARY}.jsonl", f"./{CANARY}.yaml"]
    files += [f"{home}/{CANARY}*", f"{home}/{CANARY}-folder", f"{CANARY}-folder", "link.jsonl"]
    files += [f"~/{CANARY}.jsonl", f"/proc/self/root{home}/{CANARY}.jsonl", f"file://{files[0]}"]
    return files
