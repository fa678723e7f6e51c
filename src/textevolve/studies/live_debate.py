"""A debate told while it goes on, as a report of blocks for each event."""

from __future__ import annotations

from textevolve.debate.profile import Profile
from textevolve.debate.result import Turn
from textevolve.evaluation import Case
from textevolve.events import Event, StepFinished, StepStarted
from textevolve.report import wording
from textevolve.report.blocks import Block, Note, Report, Transcript, Utterance
from textevolve.report.images import say_image
from textevolve.studies.debate_words import round_text, turn_labels
from textevolve.studies.judged_report import images_by_name, turn_table

INPUT_SHOWN, CANDIDATE_SHOWN = 600, 200


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
                return _introduce(event.details["case"], event.details["profile"])
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
        details, profile = event.details, self._profile
        rounds = "" if profile is None else f" of {profile.rounds}"
        doing = {
            "turn": "is arguing",
            "probe": f"is scoring ({details.get('done')} of {details.get('total')})",
            "summary": "the debate so far is being summed up",
        }[event.step]
        return f"Round {details['round'] + 1}{rounds}  {details.get('agent', '')} {doing}"

    def _turn(self, turn: Turn) -> list[Block]:
        assert self._profile is not None
        notes = [f"round {turn.round + 1}", turn.model, wording.duration(turn.seconds)]
        notes.append(wording.tokens(turn.usage))
        if turn.memories:
            notes.append(f"{len(turn.memories)} recalled")
        failure = f"{turn.failure.kind}: {turn.failure.reason}" if turn.failure else ""
        name = self._profile.agents[turn.agent].name
        said = Utterance(name, turn.argument, ", ".join(notes), (), failure)
        blocks: list[Block] = [Transcript("", [said])]
        if turn.scores is not None:
            known = turn_labels(turn, len(self._profile.agents), self._profile.order)
            blocks.append(turn_table(turn, self._profile, known))
        return blocks

    def _round(self, r: int, cv: float, voters: int) -> Note:
        profile = self._profile
        assert profile is not None
        text = round_text(profile, r, cv, self._certainty, voters)
        return Note(f"Round {r + 1}: {text}", "strong")


def _introduce(case: Case, profile: Profile) -> Report:
    facts = {"Input": wording.shorten(case.input, INPUT_SHOWN)}
    for j, text in enumerate(case.candidates):
        facts[wording.letter(j)] = wording.shorten(text, CANDIDATE_SHOWN)
    facts |= {name: say_image(url) for name, url in images_by_name(case)}
    facts["Agents"] = ", ".join(agent.name for agent in profile.agents)
    plan = f"at most {wording.count(profile.rounds, 'round')}, {profile.protocol}"
    facts["Profile"] = f"{profile.name}: {plan}, scores by {profile.readout}"
    if profile.decider:
        facts["Profile"] += f" {profile.decider}"
    return Report("", "", [], facts)
