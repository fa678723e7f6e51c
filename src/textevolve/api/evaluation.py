"""`evaluate` and its batch, async and sync: a debate over candidates, or any other judge."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from textevolve.api.running import (
    Objects,
    RunKeywords,
    arun,
    astream,
    in_sync,
    in_sync_iterator,
    split_keywords,
    takes_fields,
)
from textevolve.debate.profile import Profile
from textevolve.errors import InputError
from textevolve.evaluation import IMAGE_ALONE, Case, Evaluator, check_case
from textevolve.memory.cue import Recall, nothing
from textevolve.rows.cases import CaseLike, check_iterable
from textevolve.rows.images import ImageLike, ImageReading, read_images
from textevolve.studies.case_rows import image_reading
from textevolve.studies.evaluate_spec import EvaluateSpec, name_none

if TYPE_CHECKING:
    from textevolve.studies.evaluation_report import Evaluations
    from textevolve.studies.judged_report import Judged


@takes_fields(EvaluateSpec)
async def aevaluate(
    input: str,
    candidates: Iterable[str],
    *,
    judge: str | Evaluator | None = None,
    profile: str | Path | Profile | None = None,
    recall: Recall = nothing,
    images: Iterable[ImageLike] = (),
    candidate_images: Iterable[ImageLike | Sequence[ImageLike]] = (),
    **fields: Any,
) -> Judged:
    """A `DebateResult` over the candidates; with another `judge` a `JudgedCase`.

    `images`: those of the input, each a path, bytes or a data URL; `candidate_images`: one for each
    candidate, or several, and where there are no texts they are the candidates.

    The other names are those of `EvaluateSpec`, all of a debate's parameters among them, and of
    `RunKeywords`. The same call again is answered from the store; at the same time in this process,
    once the first has ended.

    Raises:
        InputError: input, candidates, profile, judge or a parameter cannot be used.
        SettingsError: no model can be had as asked.
        FatalModelError: the model's endpoint refuses every call.
    """
    spec, objects, keywords = _specify(judge, profile, recall, fields)
    case = Case(input, _take_candidates(candidates), "1")
    case = _with_images(case, images, candidate_images, image_reading(spec))
    check_case(case)
    found: Evaluations = await arun(spec, cases=[case], objects=objects, **keywords)
    (result,) = found.chosen
    return result


def _with_images(
    case: Case,
    images: Iterable[ImageLike],
    candidate_images: Iterable[ImageLike | Sequence[ImageLike]],
    reading: ImageReading,
) -> Case:
    of_each = tuple(
        read_images(one, f"image of candidate {n}", reading)
        for n, one in enumerate(_several("candidate_images", candidate_images), 1)
    )
    return replace(
        case,
        candidates=case.candidates or (IMAGE_ALONE,) * len(of_each),
        images=read_images(_several("images", images), "images", reading),
        candidate_images=of_each,
    )


def _several(name: str, given: Iterable[Any]) -> list[Any]:
    if isinstance(given, str | bytes | os.PathLike):
        raise InputError(f"{name} must be a list of images, not one of them")
    return list(given)


def _take_candidates(given: object) -> tuple[str, ...]:
    if isinstance(given, str):
        return (given,)
    if isinstance(given, Iterable) and not isinstance(given, Mapping | bytes):
        return tuple(cast("Iterable[str]", given))
    kind: str = type(cast(object, given)).__name__
    raise InputError(f"candidates must be a list of texts, or one text, not {kind}")


@takes_fields(EvaluateSpec)
async def aevaluate_batch(
    cases: Iterable[CaseLike],
    *,
    judge: str | Evaluator | None = None,
    profile: str | Path | Profile | None = None,
    recall: Recall = nothing,
    ordered: bool = False,
    **fields: Any,
) -> AsyncGenerator[Judged]:
    """Many cases, as they finish (`result.index` is the case's place) or `ordered`; results are
    those of `aevaluate`.

    Cases are read lazily, once. One that cannot be judged fails alone; its result says why. Cases
    may carry parameters of their own, which win over those given here.

    Raises:
        InputError: profile, judge or a parameter cannot be used, or something given is no case.
        SettingsError, FatalModelError: as in `aevaluate`.
    """
    spec, objects, keywords = _specify(judge, profile, recall, fields)
    check_iterable(cases)
    records = astream(spec, cases=cases, objects=objects, **{**keywords, "ordered": ordered})
    async with aclosing(records):
        async for judged in records:
            yield judged


def _specify(
    judge: str | Evaluator | None,
    profile: str | Path | Profile | None,
    recall: Recall,
    fields: Mapping[str, Any],
) -> tuple[EvaluateSpec, Objects, RunKeywords]:
    objects = Objects()
    own, keywords = split_keywords(EvaluateSpec, fields)
    spec = EvaluateSpec(
        judge=objects.name(judge),
        profile=str(profile) if isinstance(profile, Path) else profile,
        recall=None if recall is nothing else objects.name(recall),
        **name_none(own),
    )
    return spec, objects, keywords


evaluate = in_sync(aevaluate)
evaluate_batch = in_sync_iterator(aevaluate_batch)
