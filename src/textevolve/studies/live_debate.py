"""Describes a debate while it runs: a report of blocks for each turn and round."""

from __future__ import annotations

from textevolve.debate.profile import Profile
from textevolve.debate.result import Turn
from textevolve.events import Event, StepFinished, StepStarted
from textevolve.report import wording
from textevolve.report.blocks import Block, Note, Report, Transcript, Utterance
from textevolve.studies.debate_words import round_text, turn_labels
from textevolve.studies.judged_report import turn_table


class LiveDebate:
    """Describes the events of one debate: the status of a step that starts, a report of one that
    has ended. What came of the debate is the report of the run."""

    def __init__(self) -> None:
        self._profile: Profile | None = None
        self._certainty: float | None = None

    def __call__(self, event: Event) -> str | Report | None:
        match event:
            case StepStarted(step="debate"):
                self._profile = event.details["profile"]
            case StepStarted(step="turn" | "probe" | "summary"):
                return self._status(event)
            case StepFinished(step="turn", value=Turn() as turn):
                return Report("", "", self._turn(turn))
            case StepFinished(step="certainty"):
                self._certainty = event.value
            case StepFinished(step="round", value=(r, cv, voters)):
                return Report("", "", [self._round(int(r), float(cv), int(voters))])
            case _:
                pass
        return None

    def _status(self, event: StepStarted) -> str:
        doing = "is scoring" if event.step == "probe" else "is arguing"
        if event.step == "summary":
            doing = "the debate so far is being summed up"
        return f"Round {event.details['round'] + 1}  {event.details.get('agent', '')} {doing}"

    def _turn(self, turn: Turn) -> list[Block]:
        assert self._profile is not None
        notes = [f"round {turn.round + 1}", turn.model, wording.duration(turn.seconds)]
        failure = f"{turn.failure.kind}: {turn.failure.reason}" if turn.failure else ""
        name = self._profile.agents[turn.agent].name
        said = Utterance(name, turn.argument, ", ".join(notes), (), failure)
        blocks: list[Block] = [Transcript("", [said])]
        if turn.scores is not None:
            known = turn_labels(turn, len(self._profile.agents), self._profile.order)
            blocks.append(turn_table(turn, self._profile, known))
        return blocks

    def _round(self, r: int, cv: float, voters: int) -> Note:
        assert self._profile is not None
        text = round_text(self._profile, r, cv, self._certainty, voters)
        return Note(f"Round {r + 1}: {text}", "strong")
