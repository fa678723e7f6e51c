"""Names and attributes of spans, and who may read the files that are written, are as frozen."""

import json
import re
import stat

import pytest

from recorded.playing import FOLDER, play

pytestmark = pytest.mark.guard


def test_spans_and_modes_of_files_are_as_frozen(cli, server, home, monkeypatch, frozen):
    monkeypatch.setenv("TEXTEVOLVE_TRACES", "spans.jsonl")
    spans = set()
    for name in ("loops", "calibrate"):
        recorded = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
        play(recorded, cli, server, home, monkeypatch)
    for line in (home / "spans.jsonl").read_text(encoding="utf-8").splitlines():
        for resource in json.loads(line)["resourceSpans"]:
            names = sorted(attribute["key"] for attribute in resource["resource"]["attributes"])
            spans.add(f"resource: {' '.join(names)}")
            for scope in resource["scopeSpans"]:
                for span in scope["spans"]:
                    name = re.sub(r"\d+", "N", re.sub(r"\d{8}-\w{4}", "ID", span["name"]))
                    names = sorted(attribute["key"] for attribute in span["attributes"])
                    spans.add(f"{name}: {' '.join(names)}")
    exports = [home / f"out.{kind}" for kind in ("json", "jsonl", "csv", "html", "md")]
    assert cli("runs", "export", "last", *exports).code == 0
    written = [*exports, *home.glob("store.db*"), home / "spans.jsonl"]
    modes = sorted(f"{path.name}: {stat.S_IMODE(path.stat().st_mode):o}" for path in written)
    frozen("spans_and_files.txt", "\n".join([*sorted(spans), "", *modes]) + "\n")
