"""Displays while models work: one debate live, a batch's progress, or the step of a loop.

All are listeners. On a terminal they keep a moving part at the bottom; elsewhere they print plain
lines, without control codes.
"""

from __future__ import annotations

import math
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.panel import Panel
from rich.rule import Rule
from rich.spinner import Spinner
from rich.text import Text

from textevolve.cli.drawing import agent_style, open_console, safe
from textevolve.cli.pace import Pace, Slowness, Spent
from textevolve.debate.early_stop import end_early
from textevolve.debate.profile import Profile
from textevolve.debate.result import Turn
from textevolve.evaluation import Case
from textevolve.events import (
    BatchPolled,
    CallFinished,
    CallHeld,
    CallRetried,
    CallSlow,
    Event,
    Listener,
    RecordsExpected,
    StepFinished,
    StepStarted,
)
from textevolve.report import wording
from textevolve.report.images import say_image
from textevolve.report.terminal import draw_block, draw_facts
from textevolve.store.runs import RunRecord
from textevolve.studies.debate_words import round_text, turn_labels
from textevolve.studies.judged_report import images_by_name, turn_table
from textevolve.studies.study import AnyStudy, no_note

Clock = Callable[[], float]
Describe = Callable[[Event], str | None]
"""What to say of a step: of one that starts in the status line, of one that ended as a line."""

INPUT_SHOWN, CANDIDATE_SHOWN = 600, 200
REDRAWN_PER_SECOND = 8
LINE_EVERY = 10.0


@dataclass
class _Step:
    """One thing under way, shown as a line with a spinner."""

    text: Text
    began: float
    spinner: Spinner
    done: int = 0
    total: int = 0


class Display(ABC):
    """A `Listener` and a context manager: what calls have used, why nothing seems to happen, and
    on a terminal a moving part at the bottom; elsewhere plain lines.

    A subclass draws the moving part, and takes the events of its own steps.
    """

    def __init__(self, console: Console, clock: Clock) -> None:
        self.console, self.clock = console, clock
        self.spent, self.began = Spent(), clock()
        self._slow = Slowness()
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self.console.is_terminal and not self.console.is_dumb_terminal:
            self._live = Live(
                get_renderable=self._moving,
                console=self.console,
                transient=True,
                refresh_per_second=REDRAWN_PER_SECOND,
                # Results printed above the bar; else into the file or pipe that asked for them.
                redirect_stdout=sys.stdout.isatty(),
            )
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop()

    def _stop(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def __call__(self, event: Event) -> None:
        match event:
            case CallFinished():
                self.spent.add(event)
            case CallRetried():
                self.spent.retries += 1
                self._show_retry(event)
            case CallSlow() | CallHeld() | BatchPolled():
                now = self.clock()
                if self._slow.note(event, now) and self._live is None:
                    self._show_slow(self._slow_text(now))
            case _:
                self._take_step(event)

    def _show_retry(self, event: CallRetried) -> None:
        reason = wording.shorten(event.reason.removeprefix(f"{event.model}: "), 160)
        wait = wording.duration(event.wait)
        line = f"{event.model}: {reason}; attempt {event.attempt + 1} in {wait}"
        self.console.print(safe(line, "dim"))

    def _show_slow(self, text: Text) -> None:
        self.console.print(text)

    def _slow_text(self, now: float) -> Text:
        return safe(self._slow.text(now), "dim")

    @abstractmethod
    def _take_step(self, event: Event) -> None:
        """Take an event that is not of calls."""

    @abstractmethod
    def _moving(self) -> RenderableType:
        """Return the part at the bottom of a terminal."""


class LiveDebate(Display):
    """Draws one debate as it happens. What came of it is the report's to say."""

    def __init__(
        self,
        case: Case,
        profile: Profile,
        *,
        console: Console | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        super().__init__(console or open_console(), clock)
        self.case, self.profile = case, profile
        self._certainty: float | None = None
        self._steps: dict[tuple[int, str], _Step] = {}

    def __enter__(self) -> Self:
        self.console.print(self._header())
        return super().__enter__()

    def _take_step(self, event: Event) -> None:
        match event:
            case StepStarted():
                self._begin(event.step, event.details)
            case StepFinished(step="turn", value=Turn() as turn):
                self._steps.pop((turn.round, self._agent(turn)), None)
                self.console.print(self._turn(turn))
            case StepFinished(step="certainty"):
                self._certainty = event.value
            case StepFinished(step="round", value=(r, cv, voters)):
                self._end_round(int(r), float(cv), int(voters))
            case StepFinished(step="debate"):
                self._stop()
                self.console.print()
            case _:
                pass

    def _slow_text(self, now: float) -> Text:
        steps = list(self._steps.values())
        done, total = sum(step.done for step in steps), sum(step.total for step in steps)
        return safe(self._slow.text(now, done, total), "dim")

    def _header(self) -> RenderableType:
        facts = [("Input", safe(wording.shorten(self.case.input, INPUT_SHOWN), "bold"))]
        for j, text in enumerate(self.case.candidates):
            shown = safe(wording.shorten(text, CANDIDATE_SHOWN))
            facts.append((wording.letter(j), shown))
        for name, url in images_by_name(self.case):
            facts.append(("Image", safe(f"{name}: {say_image(url)}")))
        profile = self.profile
        agents = Text(", ").join(
            safe(agent.name, agent_style(i)) for i, agent in enumerate(profile.agents)
        )
        facts.append(("Agents", agents))
        plan = f"{profile.name}: at most {wording.count(profile.rounds, 'round')}"
        plan += f", {profile.protocol}, scores by {profile.readout} {profile.decider or ''}"
        facts.append(("Profile", safe(plan.rstrip())))
        return Group(draw_facts(facts), "")

    def _agent(self, turn: Turn) -> str:
        return self.profile.agents[turn.agent].name

    def _begin(self, step: str, details: Mapping[str, Any]) -> None:
        r, name = int(details.get("round", 0)), str(details.get("agent", ""))
        known = self._steps.get((r, name))
        if step == "probe" and known is not None:
            known.done, known.total = int(details["done"]), int(details["total"])
            return
        text = Text.assemble(f"Round {r + 1} of {self.profile.rounds}  ")
        if step == "summary":
            text.append("the debate so far is being summed up")
            name = ""
        else:
            self._steps.pop((r, ""), None)
            agent = [a.name for a in self.profile.agents].index(name)
            text.append_text(safe(name, f"bold {agent_style(agent)}"))
        self._steps[r, name] = _Step(text, self.clock(), Spinner("dots", style="dim"))

    def _moving(self) -> RenderableType:
        now = self.clock()
        lines: list[RenderableType] = []
        for (_, name), step in list(self._steps.items()):
            line = step.text.copy()
            if step.total:
                line.append(f" is scoring ({step.done} of {step.total})")
            elif name:
                line.append(" is arguing")
            line.append(f"  {wording.duration(now - step.began)}", "dim")
            step.spinner.update(text=line)
            lines.append(step.spinner)
        if slow := self._slow_text(now):
            lines.append(Padding(slow, (0, 0, 0, 2)))
        calls = self.spent.usage.calls + self.spent.replayed
        state = (
            f"  {wording.count(calls, 'call')}, {wording.tokens(self.spent.usage)}, "
            f"{self.spent.cost}, {wording.duration(now - self.began)}"
        )
        return Group("", *lines, Text(state, "dim"))

    def _turn(self, turn: Turn) -> RenderableType:
        style = agent_style(turn.agent)
        plain = self._live is None
        width = self.console.width - (2 if plain else 4)
        body: list[RenderableType] = []
        if turn.failure:
            body.append(safe(f"{turn.failure.kind}: {turn.failure.reason}", "red"))
        if turn.argument:
            argument = safe(turn.argument)
            argument.highlight_regex(r"Response \d+", "bold")
            body.append(argument)
        if turn.scores is not None:
            known = turn_labels(turn, len(self.profile.agents), self.profile.order)
            body += ["", draw_block(turn_table(turn, self.profile, known), self.console, width)]
        title = Text.assemble(
            safe(self._agent(turn), f"bold {style}"), (f", round {turn.round + 1}", style)
        )
        note = safe(_turn_note(turn), "dim")
        if plain:
            return Group(title, Padding(Group(*body, note), (0, 0, 0, 2)), "")
        return Panel(
            Group(*body),
            title=title,
            title_align="left",
            subtitle=note,
            subtitle_align="right",
            border_style="red" if turn.failure else style,
        )

    def _end_round(self, r: int, cv: float, voters: int) -> None:
        profile, last = self.profile, r + 1 == self.profile.rounds
        said = round_text(profile, r, cv, self._certainty, last, voters)
        ended = end_early(profile, r, cv, self._certainty, voters) is not None
        title = Text.assemble((f"Round {r + 1}", "bold"), f"  {said}")
        title.stylize("green" if ended else "")
        self.console.print(Rule(title, style="dim"))
        if not ended and not last:
            self.console.print()


def _turn_note(turn: Turn) -> str:
    parts = [turn.model, wording.duration(turn.seconds), wording.tokens(turn.usage)]
    if turn.parse_mode not in (None, "strict"):
        parts.append("answer read tolerantly" if turn.parse_mode == "tolerant" else "asked twice")
    if turn.memories:
        parts.append(f"{len(turn.memories)} recalled")
    return ", ".join(parts)


class BatchProgress(Display):
    """A batch's progress.

    Call `count` for every result; `total` is None where the number of cases is not known.
    """

    def __init__(
        self,
        total: int | None,
        *,
        console: Console | None = None,
        clock: Clock = time.monotonic,
        every: float = LINE_EVERY,
    ) -> None:
        super().__init__(console or open_console(stderr=True), clock)
        self.total, self.every = total, every
        self.counts = {"scored": 0, "failed": 0, "skipped": 0}
        self._printed = self.began
        self._cases, self._calls, self._tokens = (Pace(self.began) for _ in range(3))
        self._retry, self._retried = "", -math.inf

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self.console.print(Text(self.line(final=True)), soft_wrap=True)

    def __call__(self, event: Event) -> None:
        super().__call__(event)
        if isinstance(event, CallFinished) and not event.replayed:
            now = self.clock()
            self._calls.note(now, max(1, event.usage.calls))
            self._tokens.note(now, event.usage.tokens)
        if isinstance(event, CallFinished | CallSlow | CallHeld | BatchPolled):
            self._print_line(self.clock())

    def _show_retry(self, event: CallRetried) -> None:
        self._retry, self._retried = wording.shorten(event.reason, 160), self.clock()

    def _show_slow(self, text: Text) -> None:
        """It is at the end of the next line."""

    def _take_step(self, event: Event) -> None:
        if isinstance(event, RecordsExpected):
            self.total = event.number

    def count(self, status: str) -> None:
        """Count one more case, or whatever else is worked on, by how it ended."""
        now = self.clock()
        self.counts[status] = self.counts.get(status, 0) + 1
        if self.spent.usage.calls or not self.spent.replayed:
            self._cases.note(now)  # those of a resumed run that ask nothing say nothing of the rest
        self._print_line(now)

    @property
    def done(self) -> int:
        return sum(self.counts.values())

    def seconds_left(self) -> float | None:
        """By the recent pace; None where nothing can be said yet."""
        rate = self._cases.rate(self.clock())
        if self.total is None or rate <= 0:
            return None
        return (self.total - self.done) / rate

    def line(self, *, final: bool = False) -> str:
        """Everything in one line of plain text."""
        now = self.clock()
        parts = [f"{self._of_total()} done"]
        parts += [f"{n:,} {what}" for what, n in self.counts.items() if n and what != "scored"]
        if final:
            parts.append(wording.count(self.spent.usage.calls, "call"))
            parts.append(wording.tokens(self.spent.usage))
        else:
            parts.append(f"{self._calls.rate(now):.1f} calls/s")
            parts.append(f"{self._tokens.rate(now):,.0f} tokens/s")
        parts.append(self.spent.cost)
        if self.spent.replayed:
            parts.append(f"{self.spent.replayed:,} replayed")
        if self.spent.retries:
            parts.append(wording.count(self.spent.retries, "retry").replace("retrys", "retries"))
        parts += filter(None, [wording.other_models(self.spent.usage)])
        left = self.seconds_left()
        if final:
            parts.append(wording.duration(now - self.began))
        elif left is not None:
            parts.append(f"{wording.duration(left)} left")
        if not final:
            parts += filter(None, [self._slow.text(now)])
            if self._retry and self._live is None:
                parts.append(f"last retry: {self._retry}")
        return ", ".join(parts)

    def _of_total(self) -> str:
        return f"{self.done:,}" if self.total is None else f"{self.done:,} of {self.total:,}"

    def _print_line(self, now: float) -> None:
        if self._live is None and now - self._printed >= self.every:
            self._printed = now
            self.console.print(Text(self.line()), soft_wrap=True)

    def _moving(self) -> RenderableType:
        from rich.progress_bar import ProgressBar

        now = self.clock()
        lines: list[RenderableType] = [
            ProgressBar(
                total=self.total,
                completed=self.done,
                width=min(self.console.width, 60),
                pulse=self.total is None,
                animation_time=now,
            ),
            Text(self.line()),
        ]
        if now - self._retried < self.every:
            lines.append(safe(f"last retry: {self._retry}", "dim"))
        return Group(*lines)


class LoopStatus(Display):
    """The step that a loop is at, with a line for each that ended. `quiet`: only retries."""

    def __init__(self, note: Describe, *, quiet: bool = False) -> None:
        super().__init__(open_console(stderr=True), time.monotonic)
        self._note, self._quiet, self._text = note, quiet, ""
        self._spinner = Spinner("dots")

    def __enter__(self) -> Self:
        return self if self._quiet else super().__enter__()

    def _show_slow(self, text: Text) -> None:
        if not self._quiet:
            super()._show_slow(text)

    def _take_step(self, event: Event) -> None:
        if isinstance(event, StepStarted):
            self._text = self._note(event) or self._text
        elif isinstance(event, StepFinished) and (line := self._note(event)) and not self._quiet:
            self.console.print(safe(line))

    def _moving(self) -> RenderableType:
        now = self.clock()
        calls = wording.count(self.spent.usage.calls + self.spent.replayed, "call")
        state = f"{calls}, {self.spent.cost}, {wording.duration(now - self.began)}"
        parts = "; ".join(part for part in (state, self._slow.text(now)) if part)
        self._spinner.update(text=safe(f"{self._text}  {parts}", "dim"))
        return self._spinner


class OneCase:
    """Hears the events of a run over one case: a debate that begins is drawn live."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._live: LiveDebate | None = None

    def __call__(self, event: Event) -> None:
        if isinstance(event, StepStarted) and event.step == "debate" and self._live is None:
            live = LiveDebate(event.details["case"], event.details["profile"])
            self._live = self._stack.enter_context(live)
        elif self._live is not None:
            self._live(event)
            if isinstance(event, StepFinished) and event.step == "debate":
                self._live = None


def open_progress(
    stack: ExitStack, study: AnyStudy, run: RunRecord, *, quiet: bool
) -> tuple[Listener, BatchProgress | None]:
    """A display of the study's events: a line for each step that it notes, or a bar that counts its
    records, where they tell all that there is.

    There are as many records as cases, unless the study says otherwise (`RecordsExpected`). Of a
    single case that is debated the debate itself is shown."""
    if study.note is not no_note:
        return stack.enter_context(LoopStatus(study.note, quiet=quiet)), None
    if study.streams and run.n_cases == 1 and not quiet:
        return OneCase(stack), None
    bar = stack.enter_context(BatchProgress(run.n_cases))
    return bar, bar
