"""The inputs of law 3: what is put in, where, and what came out of the run that read it.

A *situation* is one run of a command. A *place* of it holds a word that stands nowhere else. Places
that do not disturb each other share a situation, which runs once and is looked at by each of their
cells; a place that may be refused has a situation of its own, or its refusal would speak for all.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from laws.studies import Recipe, World, answer, write_rows

PICTURE = "R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"
PICTURE_URL = f"data:image/gif;base64,{PICTURE}"


def word(name: str) -> str:
    """Return the word of a place: it holds the place's name, and no other word is a part of it."""
    return f"zz_{name.replace(' ', '_')}_zz"


@dataclass(frozen=True)
class Evidence:
    """What a run gave out: its exit code and texts, its requests to the model, its files."""

    code: int
    out: str
    err: str
    requests: str
    files: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def told(self) -> str:
        """What a user was told, without the columns that were read as something."""
        lines = []
        for line in self.err.splitlines():
            text, unread, remaining_remainder = line.partition("unread:")
            if text.startswith("columns:"):
                line = unread + remaining_remainder
            lines.append(line)
        return "\n".join(lines)


@dataclass(frozen=True)
class Place:
    """A place that holds a word.

    Attributes:
        word: The word. It stands nowhere else in the situation.
        names: How the place is called where it is refused or left out, in lower case; any of them
            counts.
        exported: Whether a word in the command's output or files counts, too: the place holds what
            is written out, and no model has to read it.
    """

    word: str
    names: tuple[str, ...] = ()
    exported: bool = False

    def also_named(self, name: str) -> "Place":
        """Return the place with one more name."""
        return replace(self, names=(*self.names, name))

    def is_used(self, evidence: Evidence) -> bool:
        """Whether the word went to a model, or to the reader of what the command writes."""
        if self.word in evidence.requests:
            return True
        files = b"".join(evidence.files.values()).decode(errors="replace")
        return self.exported and self.word in evidence.out + files

    def is_refused(self, evidence: Evidence) -> bool:
        """Whether the input was refused for this place."""
        return evidence.code == 2 and self._is_named(evidence.err)

    def is_left_out(self, evidence: Evidence) -> bool:
        """Whether the user was told that this place is not read."""
        return self._is_named(evidence.told)

    def _is_named(self, text: str) -> bool:
        names = (*self.names, self.word.lower())
        return any(name in text.lower() for name in names)


@dataclass(frozen=True)
class Situation:
    """One run of a command, and the places of what it reads."""

    run: Callable[[World], Evidence]
    places: Mapping[str, Place]


def answer_pictures(body: Mapping[str, Any], number: int) -> Any:
    """Answer as the recordings do; a message of parts, which their script cannot read, as the
    scripted server does by itself."""
    contents = [message["content"] for message in body.get("messages", ())]
    is_text = all(isinstance(content, str) for content in contents)
    return answer(body, number) if is_text else None


def collect(world: World, ended: Any, files: Iterable[str] = ()) -> Evidence:
    """Return what a command gave out; `files` are those that it wrote."""
    requests = json.dumps(list(world.server.requests), ensure_ascii=False)
    written = {}
    for name in files:
        path = world.home / name
        written[name] = path.read_bytes() if path.exists() else b""
    return Evidence(ended.code, ended.out, ended.err, requests, written)


def write_files(world: World, files: Mapping[str, Any]) -> None:
    """Write each file: a text as it is, other values as JSON lines or as YAML."""
    for name, content in files.items():
        if name.endswith(".yaml") and not isinstance(content, str):
            content = yaml.safe_dump(content, allow_unicode=True)
        elif not isinstance(content, str):
            content = write_rows(content)
        (world.home / name).write_text(content, encoding="utf-8")


def run_command(files: Mapping[str, Any], *words: str) -> Callable[[World], Evidence]:
    """Return what runs a command on files. MODEL in it stands for the scripted server's model."""

    def run(world: World) -> Evidence:
        write_files(world, files)
        world.server.script = answer_pictures
        return collect(world, world.cli(*(word.replace("MODEL", world.model) for word in words)))

    return run


def run_study(
    kind: str, recipe: Recipe, *options: str, after: Sequence[str] = (), files: Iterable[str] = ()
) -> Callable[[World], Evidence]:
    """Return what runs a study from a file, without the requests of the commands before it.

    `after`: a command whose output counts, too. `files`: those that the options name.
    """

    def run(world: World) -> Evidence:
        world.script = answer_pictures
        world.prepare(recipe)
        for name, content in recipe.files.items():
            if isinstance(content, str):
                text = content.replace("MODEL", world.model)
                (world.home / name).write_text(text, encoding="utf-8")
        world.server.requests.clear()
        evidence = collect(world, world.run(kind, recipe, *options), files)
        if not after:
            return evidence
        return replace(evidence, out=evidence.out + world.cli(*after).out)

    return run
