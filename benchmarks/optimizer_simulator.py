"""A simulated task, generator and editor, on which prompt optimisers are compared call by call.

Everything is a function of seeds and texts, so a run can be repeated exactly and does not depend
on the order in which calls are answered. Nothing here imports a package that is not Python's own.

**The task.** There are `World.skills` hidden skills K0, K1, ... A template carries a skill if it
has the rule "Always apply skill K3."; at first it carries the first `World.known` of them. A row
(`ticket r17`) needs some of the skills (`World.needs`: fewest and most), the first skills twice as
often as the last. The answer names those needed skills that were applied, `r17: K1+K4 ~5f0c`, and
the label all that were needed, `r17: K1+K4+K6`. What follows `~` is a hash of the prompt.

**Metrics.** Graded: the share of the needed skills that were applied; binary: 1 if all were.

**Noise.** `World.omission`: the probability that a skill that is carried is left out on a row; half
of that is the row's own (the same under every template), half is drawn again with each wording.
`World.misread`: the probability that the metric gives an arbitrary score (graded: uniform in
[0, 1]; binary: a coin), drawn again with each answer. True quality knows neither: it is the mean
over the held-out rows of the metric without both.

**Rules that help nobody.** An empty rule does nothing. A muddle ("Mind point M7.") makes every
skill be left out more often, by the factor `MUDDLED` = .93 each; that counts in true quality, too.

**Demonstrations.** A label or answer of another row within the prompt is a demonstration. The first
`World.demos` of them (6) teach each of their skills with probability `World.teaches` (.35), which
is a property of row and skill, so that it pays to choose demonstrations. A row whose own label
stands in the prompt is answered right, so an optimiser that tries demonstrations on the same rows
deceives itself. `World.hurts`: each demonstration makes every skill be left out more often, with
this probability; that counts in true quality, too.

**Long texts.** `World.padding`: characters that stand before and behind what an answer or a label
says, the same in both.

**The editor** is the same for every optimiser and reads nothing but what stands in the prompt that
it is asked with. A *fault* is a skill that the label of a shown row has and its answer lacks.

 * Reading (whenever rows are shown): each single fault that is shown is noticed with probability
   `World.notices` (.3), and a skill in a label shown without an answer with half of that; of what
   was noticed the most frequent `World.mends` (2) become rules. So it pays to show more rows that
   fail, and with more different faults; a fault of a skill that the template carries already
   (noise) takes a place and yields nothing. With probability .15 a muddle is added, with .2 an
   empty rule.
 * Writing a template: each rule of the old one is forgotten with probability `World.forgets` (.06),
   each new one is put in with .9, and a muddle is added with .05. All other text is kept.

An optimiser that asks for both at once gets both in one call; one that asks for instructions first
pays for two. The wording of a prompt is never read, so none is better than another.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from random import Random

SEED_TEMPLATE = "Answer the ticket.\n{ticket}"
RULE = "Always apply skill K{}."
FILLER = "and so on "
MUDDLED = 0.93
PUT_IN = 0.9
MUDDLES, EMPTIES, SLIPS = 0.15, 0.2, 0.05
"""Probabilities of a muddle and of an empty rule when reading, and of a muddle when writing."""
HELD_OUT = 300

_SKILL = re.compile(r"\bapply skill K(\d+)")
_MUDDLE = re.compile(r"\bMind point M\d+")
_LABEL = re.compile(r"\br(\d+): (none|K\d+(?:\+K\d+)*)")
_TICKET = re.compile(r"\bticket r(\d+)\b")
_RULES = re.compile(
    r"[ \t]*(?:[-*]|\d+[.)])?[ \t]*"
    r"(Always apply skill K\d+\.|Mind point M\d+\.|In case E\d+ be careful\.)"
)


class BudgetSpent(Exception):
    """The call that is refused would be one more than the budget has."""


@dataclass(frozen=True)
class World:
    """How hard a task is; what the fields mean is in the docstring of the file."""

    name: str
    skills: int = 8
    known: int = 1
    needs: tuple[int, int] = (1, 3)
    binary: bool = False
    omission: float = 0.05
    misread: float = 0.0
    demos: int = 6
    teaches: float = 0.35
    hurts: float = 0.0
    padding: int = 0
    notices: float = 0.3
    mends: int = 2
    forgets: float = 0.06


WORLDS = {
    world.name: world
    for world in (
        World("graded"),
        World("binary", binary=True),
        World("graded, noisy", omission=0.15, misread=0.1),
        World("binary, noisy", binary=True, omission=0.15, misread=0.1),
        World("graded, easy", skills=6, notices=0.5, mends=3, forgets=0.04),
        World("binary, easy", binary=True, skills=6, notices=0.5, mends=3, forgets=0.04),
        World("graded, hard", skills=12, needs=(2, 4), notices=0.2, forgets=0.08),
        World("binary, hard", binary=True, skills=12, notices=0.2, forgets=0.08),
        World(
            "nothing to mend, graded", known=4, notices=0.0, teaches=0.0, omission=0.15, misread=0.1
        ),
        World(
            "nothing to mend, binary",
            binary=True,
            known=4,
            notices=0.0,
            teaches=0.0,
            omission=0.15,
            misread=0.1,
        ),
        World("idle demonstrations", binary=True, known=0, teaches=0.0),
        World("harmful demonstrations", binary=True, known=0, teaches=0.0, hurts=0.15),
        World("harmful demonstrations, graded", teaches=0.0, hurts=0.15),
        World("long texts", padding=8000),
    )
}


@dataclass(frozen=True, slots=True)
class Row:
    number: int
    needs: tuple[int, ...]
    padding: int = 0

    @property
    def ticket(self) -> str:
        return f"ticket r{self.number}"

    @property
    def label(self) -> str:
        return tell(self.number, self.needs, self.padding)


def tell(number: int, skills: Iterable[int], padding: int = 0) -> str:
    text = f"r{number}: " + ("+".join(f"K{k}" for k in sorted(skills)) or "none")
    filler = FILLER * (padding // len(FILLER))
    return f"{filler}{text}{filler and ' '}{filler}"


def _read(text: str) -> frozenset[int]:
    return frozenset(int(k) for k in re.findall(r"\d+", text)) if text != "none" else frozenset()


class CountedTask:
    """The base of simulated tasks, which count their calls by kind and draw by their seed."""

    seed: int
    budget: int | None
    calls: Counter[str]

    @property
    def spent(self) -> int:
        return sum(self.calls.values())

    @property
    def left(self) -> int:
        return 10**9 if self.budget is None else self.budget - self.spent

    def spend(self, kind: str) -> None:
        """Count a call. Raises BudgetSpent if it would be one too many."""
        if self.left <= 0:
            raise BudgetSpent(f"all {self.budget} calls are spent")
        self.calls[kind] += 1

    def unit(self, *labels: object) -> float:
        """Return a number in [0, 1) that is a function of the labels and the seed."""
        text = "\0".join(map(str, (self.seed, *labels))).encode("utf-8", "surrogatepass")
        return int.from_bytes(hashlib.blake2b(text, digest_size=7).digest(), "big") / 2**56


@dataclass
class Simulation(CountedTask):
    """One task with its models. `calls` by kind; one more than `budget` raises BudgetSpent."""

    world: World
    seed: int
    rows: int = 60
    budget: int | None = None
    calls: Counter[str] = field(default_factory=Counter[str])

    def __post_init__(self) -> None:
        rng = Random(f"{self.world.name}/{self.seed}")
        drawn = [self._draw(rng, n) for n in range(self.rows + HELD_OUT)]
        self.given, self.held_out = drawn[: self.rows], drawn[self.rows :]
        self.known = {row.number: row for row in drawn}
        skills = range(self.world.known)
        self.template = "\n".join([SEED_TEMPLATE, *(RULE.format(k) for k in skills)])

    def _draw(self, rng: Random, number: int) -> Row:
        world = self.world
        skills = list(range(world.skills))
        weights = [2 - k / (world.skills - 1) for k in skills]
        size = rng.randint(*world.needs)
        needs = set[int]()
        while len(needs) < size:
            needs.update(rng.choices(skills, weights))
        return Row(number, tuple(sorted(needs)), world.padding)

    # The generator.

    def generate(self, prompt: str) -> str:
        """The answer to the one ticket that the prompt asks about. Counted."""
        self.spend("generate")
        demos = {int(n): _read(skills) for n, skills in _LABEL.findall(prompt)}
        tickets = [int(n) for n in _TICKET.findall(prompt)]
        row = self.known[next((n for n in reversed(tickets) if n not in demos), tickets[-1])]
        mark = hashlib.blake2b(prompt.encode("utf-8", "replace"), digest_size=2).hexdigest()
        if row.number in demos and tickets.count(row.number) > 1:
            done: Iterable[int] = row.needs
        else:
            done = self._apply(row, prompt, self._carried(prompt, demos, row.number))
        return f"{tell(row.number, done, row.padding)} ~{mark}"

    def _carried(
        self, prompt: str, demos: dict[int, frozenset[int]], besides: int = -1
    ) -> frozenset[int]:
        rows = [n for n in demos if n != besides][: self.world.demos]
        taught = {
            k for n in rows for k in demos[n] if self.unit("taught", n, k) < self.world.teaches
        }
        return frozenset({int(k) for k in _SKILL.findall(prompt)} | taught)

    def _clear(self, prompt: str) -> float:
        """The probability that a skill is not left out for a muddle or a demonstration."""
        demos = len(set(_LABEL.findall(prompt)))
        return MUDDLED ** len(_MUDDLE.findall(prompt)) * (1 - self.world.hurts) ** demos

    def _apply(self, row: Row, prompt: str, carried: frozenset[int]) -> list[int]:
        world = self.world
        clear = self._clear(prompt)
        return [
            k
            for k in row.needs
            if k in carried
            and self.unit("omits", row.number, k) >= world.omission / 2
            and self.unit("omits", row.number, k, prompt) >= world.omission / 2
            and self.unit("muddled", row.number, k, prompt) < clear
        ]

    # The metric, and the truth.

    def grade(self, answer: str, label: str) -> float:
        """The metric, with the noise that the world has; is not counted."""
        if self.unit("misread?", answer) < self.world.misread:
            drawn = self.unit("misread", answer)
            return float(drawn < 0.5) if self.world.binary else drawn
        expected, actual = _LABEL.search(label), _LABEL.search(answer)
        assert expected is not None
        needed = _read(expected[2])
        done = (
            _read(actual[2])
            if actual is not None and actual[1] == expected[1]
            else frozenset[int]()
        )
        share = len(needed & done) / len(needed)
        return float(share == 1) if self.world.binary else share

    def quality(self, prompt: str) -> float:
        """The true quality, in [0, 1], of a template or of a prompt's part before the ticket."""
        world = self.world
        carried = self._carried(prompt, {int(n): _read(s) for n, s in _LABEL.findall(prompt)})
        clear = self._clear(prompt)
        total = 0.0
        for row in self.held_out:
            had = [k for k in row.needs if k in carried]
            if not world.binary:
                total += clear * len(had) / len(row.needs)
            elif len(had) == len(row.needs):
                total += clear ** len(had)
        return total / len(self.held_out)

    # The editor.

    def read(self, text: str, rng: Random) -> list[str]:
        """Rules for the faults that are noticed in what is shown."""
        rules = [RULE.format(k) for k in self._notice(text, rng)]
        if rng.random() < MUDDLES:
            rules.append(f"Mind point M{rng.randrange(1000)}.")
        if rng.random() < EMPTIES or not rules:
            rules.append(f"In case E{rng.randrange(1000)} be careful.")
        return rules

    def _notice(self, text: str, rng: Random) -> list[int]:
        """The skills that were noticed to be lacking, the most frequent first."""
        world = self.world
        labels = dict[int, list[frozenset[int]]]()
        for n, skills in _LABEL.findall(text):
            labels.setdefault(int(n), []).append(_read(skills))
        noticed = Counter[int]()
        for sets in labels.values():
            alone, joined, common = len(sets) == 1, frozenset[int](), sets[0]
            for told_once in sets:
                joined, common = joined | told_once, common & told_once
            lacking = joined if alone else joined - common
            chance = world.notices / 2 if alone else world.notices
            noticed.update(k for k in sorted(lacking) if rng.random() < chance)
        return [k for k, _ in noticed.most_common(world.mends)]

    def write(self, current: str, rules: Sequence[str], rng: Random) -> str:
        """The current text with the rules put in."""
        forgotten = self.world.forgets
        text = _RULES.sub(lambda match: "" if rng.random() < forgotten else match[0], current)
        lines = [line for line in text.splitlines() if line.strip()]
        new_rules = [rule for rule in dict.fromkeys(rules) if rule not in text]
        lines += [rule for rule in new_rules if rng.random() < PUT_IN]
        if rng.random() < SLIPS:
            lines.append(f"Mind point M{rng.randrange(1000)}.")
        return "\n".join(lines)

    def rewrite(self, current: str, text: str, sample: object = 0) -> str:
        """A new text in one call: by the rules and the faults that stand in what is shown beside
        the current text. Counted."""
        self.spend("edit")
        rng = Random(str(self.unit("edit", current, text, sample)))
        rules = [match[1] for match in _RULES.finditer(text)]
        learned = self.read(text, rng) if _LABEL.search(text) else []
        return self.write(current, [*rules, *learned], rng)

    def instruct(self, text: str, sample: object = 0, most: int = 10) -> list[str]:
        """Instructions by the faults that stand in what is shown. Counted."""
        self.spend("edit")
        rng = Random(str(self.unit("read", text, sample)))
        return self.read(text, rng)[:most]


def fill(template: str, row: Row) -> str:
    """The template with the ticket in its place; below it where it has none."""
    if "{ticket}" in template:
        return template.replace("{ticket}", row.ticket)
    return f"{template}\n{row.ticket}"
