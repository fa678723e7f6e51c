"""What a small model keeps of dialogues: 100 own turns with gold (`creation_turns.yaml`).

    python benchmarks/memory_creation.py --half choose --store creation.db [--label NAME]
        [--people N] [--option floor=1]

A kept memory is right if all words of a gold line stand in it; a true one that is no loss counts as
right for the precision alone; the others are inventions or nonsense, and are listed. An update is
found if its new fact is current and the old one is not. Calls are kept in the store, so the same
command resumes, and another version of the code asks only what it changed; `--label` names the
collections, one set for each version. With `--option floor=1` facts are compared with none, so that
two versions of extraction are told apart without new calls.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from sitting import describe_machine
from textevolve import Client
from textevolve.errors import TakenError
from textevolve.settings import read_settings
from textevolve.studies.memories.create import CreateMemoriesSpec

TURNS = Path(__file__).with_name("creation_turns.yaml")
SOURCE = "kept as it was said"
"""The reason of a turn that is kept itself, since no fact was extracted; it is counted apart."""


def says(text: str, line: Sequence[str]) -> bool:
    return all(re.search(words, text, re.IGNORECASE) for words in line)


def chats(person: Mapping[str, Any]) -> list[dict[str, Any]]:
    speakers = {"U": "user", "A": "assistant"}
    rows: list[dict[str, Any]] = []
    for number, dialogue in enumerate(person["dialogues"], 1):
        messages = [
            {"role": speakers[turn[0]], "content": turn[3:], "timestamp": str(dialogue["day"])}
            for turn in dialogue["turns"]
        ]
        rows.append({"id": f"{person['person']} {number}", "messages": messages})

    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--half", choices=("choose", "report"), default="choose")
    parser.add_argument("--people", type=int, help="the first ones of the half only")
    parser.add_argument("--store", default="creation.db")
    parser.add_argument("--label", default="now")
    parser.add_argument("--model", default="local/qwen2.5-coder-1.5b")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE")
    options = parser.parse_args()
    creation = dict(option.split("=", 1) for option in options.option)
    print(describe_machine())
    people = yaml.safe_load(TURNS.read_text(encoding="utf-8"))
    kept = right = found = gold = updates = sources = 0
    began = time.process_time()

    with (
        Client(settings=read_settings(store=options.store), concurrency=1) as client,
        client.namespace("default") as space,
    ):
        half = [person for person in people if person["half"] == options.half][: options.people]
        for person in half:
            name = f"{options.label}-{person['person'].split()[0].lower()}"
            try:
                space.collections.create(name, embedder="local/bge-small")
            except TakenError as error:
                print(f"{name}: {error}", file=sys.stderr)
            spec = CreateMemoriesSpec(
                data="from Python",
                collection=name,
                model=options.model,
                about=person["person"],
                **creation,
            )
            created: Any = client.run(spec, cases=chats(person))
            memories = space.memories(name).list(limit=500, closed=True)
            facts = [memory for memory in memories if SOURCE not in memory.reason]
            sources += len(memories) - len(facts)
            print(f"\n{person['person']}: {dict(created.actions)}", flush=True)
            for _, decision in created.decisions:
                if decision.action == "drop":
                    print(f"  d {decision.point.text}  ({decision.reason})")
            for memory in facts:
                is_fact = any(says(memory.text, line) for line in person["facts"])
                is_right = is_fact or any(says(memory.text, line) for line in person["fine"])
                kept += 1
                right += is_right
                mark = "+" if is_fact else "~" if is_right else "-"
                closed = "" if memory.closed is None else " [closed]"
                print(f"  {mark}{closed} {memory.text}  ({memory.reason})")
            for memory in memories:
                if SOURCE in memory.reason:
                    print(f"  s {memory.text}")

            missing = [
                line for line in person["facts"] if not any(says(m.text, line) for m in facts)
            ]
            gold += len(person["facts"])
            found += len(person["facts"]) - len(missing)
            print(f"  missing: {missing}")
            current = [memory.text for memory in facts if memory.closed is None]
            update = person["update"]
            is_new = any(says(text, update["new"]) for text in current)
            is_old = any(says(t, update["old"]) and not says(t, update["new"]) for t in current)
            updates += is_new and not is_old
            print(f"  update: new {is_new}, old still current {is_old}")

    print(
        f"\n{options.half}: kept {kept}, precision {right / max(1, kept):.2f}, inventions"
        f" {kept - right}, gold found {found} of {gold}, updates {updates} of {len(half)}, turns"
        f" kept as sources {sources}; {time.process_time() - began:.0f} CPU s of this process"
    )


if __name__ == "__main__":
    main()
