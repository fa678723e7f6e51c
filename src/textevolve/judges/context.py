"""The shared parts of all judges that are no debates: the texts of a case as prompts show them, the
options, and the judgement. The questions of each judge, and how it computes scores from the
answers, are in its own file."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Annotated, Any, ClassVar, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from textevolve.engine.local import gather_bounded
from textevolve.errors import AnswerError, InputError
from textevolve.evaluation import (
    Case,
    EvaluationResult,
    Evaluator,
    Failure,
    Usage,
    attempt,
    check_case,
    empty_default,
    reaches,
    reject_candidate_images,
    settings_of,
    share_scored,
    sum_usage,
)
from textevolve.judges.judge import AskingJudge, Judge, judge_option
from textevolve.judges.opening import Judges
from textevolve.llm.decisions import Answer, Question, decide, predicate
from textevolve.llm.meter import UsageMeter
from textevolve.llm.model import Message, Model, Request, text_hash
from textevolve.llm.prompts import (
    Template,
    draw_nonce,
    fence_with,
    image_rules,
    images_of,
    load_template,
    name_images,
    prompt_versions,
    quote,
    quote_with,
    sanitize,
    user_message,
)
from textevolve.llm.structured import ProseReader, ask_structured, require_text
from textevolve.llm.verdicts import read_log_odds, wire_of, word_request
from textevolve.rows.columns import list_answers
from textevolve.spec import Frozen
from textevolve.texts.prose import join_lines
from textevolve.texts.yaml_lines import load_shipped

Seed: TypeAlias = Annotated[int, Field(ge=-(10**18), le=10**18)]

P = TypeVar("P")
T = TypeVar("T")
A = TypeVar("A", bound=BaseModel)


@cache
def example_turns(question: str) -> tuple[Message, ...]:
    """Return the examples of `prompts/examples.yaml` as chat turns: each asks `question` and is
    answered."""
    text = prompt("question").render(question=question)
    turns: list[Message] = []
    for material, answer in _examples():
        turns += [Message("user", (material, text)), Message("assistant", (answer,))]
    return tuple(turns)


@cache
def example_state(question: str) -> str:
    """Return the examples of `prompts/examples.yaml` as one text, each with `question` and its
    answer, for the beginning of the text that a decision model sees."""
    return "".join(f"{material}{question} {answer}\n\n" for material, answer in _examples())


@cache
def _examples() -> tuple[tuple[str, str], ...]:
    """Return the text of each example as a prompt shows it, with its answer."""
    return tuple(
        (
            prompt("one").render(
                instruction=quote(row["instruction"]), reference="", response=quote(row["response"])
            ),
            row["answer"],
        )
        for row in load_shipped("textevolve.judges", "prompts/examples.yaml")
    )


VERDICT_PROMPTS = ("verdict_label", "criterion")
"""The prompts of rubrics in checks, and of judges with a prompt of the user's."""
LOOKING_PROMPTS = ("investigate", "look", "decide_now")
"""The prompts of the judge that looks into records."""


def prompt(name: str) -> Template:
    return load_template("textevolve.judges", name)


def judge_prompts() -> dict[str, str]:
    """Return the version of each prompt of the judges by its name, and that of their examples."""
    turns = "".join(turn.text for turn in example_turns(""))
    # These are the identity of the judges that have no others.
    apart = prompt_versions("judges", *VERDICT_PROMPTS, *LOOKING_PROMPTS).items()
    versions = dict(prompt_versions("judges").items() - apart)

    return {**versions, "judges.examples": text_hash(turns)[:12]}


ANSWER_TOKENS = 400
"""The limit on each text that a judge writes for itself."""


class CaseOptions(Frozen):
    """The options of a judge that the parameters of a case may set. `seed`: sent with each call,
    and used to draw the marks around texts. `threshold`: the score in [0, 1] from which a text
    passes."""

    seed: Seed = 0
    threshold: Annotated[float, Field(ge=0, le=1)] = 0.5


class StrictAnswer(BaseModel):
    """The base of the answers that a judge asks for as JSON: a field that was not asked for is a
    fault."""

    model_config = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True)
class Judgement:
    """A judge's outcome for one case: a result or a failure for each candidate, in the case's
    order.

    The metadata of a result has `log_odds`, by which candidates are ranked even if their scores are
    near 0 or 1. `coverage`: the share in [0, 1] of the planned calls that gave an answer.
    `details`: further figures of the judge. `certainty`: the probability that the judgement is
    right; None if the judge does not compute it. `certainty` and `feedback` of a cascade are those
    of the judge that decided.
    """

    case: Case
    result: tuple[EvaluationResult | Failure, ...]
    usage: Usage = Usage()
    seconds: float = 0.0
    coverage: float = 1.0
    details: Mapping[str, Any] = empty_default(dict)
    certainty: float | None = None
    feedback: Any = ()


@dataclass(frozen=True, slots=True)
class AnswerOdds:
    """The log-odds of the answers to questions about one text, in the order of the questions.
    `emulated`: whether a chat model stood in for a decision model; None if no typed questions were
    asked. `cut`: the number of characters of the text that did not fit into the model's context."""

    log_odds: tuple[float, ...]
    emulated: bool | None = None
    cut: int = 0

    @property
    def told(self) -> dict[str, Any]:
        """Return `emulated` and `cut` as the metadata of a result."""
        return {} if self.emulated is None else {"emulated": self.emulated, "cut": self.cut}


class JudgeContext:
    """The state of a judge that works on one case: the case's texts between marks, as prompts show
    them, and the calls made for it.

    Attributes:
        seed: Sent with each call, and used to draw the marks around texts.
        threshold: The score from which a text passes.
        rubric: The user's criteria, which replace the judge's questions; empty: none.
        decider: The model that answers questions, if another one writes the texts that it judges.
        concurrency: The most concurrent calls for the case.
        shows_rules: Whether prompts have explicit rules: follow the instruction, be precise, give
            no credit for length.
        shows_reference: Whether the judge sees a reference answer with the response. If the case
            has none, the judge first answers the input itself, in a separate call.
        shows_examples: Whether the model sees six answered examples first.
    """

    def __init__(
        self,
        judge: ModelJudge,
        case: Case,
        model: Model,
        decider: Model | None = None,
        rubric: str = "",
        concurrency: int = 64,
    ) -> None:
        check_case(case)
        options = CaseOptions(**{"seed": judge.seed, **settings_of(case)})
        self.case = case
        self.seed = options.seed
        self.threshold = options.threshold
        self.rubric = rubric
        self.concurrency = concurrency
        # Each judge declares as its fields which of these options it has.
        self.shows_rules = bool(getattr(judge, "rules", False))
        self.shows_reference = bool(getattr(judge, "reference", False))
        self.shows_examples = bool(getattr(judge, "examples", False))
        self.model = UsageMeter(model)
        self.decider = self.model if decider is None else UsageMeter(decider)
        # Whatever the candidates' order, so that what does not depend on it is asked once.
        self.nonce = draw_nonce((case.input, *sorted(case.candidates)), self.seed)

    def fenced(self, name: str, text: str, images: str = "") -> str:
        """Return a text between marks. `images`: the names of the images that belong to it."""
        return fence_with(name, sanitize(text, self.nonce)[0], self.nonce, images)

    def quoted(self, text: str, images: str = "") -> str:
        """Return a text quoted line by line; empty for an empty text."""
        return quote_with(sanitize(text, self.nonce)[0], images) if text else ""

    def system(self, *, quoted: bool = False) -> Message:
        """Return the system message with the judge's rules; `quoted`: for texts that are quoted
        line by line, not fenced by marks."""
        rules = prompt("rules").render(rules=self.shows_rules, quoted=quoted)
        return Message("system", (rules, *image_rules(self.case)))

    def user(self, *parts: str, candidates: Iterable[int] = ()) -> Message:
        """Return a user message of `parts`, with the images of the input and of the given
        candidates."""
        return user_message(self.case, parts, candidates)

    @cached_property
    def instruction(self) -> str:
        return self.fenced("instruction", self.case.input, name_images(self.case))

    @cached_property
    def quoted_instruction(self) -> str:
        return self.quoted(self.case.input, name_images(self.case))

    def response(self, candidate: int, before: tuple[int, ...] = ()) -> str:
        """Return one candidate between marks, for a message that shows the candidates `before`
        first."""
        images = name_images(self.case, candidate, before)
        return self.fenced("response", self.case.candidates[candidate], images)

    def quoted_response(self, candidate: int, before: tuple[int, ...] = ()) -> str:
        images = name_images(self.case, candidate, before)
        return self.quoted(self.case.candidates[candidate], images)

    @cached_property
    def lone_instruction(self) -> str:
        """Return the input between marks that do not depend on the candidates, so that a question
        on the input alone is asked only once for all of them."""
        text, _ = sanitize(self.case.input, self.lone_nonce)
        return fence_with("instruction", text, self.lone_nonce, name_images(self.case))

    @cached_property
    def lone_nonce(self) -> str:
        """Return a code for marks that depends on the input and the seed, and not on the
        candidates."""
        return draw_nonce((self.case.input,), self.seed)

    def show(self, candidate: int, reference: str) -> str:
        """Return the instruction and one candidate, both quoted, with the reference if it is not
        empty."""
        return prompt("one").render(
            instruction=self.quoted_instruction,
            reference=self.quoted(reference),
            response=self.quoted_response(candidate),
        )

    async def reference(self) -> str:
        """Return the case's reference answer, otherwise the judge's own answer; empty if the option
        is off.

        Raises:
            AnswerError: the judge's own answer is empty. ModelError: the call failed.
        """
        if not self.shows_reference:
            return ""
        if self.case.reference is not None:
            answers = list_answers(self.case.reference)
            lead = ("Each of these answers is right:",) if len(answers) > 1 else ()
            return "\n".join((*lead, *answers)).strip()
        text = prompt("answer").render(instruction=self.lone_instruction)
        response = await self.model(self.request((self.user(text),), ANSWER_TOKENS))

        return require_text(response, "the judge's own answer")

    def request(self, messages: tuple[Message, ...], tokens: int) -> Request:
        """Return the request for the likeliest answer of at most so many tokens."""
        return Request(messages=messages, temperature=0.0, max_tokens=tokens, seed=self.seed)

    async def ask(
        self,
        messages: tuple[Message, ...],
        tokens: int,
        answer: type[A],
        read_prose: ProseReader | None = None,
    ) -> A:
        """Ask the model for JSON of the type `answer`, as `ask_structured` does.

        Raises:
            AnswerError: it gave no usable answer. ModelError: a call failed.
        """
        request = self.request(messages, tokens)
        return (await ask_structured(self.model, request, answer, read_prose)).value

    async def choose(self, messages: tuple[Message, ...], letter: str, other: str) -> float:
        """Ask for one word, and return the log-odds of `letter` against `other` as its first
        token."""
        response = await self.decider(word_request(messages, self.seed))
        return read_log_odds(response, letter, other)

    @property
    def decides(self) -> bool:
        """Tell whether the model answers all questions about a state in one request."""
        return wire_of(self.decider) is not None

    @cached_property
    def rules(self) -> str:
        """Return the explicit rules alone, for the place before a question; empty if they are
        off."""
        plain = prompt("rules").render(rules=False, quoted=True)
        rules = self.system(quoted=True).text.removeprefix(plain).strip()
        return f"{rules}\n\n" if rules else ""

    def state(self, *parts: str) -> tuple[str, ...]:
        """Return the state of a decision: the text that the model decides about, with quoted
        material. It does not contain the explicit rules, since models must not follow instructions
        in a state. It has few other words, because some models have short contexts."""
        rules = "".join(image_rules(self.case))
        return (f"{prompt('state').render()}\n{rules}", *parts)

    async def decide(
        self,
        state: tuple[str, ...],
        questions: Mapping[str, Question],
        candidates: Iterable[int] | None = (),
    ) -> tuple[Mapping[str, Answer], AnswerOdds]:
        """Ask all questions about one state in one request. Return the answers by the names of the
        questions, and their log-odds. `candidates`: the candidates whose images are sent with those
        of the input; None: send no images.

        Raises:
            AnswerError: a question has no answer; names it. ModelError: the call failed.
        """
        requests = {
            name: replace(entry, instructions=self.rules + entry.instructions)
            for name, entry in questions.items()
        }
        images = () if candidates is None else images_of(self.case, candidates)
        decision = await decide(
            self.decider, state, tuple(requests.values()), seed=self.seed, images=images
        )
        answers: dict[str, Answer] = {}

        for name, question in requests.items():
            decided = decision.answers[question.name]
            if isinstance(decided, Failure):
                label = join_lines(name)
                raise AnswerError(f"no answer to the question '{label:.200}': {decided.reason}")
            answers[name] = decided

        odds = tuple(answer.log_odds for answer in answers.values())

        return answers, AnswerOdds(odds, decision.emulated, decision.cut)

    async def decide_all(
        self,
        state: tuple[str, ...],
        questions: Sequence[str],
        candidates: Iterable[int] | None,
    ) -> AnswerOdds:
        """Ask several yes / no questions about one state, and return the log-odds of yes for each.

        Raises:
            AnswerError: a question has no answer; names it. ModelError: the call failed.
        """
        predicates = {text: predicate(f"q{n}", text) for n, text in enumerate(questions, 1)}

        return (await self.decide(state, predicates, candidates))[1]

    async def each(
        self, parts: Iterable[P], judge: Callable[[P], Awaitable[T]]
    ) -> list[T | Failure]:
        """Judge all parts concurrently. A part whose calls fail becomes a failure; the others
        continue."""
        return await gather_bounded(
            [lambda part=part: attempt(judge(part)) for part in parts], self.concurrency
        )

    async def each_candidate(self, judge: Callable[[int], Awaitable[T]]) -> list[T | Failure]:
        """Judge all candidates by their indices, like `each`."""
        return await self.each(range(len(self.case.candidates)), judge)

    def result(
        self, score: float, lines: Iterable[str], unseen: int = 0, /, **metadata: Any
    ) -> EvaluationResult:
        """Make a result that passes from the threshold on. `unseen`: characters that the model did
        not see."""
        if unseen:
            note = "characters in the middle of what was to be judged did not fit the model"
            lines = [*lines, f"{unseen} {note} and were left out"]
        feedback = "\n".join(lines)

        return EvaluationResult(score, reaches(score, self.threshold), feedback, metadata)

    def fail(self, failure: Failure) -> Judgement:
        """Return the judgement of a case whose candidates cannot be judged."""
        return self.judgement([failure] * len(self.case.candidates))

    def judgement(
        self, outcomes: Sequence[EvaluationResult | Failure], **details: Any
    ) -> Judgement:
        meters = {self.model, self.decider}
        return Judgement(
            case=self.case,
            result=tuple(outcomes),
            usage=sum_usage(meters),
            seconds=sum(meter.seconds for meter in meters),
            coverage=share_scored(outcomes),
            details=details,
        )


@dataclass(frozen=True)
class ModelJudge(AskingJudge):
    """The base of judges that ask a model. Each subclass implements `judge` for one case, and
    declares its options as fields."""

    seed: Seed = judge_option(0, "sent with each call, and draws the marks around texts")

    @property
    def threshold(self) -> float | None:
        return CaseOptions().threshold

    @property
    def prompts(self) -> dict[str, str]:
        return judge_prompts()

    @property
    def reads_reference(self) -> bool:
        return bool(getattr(self, "reference", False))

    def open(self, bench: Judges, rubric: str) -> Evaluator:
        model = bench.model_of(self.model or bench.model)
        decider_name: str | None = getattr(self, "decider", None)
        decider = None if decider_name is None else bench.model_of(decider_name)

        async def judge_case(case: Case, /) -> Judgement:
            seen = self.show_case(case)
            context = JudgeContext(self, seen, model, decider, rubric, bench.concurrency)
            # If a call for the case as a whole fails, no candidate has a score.
            outcome = await attempt(self.judge(context))
            judgement = context.fail(outcome) if isinstance(outcome, Failure) else outcome
            return replace(judgement, case=case)

        return judge_case

    def show_case(self, case: Case) -> Case:
        """Return the case as prompts show it.

        Raises:
            InputError: the case has not what the judge needs.
        """
        return case

    @abstractmethod
    async def judge(self, context: JudgeContext) -> Judgement:
        """Judge one case."""


@dataclass(frozen=True)
class QuestionJudge(ModelJudge):
    """The base of judges that ask about texts as a whole, by a rubric if there is one. `rubric`: a
    text, or the name of a shipped rubric, or the path of a file after an @."""

    rules: bool = judge_option(default=False, help="explicit rules in the prompts")
    reference: bool = judge_option(default=False, help="show the reference answer")
    rubric: str = judge_option("", "criteria that replace the questions", file=True)


@dataclass(frozen=True)
class DecidedJudge(ModelJudge):
    """The base of judges that let a model write what is judged. `decider`: the model that answers
    the questions about it; None: the same model does both."""

    decider: str | None = judge_option(None, "the model that judges what the main model wrote")

    def __post_init__(self) -> None:
        if self.decider is not None and not self.decider.strip():
            raise InputError(
                f"judge {self.name}: no model is named; name one, as in decider=local/laya"
            )


class PlainJudge(Judge):
    """The base of judges that call no model. Each subclass implements `grade` for one candidate.
    `title`: the judge's name in messages; empty: the name in its text."""

    title: ClassVar[str] = ""

    def open(self, bench: Judges, rubric: str) -> Evaluator:
        return self

    async def __call__(self, case: Case, /) -> Judgement:
        """Grade each candidate of a case without a model.

        Raises:
            InputError: the case or its parameters cannot be used.
        """
        check_case(case)
        reject_candidate_images(case, self.title or self.name)
        threshold = CaseOptions(**settings_of(case)).threshold
        started = time.monotonic()
        outcomes = tuple([await self.grade(case, text, threshold) for text in case.candidates])
        seconds = time.monotonic() - started

        return Judgement(case, outcomes, seconds=seconds, coverage=share_scored(outcomes))

    @abstractmethod
    async def grade(self, case: Case, text: str, threshold: float) -> EvaluationResult | Failure:
        """Grade one candidate."""


def require_field(case: Case, name: str) -> None:
    """Raise InputError if the case lacks a field that a judge needs."""
    if getattr(case, name) is None:
        raise InputError(f"this judge needs a field '{name}', and the case has none")
