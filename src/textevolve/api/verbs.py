"""The verbs, such as `evaluate` and `compare`, as async methods of `AsyncClient`. `Client` wraps
each of them in a method that waits for the result."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack

from pydantic import BaseModel

from textevolve.api.opener import (
    AnyJudge,
    AskedModel,
    AskedTarget,
    Opener,
    Rows,
    opened,
    specify,
    split_rows,
)
from textevolve.api.results import (
    CaseResult,
    JudgeOptions,
    Objects,
    attach_run,
    list_images,
    take_candidates,
)
from textevolve.api.verb_options import (
    BatchOptions,
    CalibrateOptions,
    ChainOptions,
    ChatOptions,
    CompareOptions,
    CreationOptions,
    EvaluationOptions,
    EvolutionOptions,
    FitOptions,
    GuideOptions,
    InnovateOptions,
    IntegrationOptions,
    LabelOptions,
    MemoryEvaluationOptions,
    OptimizeOptions,
    ProfileOptions,
    ReadingOptions,
    SummaryOptions,
    takes_options,
)
from textevolve.errors import InputError
from textevolve.evaluation import IMAGE_ALONE, Case, Results, check_case
from textevolve.mappings import drop_none
from textevolve.memory.cue import Recall, nothing
from textevolve.rows.images import ImageLike, read_images

if TYPE_CHECKING:
    from textevolve.agents.chat import AgentChat
    from textevolve.api.namespaces import AsyncNamespace
    from textevolve.api.runs import AsyncRuns
    from textevolve.debate.profile import Profile
    from textevolve.llm.chains.chain import Chain
    from textevolve.loops.attempt import Generator
    from textevolve.loops.calibration.plan import CalibrationResult
    from textevolve.loops.optimization import Optimization
    from textevolve.memory_eval.evaluation import MemoryEvaluation
    from textevolve.metrics.plain import LabelMetric
    from textevolve.node_eval.history import History
    from textevolve.rows.cases import CaseLike
    from textevolve.runs.study import StudySpec
    from textevolve.store.runs import RunRecord
    from textevolve.studies.chain import ChainRuns
    from textevolve.studies.compare import Comparison
    from textevolve.studies.guide import GuidedAnswer
    from textevolve.studies.innovate import Innovated
    from textevolve.studies.labels.fit import FittedSignals
    from textevolve.studies.memories.create import Creation, DialogueLike
    from textevolve.studies.memories.evolve_persona import EvolvedPersona
    from textevolve.studies.memories.integrate import Integration
    from textevolve.studies.memories.read_corpus import DocumentReading
    from textevolve.studies.profile import GeneratedProfile
    from textevolve.studies.summarize import Summary


class AsyncClient(Opener):
    """The verbs, such as `evaluate` and `compare`, as async methods. Model calls that were made
    before are answered from the store; the program's own functions are called again. All verbs may
    raise:

            InputError: a text, a file, a judge or a number cannot be used.
            SettingsError: the requested model is not available.
            FatalModelError: no call can succeed; all answers so far are stored.
            StoreError: the store cannot be used.
    """

    @property
    def runs(self) -> AsyncRuns:
        """The stored runs: list, read, compare, export and resume them."""
        return opened.AsyncRuns(self)

    async def run(
        self,
        spec: StudySpec,
        *,
        cases: Iterable[Any] | None = None,
        objects: Mapping[str, object] = {},
        name: str = "",
    ) -> Any:
        """Run any study from its specification, and return its result.

        `cases`: rows, cases or texts, used instead of the specification's files. `objects`: the
        program's Python objects, by their names in the specification.
        """
        return await self._run(spec, cases=cases, objects=objects, name=name)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_raised: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the client without blocking the event loop."""
        await asyncio.to_thread(self.close)

    @takes_options(EvaluationOptions)
    async def evaluate(
        self,
        input: str,
        candidates: str | Iterable[str],
        *,
        judge: AnyJudge | Iterable[AnyJudge] | None = None,
        recall: Recall = nothing,
        images: Iterable[ImageLike] = (),
        candidate_images: Iterable[ImageLike | Sequence[ImageLike]] = (),
        name: str = "",
        **options: Unpack[EvaluationOptions],
    ) -> CaseResult:
        """Judge candidates by a debate, or by another `judge`, and return scores and feedback. Of
        several judges the result is that of the first; `by_judge` has all.

        `profile`: the agents, components and rules of the debate. `agents`: stored agents that
        replace the profile's, each NAMESPACE/NAME or NAME. `rounds`, `weights` and `threshold`
        override the profile; `judge=Debate(...)` takes its other parameters. `recall`: a function
        that recalls the agents' memories. `images`: the images of the input, each a path, bytes or
        a data URL. `candidate_images`: one image, or a list, for each candidate; without texts the
        images are the candidates.
        """
        objects = Objects()
        spec = _specify_evaluation(objects, judge, recall, options)
        of_each = tuple(
            read_images(image, f"image of candidate {n}")
            for n, image in enumerate(list_images("candidate_images", candidate_images), 1)
        )
        case = Case(
            input,
            take_candidates(candidates) or (IMAGE_ALONE,) * len(of_each),
            "1",
            images=read_images(list_images("images", images), "images"),
            candidate_images=of_each,
        )
        check_case(case)
        run_records = self._open_run(spec, [case], objects.by_name, name=name, ends=True)
        async with run_records as (run, records):
            case_records = [record async for record in records]

        return _as_result(run, *case_records)

    @takes_options(BatchOptions)
    async def evaluate_batch(
        self,
        cases: Iterable[CaseLike],
        *,
        judge: AnyJudge | Iterable[AnyJudge] | None = None,
        recall: Recall = nothing,
        ordered: bool = False,
        target: AskedTarget | None = None,
        name: str = "",
        **options: Unpack[BatchOptions],
    ) -> AsyncGenerator[CaseResult]:
        """Judge many cases, and yield their results as they finish (`result.index` is the position
        of the case), or in the order of the cases if `ordered`. Several judges give a result each
        (`result.judge`).

        Cases are read lazily, once. A case that cannot be judged becomes a result with the reason,
        and the others are judged. Parameters of a case override the run's. `target`: your
        application, which answers the inputs, as in `compare`. `map`: the old names of renamed
        columns, by their new names.
        """
        if cases is None:  # pyright: ignore[reportUnnecessaryComparison]
            raise InputError("cases must be a list or another iterable of cases, not None")
        objects = Objects()
        fields = {**options, "target": objects.name(target)}
        spec = _specify_evaluation(objects, judge, recall, fields)
        run_records = self._open_run(spec, cases, objects.by_name, name=name, ordered=ordered)
        async with run_records as (run, records):
            async for record in records:
                yield _as_result(run, record)

    @takes_options(CompareOptions)
    async def compare(
        self,
        data: Rows,
        prompts: Mapping[str, Any] | Sequence[Any] = (),
        *,
        models: AskedModel | Iterable[AskedModel] = (),
        targets: AskedTarget | Iterable[AskedTarget] = (),
        metric: str | LabelMetric | Iterable[str | LabelMetric] = (),
        judge: AnyJudge | Iterable[AnyJudge] = (),
        name: str = "",
        **options: Unpack[CompareOptions],
    ) -> Comparison:
        """Run prompts and models over rows, score every output, and say which is better.

            comparison = client.compare("rows.csv", {"short": "Sum: {a} + {b}"}, label="sum",
                                        models=["openai/gpt-6-luna"], metric="exact")
            comparison.sentence, comparison.variants[0].mean, comparison.to_frame()

        `prompts`: templates by their names, or a list of templates, files (`Path`, or "@FILE") and
        fields; a list of messages with `role` and `content` is a chat. `models`: models by their
        specs, or chains, whose inputs are columns. `targets`: your applications, by address, by
        file, as fields, or a function of a row. `outputs`: columns with existing outputs.
        `metric`, `judge`: one or several, by name or your own; with neither a single judge scores.
        """
        objects = Objects()
        file, rows = split_rows(data)

        return await self._run_kind(
            "compare",
            name,
            rows,
            objects,
            prompts=prompts,
            data=file,
            models=objects.name_all(models),
            targets=objects.name_all(targets),
            metric=objects.name_all(metric),
            judge=objects.name_all(judge),
            **options,
        )

    @takes_options(CalibrateOptions)
    async def calibrate(
        self,
        template: str | Chain | Callable[..., Any] | Any = "",
        data: Rows = (),
        *,
        templates: Mapping[str, str] | None = None,
        judge: AnyJudge | None = None,
        metric: str | LabelMetric | None = None,
        model: AskedModel | None = None,
        name: str = "",
        **options: Unpack[CalibrateOptions],
    ) -> CalibrationResult:
        """Search for a better template. `.template` of the result is the template to use: the
        original, unless another one has a significant gain on held-out rows.

            client.calibrate("Letters of {word}?", rows, label="letters", metric="numeric")
            client.calibrate(chain, "rows.csv", label="label", metric="exact")
            client.calibrate(program, rows, templates={"draft": "...", "check": "..."}, metric=f)

        `template`: a prompt or a program. A program is a chain, a function of prompts and a row, a
        LangGraph graph, or a DSPy module. Of a chain all templates are improved, or only the one of
        `step`; a function or a graph needs `templates`: the initial texts by name, or a
        `PromptSet`. With neither `judge` nor `metric` a single judge scores.
        """
        objects = Objects()
        file, rows = split_rows(data)
        texts, program = (template, None) if isinstance(template, str) else ("", template)

        if texts and templates is not None:
            raise InputError(
                "give template as a text, or a program and its templates, but not a text and"
                " templates"
            )

        spec = specify(
            "calibrate",
            template=texts or templates,
            program=objects.name(program),
            data=file,
            judge=objects.name(judge),
            metric=objects.name(metric),
            model=objects.name(model),
            **options,
        )
        if rows is None and objects.by_name:
            rows = file  # the file is read with what the program put in

        return await self._run(spec, cases=rows, objects=objects.by_name, name=name)

    @takes_options(OptimizeOptions)
    async def optimize(
        self,
        task: str,
        *,
        judge: AnyJudge | None = None,
        second_judge: AnyJudge | None = None,
        generator: str | Generator | None = None,
        model: AskedModel | None = None,
        name: str = "",
        **options: Unpack[OptimizeOptions],
    ) -> Optimization:
        """Write a text for a task, and improve it until a judge's score reaches the threshold or
        stops rising. Return all attempts; `.output` of the result is the best one.

        `judge`: a judge's spec such as `probe+rules`, or any `Evaluator`, such as `Rules`.
        `generator`: a `Generator` that replaces the model. `model`: a model's spec, or a chain
        whose only input is the prompt.
        """
        objects = Objects()
        (optimization,) = await self._run_kind(
            "optimize",
            name,
            [task],
            objects,
            task=task,
            judge=objects.name(judge),
            second_judge=objects.name(second_judge),
            generator=objects.name(generator),
            model=objects.name(model),
            **options,
        )

        return optimization

    @takes_options(InnovateOptions)
    async def innovate(
        self,
        input: str,
        judge: AnyJudge = "debate",
        *,
        name: str = "",
        **options: Unpack[InnovateOptions],
    ) -> Innovated:
        """Refine an input by a judge's feedback on the model's outputs for it, as long as their
        scores rise. The best refined input is accepted only if newly drawn outputs are
        significantly better too, unless `fresh` is 0."""
        objects = Objects()
        return await self._run_kind(
            "innovate",
            name,
            None,
            objects,
            input=input,
            judge=objects.name(judge),
            **options,
        )

    @takes_options(GuideOptions)
    async def guide(
        self,
        question: str,
        *,
        candidates: Iterable[str] = (),
        profile: str | Path | Profile | None = None,
        debate: Mapping[str, Any] | None = None,
        recall: str | Recall = nothing,
        name: str = "",
        **options: Unpack[GuideOptions],
    ) -> GuidedAnswer:
        """Answer a question twice: with a debate about `candidates` as reasoning in the prompt, and
        without it. `debate`: parameters that override the profile's."""
        objects = Objects()
        return await self._run_kind(
            "guide",
            name,
            None,
            objects,
            question=question,
            candidates=tuple(candidates),
            profile=str(profile) if isinstance(profile, str | Path) else None,
            debate={**_lay_out(profile), **(debate or {})},
            recall=None if recall is nothing else objects.name(recall),
            **options,
        )

    @takes_options(ProfileOptions)
    async def generate_profile(
        self,
        subject: str,
        *,
        name: str = "",
        **options: Unpack[ProfileOptions],
    ) -> GeneratedProfile:
        """Have a model write a profile (agents and rules of a debate) for judging `subject`.

        Raises:
            AnswerError: the model wrote no usable profile in two attempts; the message says what
                was wrong.
        """
        generated: GeneratedProfile = await self._run_kind(
            "profile", name, subject=subject, **options
        )
        generated.require()

        return generated

    @takes_options(SummaryOptions)
    async def summarize(
        self,
        texts: str | Iterable[str],
        budget: int = 400,
        *,
        name: str = "",
        **options: Unpack[SummaryOptions],
    ) -> Summary:
        """Write one summary of all texts, in at most `budget` tokens. Texts that fit into the
        budget are returned unchanged, without a call. `context`: the most tokens that the model can
        read.

        Raises:
            AnswerError: the model summarised no part of the text.
            BudgetError: a limit was reached first.
        """
        summary: Summary = await self._run_kind(
            "summarize",
            name,
            [texts] if isinstance(texts, str) else texts,
            budget=budget,
            **options,
        )
        summary.require()

        return summary

    @takes_options(FitOptions)
    async def fit_judge(
        self,
        items: Rows,
        signals: str | Iterable[str] = (),
        *,
        output: str | Path | None = None,
        name: str = "",
        **options: Unpack[FitOptions],
    ) -> FittedSignals:
        """Fit a judge to people's labels, and measure how well it agrees with them.

            fitted = client.fit_judge("labels.jsonl", ["probe", "length"], output="my.judge")
            client.evaluate(instruction, [first, second], judge="my.judge")

        `items`: a file of labelled items, or the rows themselves. `signals`: the judges to combine,
        by their names, and `length`. `output`: the file to which the judge is written.
        """
        file, rows = split_rows(items)
        spec = specify(
            "fit",
            items=(file,) if file else None,
            signals=signals if isinstance(signals, str) else ",".join(signals),
            **options,
        )
        if output is not None:
            opened.check_name(output)
        fitted: FittedSignals = await self._run(spec, cases=rows, name=name)
        if output is not None:
            fitted.save(str(output))

        return fitted

    @takes_options(MemoryEvaluationOptions)
    async def evaluate_memory(
        self,
        data: str | Path,
        system: str | object,
        *,
        judge: AnyJudge | None = None,
        name: str = "",
        **options: Unpack[MemoryEvaluationOptions],
    ) -> MemoryEvaluation:
        """Feed the sessions of a data set to a memory system, and judge which points it stored,
        invented and updated, and its answers.

        `system`: as on the command line (`context`, `http://...`, `mem0`, ...), or an object with
        `add` and `search`, sync or async. An object is identified by the name of its class: set
        another `fresh` after changes of its code.
        """
        objects = Objects()

        return await self._run_kind(
            "memory-eval",
            name,
            None,
            objects,
            data=str(data),
            system=objects.name(system),
            judge=objects.name(judge),
            **options,
        )

    @takes_options(CreationOptions)
    async def create_memories(
        self,
        dialogues: str | Path | Iterable[DialogueLike],
        collection: str,
        *,
        name: str = "",
        **options: Unpack[CreationOptions],
    ) -> Creation:
        """Make memories of dialogues, and store them in a collection, NAME or NAMESPACE/NAME.

        `dialogues`: a file or folder, or lists of messages (`{"role": ..., "content": ...}`, with
        an optional `timestamp`); a single list of messages is one dialogue. A repeated dialogue
        adds nothing; of a continued one only the new turns are read.
        """
        file, rows = split_rows(dialogues)

        return await self._run_kind(
            "create-memories",
            name,
            rows,
            data=file or "from Python",
            collection=collection,
            **options,
        )

    @takes_options(IntegrationOptions)
    async def integrate_memories(
        self,
        agent: str,
        *,
        name: str = "",
        **options: Unpack[IntegrationOptions],
    ) -> Integration:
        """Draw insights from an agent's memories (reflection) if the importance of its new memories
        adds up to `threshold`, or with `always` if there is any new memory. `agent`: NAME or
        NAMESPACE/NAME."""
        return await self._run_kind(
            "integrate-memories",
            name,
            agent=agent,
            **options,
        )

    @takes_options(ReadingOptions)
    async def read_corpus(
        self,
        files: str | Sequence[str],
        *,
        collection: str,
        name: str = "",
        **options: Unpack[ReadingOptions],
    ) -> Results[DocumentReading]:
        """Read documents into a collection, with a memory for each chunk. Chunks that have not
        changed since an earlier call stay as they are.

        Raises:
            ConflictError: somebody else changed a document's memories meanwhile.
        """

        return await self._run_kind(
            "read-corpus",
            name,
            files=(files,) if isinstance(files, str) else tuple(files),
            collection=collection,
            **options,
        )

    @takes_options(EvolutionOptions)
    async def evolve_persona(
        self,
        agent: str,
        *,
        name: str = "",
        **options: Unpack[EvolutionOptions],
    ) -> EvolvedPersona:
        """Change an agent's persona by a few small edits that its memories support. `propose`: only
        return the edits, without storing the new persona.

        Raises:
            ConflictError: the persona was changed meanwhile.
        """

        return await self._run_kind(
            "evolve-persona",
            name,
            agent=agent,
            **options,
        )

    @takes_options(LabelOptions)
    async def compare_quants(
        self,
        original: str | Path,
        quants: Iterable[str | Path],
        data: Rows,
        prompts: Mapping[str, Any] | Sequence[Any] | None = None,
        *,
        metric: str | LabelMetric | Iterable[str | LabelMetric] = (),
        judge: AnyJudge | Iterable[AnyJudge] = (),
        name: str = "",
        **options: Unpack[LabelOptions],
    ) -> Comparison:
        """Compare quantised models with their original on rows, as `compare` does, and return the
        comparison. Without `prompts` the models receive the column `input`.

            client.compare_quants("m-f16.gguf", ["m-q8_0.gguf"], "rows.csv", metric="exact")
        """
        objects = Objects()
        file, rows = split_rows(data)

        return await self._run_kind(
            "compare-quants",
            name,
            rows,
            objects,
            original=str(original),
            quants=tuple(map(str, quants)),
            data=file,
            prompts=prompts,
            metric=objects.name_all(metric),
            judge=objects.name_all(judge),
            **options,
        )

    @takes_options(ChainOptions)
    async def run_chain(
        self,
        chain: object,
        values: Mapping[str, Any] | None = None,
        *,
        data: Rows | None = None,
        name: str = "",
        **options: Unpack[ChainOptions],
    ) -> ChainRuns:
        """Run a chain once on `values`, or on each row of `data`, and store outputs and traces.

            chains = client.run_chain(chain, {"question": "..."})
            chains.runs[0].outputs["answer"], chains.runs[0].trace

        A run that fails has a `failure` instead of outputs.
        """
        objects = Objects()
        file, rows = split_rows(() if data is None else data)
        chain_spec = chain if isinstance(chain, str | Path) else opened.find_chain(chain)
        if values is not None or data is None:
            rows = [values or {}]
        elif rows is None:
            rows = file  # the file is read with a chain that the program put in

        return await self._run_kind(
            "chain",
            name,
            rows,
            objects,
            chain=str(chain_spec) if isinstance(chain_spec, Path) else objects.name(chain_spec),
            data=file,
            **options,
        )

    async def keep_history(self, history: History, *, name: str = "", episode: str = "") -> str:
        """Store the history that a monitor of an agent's nodes recorded as a run, with the results
        of its evaluators so far, and return the run's id, for `textevolve runs show`. Drain the
        monitor first (wait for its evaluations). Each run of the agent becomes an episode under its
        own id, or under `episode`. Storing the same history again gives the same run."""
        return (await self._run_kind("nodes", name, [(history, episode)])).run

    @takes_options(ChatOptions)
    @asynccontextmanager
    async def chat(
        self,
        agent: str,
        **options: Unpack[ChatOptions],
    ) -> AsyncGenerator[AgentChat]:
        """Open a chat with an agent, NAMESPACE/AGENT. `say` yields events as they come: recalled
        memories, pieces of the answer, and finally a `ChatAnswer`. At the end of the block memories
        are made from all turns; after an error in the block they are made when the next chat with
        the agent begins. `memory`: recall memories, and make new ones.

        Raises:
            InputError: there is no such agent or session.
        """
        async with opened.open_chat(self, agent, options) as chat:
            yield chat
            await chat.finish()

    @asynccontextmanager
    async def namespace(
        self, name: str | None = None, *, create: bool = False
    ) -> AsyncGenerator[AsyncNamespace]:
        """Open a namespace, by default the one of the settings, which is created if it does not
        exist. `create`: create any other namespace, too.

        Raises:
            InputError: there is no such namespace.
        """
        async with opened.open_namespace(self, name, create=create) as space:
            yield space


def _specify_evaluation(
    objects: Objects,
    judge: AnyJudge | Iterable[AnyJudge] | None,
    recall: Recall,
    options: Mapping[str, Any],
) -> Any:
    of_judge = {"judge": objects.name_all(judge)}
    if isinstance(judge, JudgeOptions):  # a debate keeps its arguments if it is the only judge
        of_judge = judge.fields
    profile = options.get("profile")
    overrides = {
        **options,
        "profile": str(profile) if isinstance(profile, Path) else profile,
        "recall": None if recall is nothing else objects.name(recall),
    }

    return specify("evaluate", **of_judge | drop_none(overrides))


def _lay_out(profile: str | Path | Profile | None) -> dict[str, Any]:
    return profile.model_dump(mode="json") if isinstance(profile, BaseModel) else {}


def _as_result(run: RunRecord, *records: Any) -> CaseResult:
    """Return the result of a case from its record, or from those of several judges."""
    record = records[0]
    debate = record if hasattr(record, "turns") else None
    by_judge: dict[str, CaseResult] = {}
    if len(records) > 1:
        by_judge = {each.judge: _as_result(run, each) for each in records}

    return attach_run(CaseResult(record, run.id, debate, by_judge), run, records)
