"""The data that stay constant during one debate, and the prompts of its turns."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache

from textevolve.debate.profile import STATED, STORED_READOUTS, Agent, Profile
from textevolve.evaluation import Case, empty_default
from textevolve.events import Listener
from textevolve.llm.model import Message, Model
from textevolve.llm.prompts import (
    Template,
    fence_with,
    image_rules,
    load_template,
    name_images,
    prompt_versions,
    quote_with,
    user_message,
)
from textevolve.memory.cue import Recall


def load_prompt(name: str) -> Template:
    return load_template("textevolve.debate", name)


def debate_prompts(profiles: Iterable[Profile] = ()) -> dict[str, str]:
    """Return the version of each prompt that debates of these profiles use by the prompt's name,
    except those that show memories (`memory_prompts`). A readout that is not in use leaves out its
    prompts, so that a change of them makes no other run."""
    left_out = {"memory", "decide", "argue"}
    for profile in profiles:
        if profile.readout == "decide":
            left_out.discard("decide")
        if profile.argue and profile.readout not in STATED:
            left_out.discard("argue")
    versions = _prompt_versions()
    return {name: versions[name] for name in versions if not name.startswith(tuple(left_out))}


def memory_prompts() -> dict[str, str]:
    """Return the versions of the prompts that show an agent's memories by the prompts' names."""
    versions = _prompt_versions()
    return {name: versions[name] for name in versions if name.startswith("memory")}


def _prompt_versions() -> dict[str, str]:
    """Return the versions of all prompts of debates. Stored runs name them without their room."""
    versions = prompt_versions("debate")
    return {name.removeprefix("debate."): version for name, version in versions.items()}


@dataclass(frozen=True)
class DebateContext:
    """The data that stay constant during one debate. `profile`: its readout, the way of obtaining
    scores, is never `auto`. `nonce`: the code in the marks around texts. `labels`: the number of
    each candidate in prompts. `today`: the date in prompts, as YYYY-MM-DD. `rules`: the text of the
    rules. `input` and `candidates`: their texts, sanitized: forged marks are removed. `shown`: the
    rendered texts of input and candidates by the order of the candidates."""

    case: Case
    profile: Profile
    nonce: str
    labels: tuple[int, ...]
    today: str
    model_of: Callable[[Agent], Model]
    recall: Recall
    recalls_all: bool
    listener: Listener
    concurrency: int
    rules: str
    input: str
    candidates: tuple[str, ...]
    shown: dict[tuple[int, ...], str] = empty_default(dict)

    @cached_property
    def listed(self) -> tuple[int, ...]:
        """Return the candidates' indices in the order of their labels. Their images are in this
        order in every turn, even if the texts are in another order."""
        return tuple(sorted(range(len(self.labels)), key=self.labels.__getitem__))

    @cached_property
    def components(self) -> tuple[str, ...]:
        """Return the names of the profile's components."""
        return tuple(component.name for component in self.profile.components)

    @cached_property
    def system(self) -> Message:
        return Message("system", (self.rules, *image_rules(self.case)))

    def user(self, *parts: str) -> Message:
        """Return the message that shows the input and all candidates, with their images."""
        return user_message(self.case, parts, self.listed)

    def opening(self, order: tuple[int, ...]) -> str:
        """Return the text of the input and the candidates, in the given order."""
        if order not in self.shown:
            self.shown[order] = load_prompt("case").render(
                nonce=self.nonce,
                input=fence_with("input", self.input, self.nonce, name_images(self.case)),
                responses=list(map(self.fenced, order)),
            )

        return self.shown[order]

    def fenced(self, candidate: int) -> str:
        """Return one candidate between its marks."""
        listed = self.listed
        label = self.labels[candidate]
        images = name_images(self.case, candidate, listed[: listed.index(candidate)])
        return fence_with(f"response {label}", self.candidates[candidate], self.nonce, images)

    def quoted(self, candidate: int | None = None) -> str:
        """Return one candidate, or the input if it is None, with a quotation sign before each
        line."""
        text = self.input if candidate is None else self.candidates[candidate]
        return quote_with(text, name_images(self.case, candidate))


@dataclass(frozen=True, slots=True)
class DebateMessage:
    """A message of the debate in the two forms in which a turn may see it: between marks, with its
    scores (`marked`), and as a quotation of the argument alone (`quoted`)."""

    marked: str
    quoted: str


@dataclass(frozen=True, slots=True)
class Speech:
    """The data of one agent's turn that are the same for all questions of the turn. `history`: the
    messages that the turn sees. `sample`: the number of the sample, from 0, if the same question is
    asked several times. `decider`: the model that answers with the readout `decide`. `spoken`: the
    arguments that came before, which the agent should not repeat, whether it sees them or not."""

    context: DebateContext
    model: Model
    decider: Model
    speaker: Agent
    history: tuple[DebateMessage, ...]
    sample: int
    spoken: tuple[str, ...] = ()


def read_rules(profile: Profile) -> str:
    described = tuple((c.name, c.meaning, tuple(c.rubric.items())) for c in profile.components)
    # What an agent is asked to say is the same; so is what the journal then has of it.
    rules_name = "after-argument" if profile.readout == "decide" else profile.readout
    return _rules(described, rules_name, profile.rules, profile.argument_words)


_Described = tuple[str, str, tuple[tuple[int, str], ...]]


@lru_cache(maxsize=64)
def _rules(described: tuple[_Described, ...], readout: str, rules: bool, words: int | None) -> str:
    """Render the rules of a debate; the cache shares them among the debates of a run."""
    components = [{"name": n, "meaning": m, "rubric": dict(rubric)} for n, m, rubric in described]
    return load_prompt("rules").render(
        components=components,
        readout=STORED_READOUTS.get(readout, readout),
        rules=rules,
        words=words,
    )
