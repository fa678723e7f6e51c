"""Generate a profile, innovate, guide, async and sync; and judges as metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from textevolve.api.persistent_judge import PersistentJudge
from textevolve.api.running import Objects, arun, in_sync, split_keywords, takes_fields
from textevolve.debate.profile import Profile
from textevolve.evaluation import Evaluator
from textevolve.loops.metrics import Metric, Pick
from textevolve.loops.scoring import as_evaluator
from textevolve.memory.cue import Recall, nothing
from textevolve.settings import Settings, read_settings, store_location
from textevolve.studies.guide import GuidedAnswer, GuideSpec
from textevolve.studies.innovate import Innovated, InnovateSpec
from textevolve.studies.profile import GeneratedProfile, ProfileSpec
from textevolve.wiring import Limits


@takes_fields(InnovateSpec)
async def ainnovate(input: str, judge: str | Evaluator = "debate", **fields: Any) -> Innovated:
    """Refine an input by what a judge says of its outputs, for as long as their scores rise.

    `judge`: a judge's spec, or an evaluator. The other names are those of `InnovateSpec` and
    `RunKeywords`. The same call again is answered from the store, but for what an evaluator of your
    own does.

    Raises:
        InputError: the input, the judge or a number cannot be used.
        FatalModelError: no call can succeed.
    """
    objects = Objects()
    own, keywords = split_keywords(InnovateSpec, fields)
    spec = InnovateSpec(input=input, judge=objects.name(judge) or "debate", **own)
    return await arun(spec, objects=objects, **keywords)


@takes_fields(GuideSpec)
async def aguide(
    question: str,
    *,
    candidates: Iterable[str] = (),
    profile: str | Path | Profile | None = None,
    judge: str | Evaluator | None = None,
    debate: Mapping[str, Any] | None = None,
    recall: str | Recall = nothing,
    **fields: Any,
) -> GuidedAnswer:
    """Answer a question with a debate about `candidates` as reasoning in the prompt, and without.

    `debate` sets parameters of the profile, `judge` judges both answers. The other names are those
    of `GuideSpec` and `RunKeywords`. The same call again is answered from the store.

    Raises:
        InputError: the question, a candidate, the profile or a number cannot be used.
        FatalModelError: no call can succeed.
    """
    objects = Objects()
    own, keywords = split_keywords(GuideSpec, fields)
    own_profile = isinstance(profile, Profile)
    spec = GuideSpec(
        question=question,
        candidates=tuple(candidates),
        profile=None if own_profile or profile is None else str(profile),
        debate={**(_laid_out(profile) if own_profile else {}), **(debate or {})},
        judge=objects.name(judge),
        recall=None if recall is nothing else objects.name(recall),
        **own,
    )
    return await arun(spec, objects=objects, **keywords)


def _laid_out(profile: Profile) -> dict[str, Any]:
    return profile.model_dump(mode="json")


@takes_fields(ProfileSpec)
async def agenerate_profile(subject: str, **fields: Any) -> GeneratedProfile:
    """A profile for judging `subject`, written by a model. The same call again is answered from
    the store. The names are those of `ProfileSpec` and `RunKeywords`.

    Raises:
        InputError: nothing is to be judged, or the number of agents is not 2 to 12.
        AnswerError: no usable profile came in two attempts; says what was wrong.
        BudgetError: a limit was reached before.
    """
    own, keywords = split_keywords(ProfileSpec, fields)
    found: GeneratedProfile = await arun(ProfileSpec(subject=subject, **own), **keywords)
    found.require()
    return found


innovate = in_sync(ainnovate)
guide = in_sync(aguide)
generate_profile = in_sync(agenerate_profile)


def as_metric(
    judge: str | Evaluator,
    *,
    input: Pick = None,
    output: Pick = None,
    threshold: float | None = None,
    missing: float | None = None,
    model: str | None = None,
    store: str | Path | None = None,
    limits: Limits = Limits(),
    settings: Settings | None = None,
) -> Metric:
    """A judge as a metric for DSPy, GEPA and plain Python; see `Metric`.

    `judge`: a judge's spec, such as "probe+rules", or an evaluator. One that is named by its spec
    stays open until the metric is closed: use `with`, or leave it to the end of the program.

    Raises:
        InputError: the judge, or a number, cannot be used.
    """
    if not isinstance(judge, str):
        return Metric(as_evaluator(judge), input, output, threshold, missing)
    settings = settings or read_settings({"model": model, "store": store})[0]
    opened = PersistentJudge(
        judge, settings, store_location(store or settings.store), model=model, limits=limits
    )
    return Metric(opened, input, output, threshold, missing, opened.close)
