"""Families of simulated tasks for prompt optimisers, each with a difficulty of its own, and their
split into families that may choose a design and families that only judge it.

Nothing here imports a package that is not Python's own. Everything is a function of a seed and of
texts, so that a run can be repeated exactly, whatever the order of its calls.

**The task.** A template carries rules, a line each: "Rule 3." helps, "Rule n17." (a junk rule) does
not, and breaks each row with the probability `Family.harms`. A row is a text "case 12: ...", and
needs some of the rules. The answer names the needed rules that were applied ("12 did 1+4 #1f0c2a",
where the end is a hash of the prompt), the label all that are needed ("12 wants 1+4+5"). An applied
rule is left out with the probability `Family.omission`, drawn again for each wording. True quality
is the mean score over held-out rows without that noise.

**The editor** is the same for every optimiser, and reads only what stands in its prompt. It counts
the rules that feedback says are lacking, notices each with the probability `Family.notices`, the
most frequent first, and adds at most `Family.mends` of them; with .3, or if it noticed nothing, it
adds a junk rule. It forgets each old rule with the probability `Family.forgets`.

**The split.** `CHOOSING` and `JUDGING` were drawn once by a seed (`draw_judging`), half of each of
the three groups. A design is chosen on choosing families alone; the judging ones are run once, at
the end. `LOCAL_TASKS` names the two tasks of the comparison on a local model, on which no wording
of a prompt was tried.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from random import Random

from optimizer_simulator import HELD_OUT, WORLDS, CountedTask, Simulation

LOCAL_TASKS = ("bbh_disambiguation_qa", "bbh_snarks")
"""The two tasks of the run on a local model."""
ORIGINAL = "Deal with the case.\n{ticket}"
STEPS = {"facts": "Extract what matters.\n{ticket}", "answer": "Decide by this.\n{facts}"}
"""The templates of the program with two steps."""
JUNK = 0.3
"""The probability with which the editor adds a junk rule besides what it noticed."""
RULE_WEIGHTS = (0.45, 0.4, 0.35, 0.3, 0.25, 0.2, 0.15, 0.1)
"""The probability that a row needs a rule, in families whose rules differ in frequency."""

_RULE = re.compile(r"\bRule (\d)\.")
_JUNK_RULE = re.compile(r"\bRule n(\d+)\.")
_RULE_LINE = re.compile(r"[ \t]*Rule n?\d+\.\n?")
_CASE = re.compile(r"\bcase (\d+):")
_WANTS = re.compile(r"\b(\d+) wants ([\d+]+|nothing)")
_DID = re.compile(r"\b(\d+) did ([\w+.]+)")
_LACKS = re.compile(r"\bcase \d+ lacks (n?\d+)")
_LATE = re.compile(r"\bcase \d+ has (\d) too late")
_NOTES = re.compile(r"notes\[([\dn,]*)\]")
_PADDING = "word and word "
_CLASH = "rules 0 and 1 clash"


@dataclass(frozen=True, slots=True)
class Row:
    """A row: the text of its input, and its label."""

    number: int
    ticket: str
    label: str


@dataclass(frozen=True)
class Family:
    """What makes the tasks of a family difficult.

    Attributes:
        name: Its name in the tables.
        rules: The number of useful rules.
        needs: The fewest and the most rules that a row needs.
        needy: The share of rows that need any.
        weighted: Whether rows need each rule by `RULE_WEIGHTS` instead.
        graded: Whether a score is the share of needed rules that were applied, or 1 if all were.
        known: The rules that the original has.
        notices, mends, forgets: What the editor does; see the docstring of the file.
        harms: The probability that a junk rule breaks a row.
        omission: The probability that an applied rule is left out.
        feedback: What the metric explains: every lacking rule, one of them, or none, so that the
            editor has to compare answer and label (`label`) or guess (`none`).
        demonstrations: Whether demonstrations do nothing, teach the class that they show, or break
            half of all rows.
        wrong_labels: The share of given rows whose label is wrong, so that they never score.
        flips: The probability that a score is inverted, drawn again for each answer.
        padding: The characters before an answer and before a label.
        rows: The number of given rows.
    """

    name: str
    rules: int = 6
    needs: tuple[int, int] = (1, 2)
    needy: float = 1.0
    weighted: bool = False
    graded: bool = False
    known: tuple[int, ...] = ()
    notices: float = 0.5
    mends: int = 2
    forgets: float = 0.05
    harms: float = 0.03
    omission: float = 0.03
    feedback: str = "all"
    demonstrations: str = "idle"
    wrong_labels: float = 0.0
    flips: float = 0.0
    padding: int = 0
    rows: int = 60

    @property
    def binary(self) -> bool:
        return not self.graded

    def begin(self, seed: int, rows: int | None = None, budget: int | None = None) -> FamilyTask:
        """Return the family's task of a seed, with `rows` given rows (None: as many as usual)."""
        kind = _TASK_KINDS.get(self.name, FamilyTask)
        return kind(self, seed, rows or self.rows, budget)


@dataclass
class FamilyTask(CountedTask):
    """A task of a family, with its generator, metric and editor. The generator and the editor count
    their calls by kind; one more than `budget` raises BudgetSpent."""

    world: Family
    seed: int
    rows: int = 60
    budget: int | None = None
    calls: Counter[str] = field(default_factory=Counter[str])

    def __post_init__(self) -> None:
        rng = Random(f"{self.world.name}/{self.seed}")
        self.needed = [self.draw_needs(rng) for _ in range(self.rows + HELD_OUT)]
        self.given = [self.row(number) for number in range(self.rows)]
        self.held_out = range(self.rows, self.rows + HELD_OUT)

    @cached_property
    def template(self) -> str:
        return insert_rules(ORIGINAL, [f"Rule {rule}." for rule in self.world.known])

    @property
    def templates(self) -> Mapping[str, str]:
        """Return the templates of a program; empty if the task is a plain prompt."""
        return {}

    # Rows.

    def draw_needs(self, rng: Random) -> tuple[int, ...]:
        """Draw the rules that a row needs."""
        family = self.world
        if family.weighted:
            return tuple(r for r in range(family.rules) if rng.random() < RULE_WEIGHTS[r]) or (0,)
        if rng.random() >= family.needy:
            return ()
        size = rng.randint(*family.needs)
        return tuple(sorted(rng.sample(range(family.rules), size)))

    def row(self, number: int) -> Row:
        text = f"case {number}: " + ("lorem ipsum " * 30)[: 60 + number % 30]
        wants = "+".join(map(str, self.wanted(number))) or "nothing"
        padding = self.padding
        return Row(number, text, f"{padding}{number} wants {wants}")

    @property
    def padding(self) -> str:
        return _PADDING * (self.world.padding // len(_PADDING))

    def wanted(self, number: int) -> tuple[int, ...]:
        """Return the rules that the label of a row names."""
        return (9,) if self.is_mislabelled(number) else self.needed[number]

    def is_mislabelled(self, number: int) -> bool:
        return number < self.rows and self.unit("label", number) < self.world.wrong_labels

    # The generator.

    def generate(self, prompt: str) -> str:
        """Return the answer to the last case that a prompt asks about. Counted."""
        self.spend("generate")
        number = int(_CASE.findall(prompt)[-1])
        applied = self.applied(number, prompt, noisy=True)
        return f"{self.padding}{number} did {self.describe(number, applied)} {mark_of(prompt)}"

    def describe(self, number: int, applied: Sequence[int] | None) -> str:
        """Return what an answer says; `applied` as `applied` returns it."""
        if applied is None:
            return "broken"
        return "+".join(map(str, applied)) or "nothing"

    def applied(self, number: int, prompt: str, *, noisy: bool) -> list[int] | None:
        """Return the needed rules that a prompt makes apply to a row; None if the row is
        broken."""
        if self.is_broken(number, prompt):
            return None
        rules = self.carried(number, prompt)
        return [
            rule
            for rule in self.needed[number]
            if rule in rules and not (noisy and self.omits(number, rule, prompt))
        ]

    def carried(self, number: int, prompt: str) -> set[int]:
        """Return the rules that a prompt has, or that its demonstrations teach for a row."""
        rules = set(map(int, _RULE.findall(prompt)))
        if self.world.demonstrations == "teach":
            shown = {int(other) for other, _ in _WANTS.findall(prompt)} - {number}
            rules |= {rule for other in shown for rule in self.needed[other]}
        return rules

    def omits(self, number: int, rule: int, prompt: str) -> bool:
        return self.unit("omits", number, rule, prompt) < self.world.omission

    def is_broken(self, number: int, prompt: str) -> bool:
        junk = set(_JUNK_RULE.findall(prompt))
        if any(self.unit("harm", rule, number) < self.world.harms for rule in junk):
            return True
        hurts = self.world.demonstrations == "hurt" and _WANTS.search(prompt)
        return bool(hurts) and self.unit("hurt", number) < 0.5

    # The metric, and the truth.

    def grade(self, answer: str, label: str) -> float:
        """Return the score of an answer as a user's metric gives it; not counted."""
        return self.explain(answer)[0]

    def explain(self, answer: str) -> tuple[float, str]:
        """Return the score of an answer, and what the metric explains."""
        number, text = _DID.findall(answer)[-1]
        return self.judge_answer(int(number), text, answer)

    def judge_answer(self, number: int, text: str, answer: str) -> tuple[float, str]:
        family = self.world
        bogus = f"case {number} lacks n{100 + int(self.unit('bogus', answer) * 50)}"
        if self.is_mislabelled(number):
            return 0.0, f"case {number} lacks n{100 + int(self.unit('bogus', number) * 50)}"
        applied = None if text == "broken" else [int(rule) for rule in re.findall(r"\d", text)]
        score = self.value(number, applied)
        if self.unit("flips", answer) < family.flips:
            return 1 - score, bogus

        return score, self.explain_score(number, applied, score, answer)

    def explain_score(
        self, number: int, applied: Sequence[int] | None, score: float, answer: str
    ) -> str:
        family = self.world
        if family.feedback in ("label", "none"):
            return "right" if score == 1 else "wrong"
        if applied is None:
            return "broken"
        lacking = [rule for rule in self.needed[number] if rule not in applied]
        if family.feedback == "one":
            lacking = self.choose_one(lacking, answer)
        return ", ".join(f"case {number} lacks {rule}" for rule in lacking) or "right"

    def choose_one(self, lacking: Sequence[int], answer: str) -> list[int]:
        return [lacking[int(self.unit("which", answer) * len(lacking))]] if lacking else []

    def value(self, number: int, applied: Sequence[int] | None) -> float:
        """Return the true score, in [0, 1], of a row under the rules that were applied."""
        if applied is None:
            return 0.0
        needed = self.needed[number]
        shares = [rule in applied for rule in needed]
        if not shares:
            return 1.0
        return sum(shares) / len(shares) if self.world.graded else float(all(shares))

    def quality(self, prompt: str) -> float:
        """Return the true quality, in [0, 1], of a template."""
        scores = [self.value(n, self.applied(n, prompt, noisy=False)) for n in self.held_out]
        return sum(scores) / len(scores)

    # The editor.

    def rewrite(self, current: str, text: str, sample: object = 0) -> str:
        """Return a new text by what is shown beside the current one. Counted."""
        self.spend("edit")
        rng = Random(str(self.unit("edit", current, text, sample)))
        new_rules = self.read(current, text, rng)
        forgets = self.world.forgets
        old = _RULE_LINE.sub(lambda m: "" if rng.random() < forgets else m[0], current)
        return insert_rules(old, new_rules)

    def read(self, current: str, text: str, rng: Random) -> list[str]:
        """Return the rules that are added by what is shown; instructions are followed."""
        if not _DID.search(text):
            return [line.strip() for line in _RULE_LINE.findall(text)]
        lacking = Counter(self.list_lacking(text))
        new_rules = list[str]()
        for rule, _ in lacking.most_common():
            if len(new_rules) < self.world.mends and rng.random() < self.world.notices:
                new_rules.append(f"Rule {rule}.")
        if rng.random() < JUNK or not new_rules:
            new_rules.append(f"Rule n{rng.randrange(100)}.")
        return new_rules

    def list_lacking(self, text: str) -> list[str]:
        """List the rules that shown cases lack, by feedback, or by answers beside labels."""
        if self.world.feedback != "label":
            return _LACKS.findall(text)
        wanted = {number: rules.split("+") for number, rules in _WANTS.findall(text)}
        done = {number: rules.split("+") for number, rules in _DID.findall(text)}
        return [
            rule
            for number, rules in wanted.items()
            for rule in rules
            if number in done and rule not in done[number] and rule.isdigit()
        ]

    def instruct(self, text: str, sample: object = 0, most: int = 10) -> list[str]:
        """Return rules to add, as instructions. Counted."""
        self.spend("edit")
        rng = Random(str(self.unit("instruct", text, sample)))
        return self.read("", text, rng)[:most]


def mark_of(prompt: str) -> str:
    return "#" + hashlib.blake2b(prompt.encode("utf-8", "replace"), digest_size=3).hexdigest()


def list_rules(text: str) -> list[str]:
    """List the names of the rules in a text; those of junk rules begin with n."""
    return [*_RULE.findall(text), *(f"n{rule}" for rule in _JUNK_RULE.findall(text))]


def insert_rules(template: str, rules: Iterable[str]) -> str:
    """Insert lines before the line with the placeholder, or at the end; those that the template
    has are left out."""
    lines = [line for line in template.splitlines() if line.strip()]
    new = [rule for rule in dict.fromkeys(rules) if rule not in template]
    place = next((n for n, line in enumerate(lines) if "{" in line), len(lines))
    return "\n".join([*lines[:place], *new, *lines[place:]])


class RuggedTask(FamilyTask):
    """Whether a row is right depends on three rules at once, by a table without order; the editor
    is told only what failed, and adds or removes a rule or two by chance."""

    def __post_init__(self) -> None:
        super().__post_init__()
        rng = Random(f"{self.world.name}/tables/{self.seed}")
        self.tables = [
            (rng.sample(range(self.world.rules), 3), [rng.random() < 0.5 for _ in range(8)])
            for _ in range(12)
        ]

    def draw_needs(self, rng: Random) -> tuple[int, ...]:
        return ()

    def applied(self, number: int, prompt: str, *, noisy: bool) -> list[int] | None:
        """Return no rules if the row is right, None if it is wrong."""
        rules, table = self.tables[number % len(self.tables)]
        carried = self.carried(number, prompt)
        right = table[sum((rule in carried) << place for place, rule in enumerate(rules))]
        if noisy and self.unit("noise", number, prompt) < self.world.omission:
            right = not right
        return [] if right and not self.is_broken(number, prompt) else None

    def rewrite(self, current: str, text: str, sample: object = 0) -> str:
        self.spend("edit")
        rng = Random(str(self.unit("edit", current, text, sample)))
        new = list[str]()
        for rule in rng.sample(range(self.world.rules), rng.randint(1, 2)):
            line = f"Rule {rule}."
            if line in current:
                current = re.sub(rf"[ \t]*Rule {rule}\.\n?", "", current)
            else:
                new.append(line)
        forgets = self.world.forgets
        old = _RULE_LINE.sub(lambda m: "" if rng.random() < forgets else m[0], current)
        return insert_rules(old, new)


class PairsTask(FamilyTask):
    """A row needs one of eight pairs of rules, and is right only with both. Rules 0 and 1 spoil
    each other unless rule 7 is there; feedback names one missing rule."""

    pairs = ((0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6), (0, 3), (2, 5))

    def draw_needs(self, rng: Random) -> tuple[int, ...]:
        return self.pairs[rng.randrange(len(self.pairs))]

    def carried(self, number: int, prompt: str) -> set[int]:
        rules = super().carried(number, prompt)
        return rules - {0, 1} if self.clashes(number, rules) else rules

    def clashes(self, number: int, rules: set[int]) -> bool:
        return {0, 1} <= rules and 7 not in rules and bool({0, 1} & set(self.needed[number]))

    def generate(self, prompt: str) -> str:
        answer = super().generate(prompt)
        number = int(_CASE.findall(prompt)[-1])
        rules = set(map(int, _RULE.findall(prompt)))
        return f"{answer} clash" if self.clashes(number, rules) else answer

    def explain_score(
        self, number: int, applied: Sequence[int] | None, score: float, answer: str
    ) -> str:
        if applied is not None and answer.endswith(" clash"):
            return _CLASH
        return super().explain_score(number, applied, score, answer)

    def rewrite(self, current: str, text: str, sample: object = 0) -> str:
        rng = Random(str(self.unit("clash", current, text, sample)))
        if _CLASH not in text or rng.random() < 0.5:
            return super().rewrite(current, text, sample)
        self.spend("edit")
        if rng.random() < 0.5:
            return insert_rules(current, ["Rule 7."])
        return re.sub(rf"[ \t]*Rule {rng.choice((0, 1))}\.\n?", "", current)


class OrderTask(FamilyTask):
    """A rule counts only if the row's other rules that precede it in a hidden order stand above it.
    Feedback says which rules lack, and which stand too late; the editor moves one of these."""

    @cached_property
    def places(self) -> dict[int, int]:
        hidden = Random(f"{self.world.name}/order/{self.seed}").sample(
            range(self.world.rules), self.world.rules
        )
        return {rule: place for place, rule in enumerate(hidden)}

    def applied(self, number: int, prompt: str, *, noisy: bool) -> list[int] | None:
        applied = super().applied(number, prompt, noisy=noisy)
        stands = {int(rule): -n for n, rule in enumerate(reversed(_RULE.findall(prompt)))}
        return applied and [
            rule
            for rule in applied
            if all(
                other in stands and stands[other] < stands[rule]
                for other in self.needed[number]
                if self.places[other] < self.places[rule]
            )
        ]

    def generate(self, prompt: str) -> str:
        answer = super().generate(prompt)
        carried = sorted(set(_RULE.findall(prompt)))
        return f"{answer} had {'+'.join(carried)}"

    def explain_score(
        self, number: int, applied: Sequence[int] | None, score: float, answer: str
    ) -> str:
        if applied is None:
            return "broken"
        carried = set(map(int, re.findall(r"\d", answer.rpartition(" had ")[2])))
        lacking = [rule for rule in self.needed[number] if rule not in applied]
        return (
            ", ".join(
                f"case {number} has {rule} too late"
                if rule in carried
                else f"case {number} lacks {rule}"
                for rule in lacking
            )
            or "right"
        )

    def rewrite(self, current: str, text: str, sample: object = 0) -> str:
        rng = Random(str(self.unit("move", current, text, sample)))
        late = _LATE.findall(text)
        if not late or rng.random() < 0.5:
            return super().rewrite(current, text, sample)
        self.spend("edit")
        line = f"Rule {rng.choice(late)}."
        lines = [other for other in current.splitlines() if other.strip() != line]
        rules = [n for n, other in enumerate(lines) if other.startswith("Rule")] or [1]
        place = rng.randint(rules[0], rules[-1] + 1)
        return "\n".join([*lines[:place], line, *lines[place:]])


class HeavyTask(FamilyTask):
    """Partial credit with heavy tails: most missing rules cost .02, few cost everything; one answer
    in ten loses a random share of its score."""

    @cached_property
    def losses(self) -> list[dict[int, float]]:
        rng = Random(f"{self.world.name}/losses/{self.seed}")
        return [
            {rule: min(1.0, 0.02 * rng.paretovariate(0.8)) for rule in needed}
            for needed in self.needed
        ]

    def value(self, number: int, applied: Sequence[int] | None) -> float:
        if applied is None:
            return 0.0
        losses = self.losses[number]
        return 1 - min(1.0, sum(loss for rule, loss in losses.items() if rule not in applied))

    def judge_answer(self, number: int, text: str, answer: str) -> tuple[float, str]:
        score, feedback = super().judge_answer(number, text, answer)
        if self.unit("crash", answer) < 0.1:
            bogus = f"case {number} lacks n{100 + int(self.unit('bogus', answer) * 50)}"
            return score * self.unit("share", answer), bogus
        noise = 0.02 * (self.unit("noise", answer) - 0.5)
        return (score if text == "broken" else min(1.0, max(0.0, score + noise))), feedback


class SubgroupTask(FamilyTask):
    """Two given rows in five belong to a group whose labels are wrong: they ask for rule 8 or 9,
    each of which breaks three in ten of all rows."""

    def group_of(self, number: int) -> int | None:
        """Return the rule that a row's wrong label asks for; None if the label is right."""
        if self.unit("group", number) >= 0.4:
            return None
        return 8 if self.unit("spurious", number) < 0.5 else 9

    def row(self, number: int) -> Row:
        row = super().row(number)
        suffix = "" if self.group_of(number) is None else " group b"
        return Row(number, row.ticket + suffix, row.label)

    def wanted(self, number: int) -> tuple[int, ...]:
        spurious = self.group_of(number)
        return self.needed[number] if spurious is None else (spurious,)

    def is_broken(self, number: int, prompt: str) -> bool:
        rules = self.carried(number, prompt) & {8, 9}
        breaks = any(self.unit("breaks", rule, number) < 0.3 for rule in rules)
        return breaks or super().is_broken(number, prompt)

    def applied(self, number: int, prompt: str, *, noisy: bool) -> list[int] | None:
        applied = super().applied(number, prompt, noisy=noisy)
        if applied is None:
            return None
        return applied + sorted(self.carried(number, prompt) & {8, 9})

    def judge_answer(self, number: int, text: str, answer: str) -> tuple[float, str]:
        spurious = self.group_of(number)
        if spurious is None:
            return super().judge_answer(number, text, answer)
        score = float(str(spurious) in text.split("+"))
        if text == "broken":
            return 0.0, "broken"
        return score, "right" if score else f"case {number} lacks {spurious}"


class StepsTask(FamilyTask):
    """A program of two steps. Three rules belong to each; a rule in the wrong step does nothing and
    may break a row. Feedback names the rule and not the step, and the first step's output does not
    show what it lacks."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.remembered = dict[str, str]()

    @property
    def templates(self) -> Mapping[str, str]:
        return STEPS

    @cached_property
    def template(self) -> str:
        return STEPS["facts"]

    def ask(self, prompt: str) -> tuple[str, bool]:
        """Return one step's output, and whether it took a call: at temperature 0 nothing is asked
        for twice."""
        if prompt in self.remembered:
            return self.remembered[prompt], False
        self.spend("generate")
        number = int(re.findall(r"\bcase (\d+)", prompt)[-1])
        own = list_rules(prompt)
        notes = _NOTES.search(prompt)
        if notes is None:
            output = f"case {number} notes[{','.join(sorted(set(own)))}]"
        else:
            first = [rule for rule in notes[1].split(",") if rule]
            done = self.apply_steps(number, first, own, prompt)
            output = f"{number} did {self.describe(number, done)} {mark_of(prompt)}"
        self.remembered[prompt] = output
        return output, True

    def apply_steps(
        self, number: int, first: Iterable[str], second: Iterable[str], prompt: str | None
    ) -> list[int] | None:
        """Return the needed rules that are applied by the rules of both steps; None if the row is
        broken. `prompt`: None without noise."""
        firsts = set(first)
        seconds = set(second)
        harmful = {r for r in firsts if not r.isdigit() or int(r) >= 3}
        harmful |= {f"second {r}" for r in seconds if not r.isdigit() or int(r) < 3}
        if any(self.unit("harm", rule, number) < self.world.harms for rule in sorted(harmful)):
            return None
        return [
            rule
            for rule in self.needed[number]
            if str(rule) in (firsts if rule < 3 else seconds)
            and not (prompt and self.omits(number, rule, prompt))
        ]

    def quality_of(self, templates: Mapping[str, str]) -> float:
        """Return the true quality, in [0, 1], of both templates."""
        first, second = (list_rules(templates[name]) for name in ("facts", "answer"))
        scores = [self.value(n, self.apply_steps(n, first, second, None)) for n in self.held_out]
        return sum(scores) / len(scores)


class GainTask(FamilyTask):
    """One rule of a known worth: a row is right with the probability `base` without it, and with
    `base + gain` with it; half of the rows by their own difficulty, half drawn again for each
    wording."""

    base = 0.5
    gain = 0.0
    continuous = False

    def chance(self, prompt: str) -> float:
        return self.base + (self.gain if 0 in map(int, _RULE.findall(prompt)) else 0.0)

    def generate(self, prompt: str) -> str:
        self.spend("generate")
        number = int(_CASE.findall(prompt)[-1])
        chance = self.chance(prompt)
        if self.continuous:
            own = 0.6 * (self.unit("own", number) - 0.5)
            drawn = 0.4 * (self.unit("drawn", number, prompt) - 0.5)
            score = max(0.0, min(1.0, chance + own + drawn))
            return f"{number} did {score:.4f} {mark_of(prompt)}"
        lasting = self.unit("whose", number) < 0.5
        drawn = self.unit("fate", number, "" if lasting else prompt)
        return f"{number} did {'0' if drawn < chance else 'nothing'} {mark_of(prompt)}"

    def judge_answer(self, number: int, text: str, answer: str) -> tuple[float, str]:
        score = float(text) if self.continuous else float(text == "0")
        return score, "" if score == 1 else f"case {number} lacks 0"

    def quality(self, prompt: str) -> float:
        return self.chance(prompt)


class RareNull(GainTask):
    base = 0.85


class ContinuousNull(GainTask):
    continuous = True


class LargeGain(GainTask):
    base = 0.4
    gain = 0.3


class MiddleGain(GainTask):
    base = 0.4
    gain = 0.2


class ImbalancedTask(FamilyTask):
    """One row in twenty needs the rule, and at least three of the given ones."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for number in Random(f"{self.world.name}/needy/{self.seed}").sample(range(self.rows), 3):
            self.needed[number] = (0,)
        self.given = [self.row(number) for number in range(self.rows)]


FIRST_GROUP = (
    Family("conjunction", rules=3, needs=(3, 3), needy=0.85, mends=1, feedback="one"),
    Family("harmful examples", graded=True, needs=(1, 3), demonstrations="hurt"),
    Family("wrong labels", wrong_labels=0.2),
    Family("imbalance", rules=1, needs=(1, 1), needy=0.05, harms=0.04, omission=0.0),
    Family("eight rows", rules=4, graded=True, rows=8),
    Family("nothing left", known=tuple(range(6)), flips=0.1, omission=0.0),
    Family("long answers", feedback="label", padding=3000),
    Family("long graded answers", feedback="label", padding=3000, graded=True, needs=(1, 3)),
    Family("rugged", rules=8, feedback="none"),
    Family("classes", rules=8, needs=(1, 1), demonstrations="teach", notices=0.15, mends=1),
    Family("weighted, graded", rules=8, harms=0.02, weighted=True, graded=True),
    Family("weighted, binary", rules=8, harms=0.02, weighted=True),
)
SECOND_GROUP = (
    Family("pairs", rules=8, feedback="one"),
    Family("order", needs=(2, 3), graded=True),
    Family("heavy tails", needs=(1, 3), graded=True),
    Family("subgroup", known=(0, 1)),
    Family("forgetful editor", rules=8, graded=True, needs=(1, 3), forgets=0.25),
    Family("six small gains", needs=(1, 1), needy=0.25),
    Family("two steps", needs=(1, 3), graded=True),
)
THIRD_GROUP = (
    "graded",
    "binary",
    "graded, noisy",
    "binary, noisy",
    "graded, hard",
    "binary, hard",
    "harmful demonstrations",
    "long texts",
)
"""Names of tasks of `optimizer_simulator.py`."""
DECISIONS = (
    Family("no gain, binary", rules=1, needs=(1, 1), rows=100),
    Family("no gain, rare faults", rules=1, needs=(1, 1), rows=100),
    Family("no gain, continuous", rules=1, needs=(1, 1), rows=100, graded=True),
    Family("no gain, 40 rows", rules=1, needs=(1, 1), rows=40),
    Family("a gain of .2", rules=1, needs=(1, 1), rows=100, notices=1.0),
    Family("a gain of .3", rules=1, needs=(1, 1), rows=100, notices=1.0),
)
"""Families for the decision, whose gain is known."""
FAMILIES = {family.name: family for family in (*FIRST_GROUP, *SECOND_GROUP, *DECISIONS)}
_TASK_KINDS: dict[str, type[FamilyTask]] = {
    "imbalance": ImbalancedTask,
    "rugged": RuggedTask,
    "pairs": PairsTask,
    "order": OrderTask,
    "heavy tails": HeavyTask,
    "subgroup": SubgroupTask,
    "two steps": StepsTask,
    "no gain, binary": GainTask,
    "no gain, rare faults": RareNull,
    "no gain, continuous": ContinuousNull,
    "no gain, 40 rows": GainTask,
    "a gain of .2": MiddleGain,
    "a gain of .3": LargeGain,
}
GROUPS = (
    tuple(family.name for family in FIRST_GROUP),
    tuple(family.name for family in SECOND_GROUP),
    THIRD_GROUP,
)
SPLIT_SEED = "choosing and judging families, 29 November 2026"


def draw_judging() -> tuple[str, ...]:
    """Draw half of each group, of an odd one the larger half, as the families that judge."""
    rng = Random(SPLIT_SEED)
    drawn = [set(rng.sample(sorted(group), (len(group) + 1) // 2)) for group in GROUPS]
    names = zip(GROUPS, drawn, strict=True)
    return tuple(name for group, judging in names for name in group if name in judging)


JUDGING = draw_judging()
CHOOSING = tuple(name for group in GROUPS for name in group if name not in JUDGING)
CHOOSING_SEEDS = range(100, 112)
JUDGING_SEEDS = range(12)


def begin_task(
    name: str, seed: int, rows: int | None = None, budget: int | None = None
) -> FamilyTask | Simulation:
    """Return the task of a family, or of `optimizer_simulator.py`, by its name."""
    if name in FAMILIES:
        return FAMILIES[name].begin(seed, rows, budget)
    return Simulation(WORLDS[name], seed, rows or 60, budget)
