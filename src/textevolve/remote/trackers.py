"""Scores for Phoenix and MLflow, and runs for MLflow, over their HTTP interfaces.

Phoenix shows a score as an annotation of a span, MLflow as an assessment. What is sent again
replaces what was sent before.
"""

from __future__ import annotations

import base64
import io
import os
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from textevolve.debate.result import DebateResult
from textevolve.engine.local import gather_bounded
from textevolve.errors import InputError, RejectedError
from textevolve.evaluation import SPAN_IDS, EvaluationResult, select_scored
from textevolve.judges.opening import JudgedCase
from textevolve.llm.connections import JsonService
from textevolve.llm.providers import Key, find_key, split_address
from textevolve.remote.runs import part
from textevolve.report import wording
from textevolve.runs.report import make_data, write_output
from textevolve.runs.stored import StudyRun, read_records
from textevolve.settings import Settings
from textevolve.store.repository import Store
from textevolve.studies.node_report import JudgedNode

PHOENIX = "phoenix"
MLFLOW = "mlflow"
# The variables with keys, as each tool's own client reads them.
KEYS = {PHOENIX: "PHOENIX_API_KEY", MLFLOW: "MLFLOW_TRACKING_TOKEN"}
PAIR = ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD")
SOURCE = "textevolve"
# The name of the evaluator of a run without another judge.
DEBATE = "debate"
# The name under which MLflow's runs and assessments have the id of our run.
MARK = "textevolve.run"
LABELS = ("failed", "passed")
# The spans of one request to Phoenix.
AT_ONCE = 100
# The requests to Phoenix, and the traces of MLflow, at a time.
IN_FLIGHT = 8
# The refused ids that an error names.
SHOWN = 3
# MLflow's limit of a parameter's value.
MOST_CHARACTERS = 6000
# Characters that names of MLflow's metrics cannot have.
NOT_A_NAME = re.compile(r"[^\w\-./: ]", re.ASCII)
V2 = "/api/2.0/mlflow"
V3 = "/api/3.0/mlflow"
SPANS = "/v1/span_annotations?sync=true"
# Requests that each tool answers, and no other service.
PROBES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    PHOENIX: (SPANS, {"data": []}),
    MLFLOW: (f"{V2}/experiments/search", {"max_results": 1}),
}


@dataclass(frozen=True, slots=True)
class Annotation:
    """One evaluator's result for a span. `span` and `trace`: the ids of the span and of its trace,
    empty if they are unknown. `by_judge`: whether the evaluator is a judge; False for a check in
    code."""

    name: str
    span: str
    trace: str
    result: EvaluationResult
    by_judge: bool = True


def list_annotations(records: Iterable[Any], judges: Sequence[str]) -> Iterator[Annotation]:
    """Yield an annotation for each score of the records: of a node the score by each evaluator, of
    a case only the highest score of its outputs. `judges`: the run's judges; empty for a run of
    `evaluate` by a debate."""
    for record in records:
        if isinstance(record, JudgedNode):
            item = record.item
            ids = item.ids.get("span_id", ""), item.run_id or record.episode
            for name, result in item.evaluation_results.items():
                if isinstance(result, EvaluationResult):
                    yield Annotation(name, *ids, result, name in judges)
        elif isinstance(record, DebateResult | JudgedCase):
            results = select_scored(record.result)
            if results:
                best = max(results, key=lambda result: result.score)
                parameters = record.case.parameters
                span, trace = (str(parameters.get(name) or "") for name in SPAN_IDS)
                yield Annotation(judges[0] if judges else DEBATE, span, trace, best)


def open_tracker(target: str, settings: Settings, *, scores: bool = True) -> JsonService:
    """Return a client of the server that a target names, such as `mlflow:http://127.0.0.1:5000`.
    `scores`: Phoenix is also a target.

    Raises:
        InputError: it names no server.
    """
    kind, _, address = target.partition(":")
    is_known = kind == MLFLOW or (scores and kind == PHOENIX)

    if not is_known or split_address(address) is None or "@" in address:
        raise InputError(
            "the target must be mlflow:URL, or phoenix:URL for scores, with the http(s) address of"
            " a server and without a password; for a file or a database of MLflow start mlflow"
            " server"
        )

    key = find_key(kind, KEYS[kind], ask_keyring=False)
    headers: dict[str, Key] = {}
    pair = [os.environ.get(name, "") for name in PAIR]
    if kind == MLFLOW and all(pair):
        code = base64.b64encode(":".join(pair).encode()).decode()
        key = None
        headers = {"Authorization": Key(SecretStr(f"Basic {code}"), PAIR[1])}

    return JsonService(address, name=kind, key=key, timeouts=settings.timeouts, headers=headers)


async def send_scores(store: Store, run: StudyRun, target: str, settings: Settings) -> str:
    """Send the scores of a run to their spans, and return a line with the number of scores sent,
    and of those left out because they have no ids of a span.

    Raises:
        InputError: the run has no scores of spans. RejectedError: some are refused, as those of
            unknown spans are; all others are sent. ModelError: not all could be sent.
    """
    judges = [judge.text for judge in run.asks.judges]
    annotations = list(list_annotations(read_records(store, run)(), judges))
    if not annotations:
        raise InputError(
            f"run {run.id}: has no scores of spans or rows, so there is nothing to send"
        )

    async with aclosing(open_tracker(target, settings)) as service:
        is_mlflow = service.name == MLFLOW
        send_to, size = (_send_to_mlflow, 1) if is_mlflow else (_send_to_phoenix, AT_ONCE)
        groups: dict[str, list[Annotation]] = {}
        for each in annotations:
            if each.span and (each.trace or not is_mlflow):
                place = f"tr-{each.trace.removeprefix('tr-')}" if is_mlflow else each.span
                groups.setdefault(place, []).append(each)

        places = list(groups)

        async def send(some: Sequence[str]) -> list[tuple[str, RejectedError]]:
            """Send the scores of spans, or of a trace; halve what is refused, and return the ids of
            those that are refused alone."""
            try:
                await send_to(service, run.id, {place: groups[place] for place in some})
                return []
            except RejectedError as error:
                if (middle := len(some) // 2) == 0:
                    return [(some[0], error)]

            return [*await send(some[:middle]), *await send(some[middle:])]

        # Another service is found out here, so that a later 404 is about a span or a trace.
        await service.post(*PROBES[service.name])
        starts = range(0, len(places), size)
        batches = [partial(send, places[start : start + size]) for start in starts]
        refused = [pair for pairs in await gather_bounded(batches, IN_FLIGHT) for pair in pairs]

    if refused:
        ids = ", ".join(place for place, _ in refused[:SHOWN])
        number = wording.count(len(places), "trace" if is_mlflow else "span")
        raise RejectedError(
            f"{service.name} refuses the scores of {len(refused):,} of {number} (first ids: {ids}):"
            f" {refused[0][1]}"
        )

    sent = sum(map(len, groups.values()))
    line = f"{wording.count(sent, 'score')} sent to {service.name}"
    missing = len(annotations) - sent

    return f"{line}, {missing:,} without the ids of a span" if missing else line


async def _send_to_phoenix(
    service: JsonService, run_id: str, groups: Mapping[str, Sequence[Annotation]]
) -> None:
    data: list[dict[str, Any]] = []
    for each in chain.from_iterable(groups.values()):
        result = {
            "score": each.result.score,
            "label": LABELS[each.result.passed],
            "explanation": each.result.feedback,
        }
        data.append(
            {
                "span_id": each.span,
                "name": each.name,
                "annotator_kind": "LLM" if each.by_judge else "CODE",
                "identifier": SOURCE,
                "result": result,
                "metadata": {MARK: run_id},
            }
        )

    await service.post(SPANS, {"data": data})


async def _send_to_mlflow(
    service: JsonService, run_id: str, groups: Mapping[str, Sequence[Annotation]]
) -> None:
    """Send the assessments of a trace; assessments that exist already are updated."""
    ((trace, annotations),) = groups.items()
    path = f"{V3}/traces/{part(trace)}"
    info = (await service.post(path, method="GET"))["trace"]["trace_info"]
    tracker_fields = {
        (old["assessment_name"], old.get("span_id")): old["assessment_id"]
        for old in info.get("assessments", ())
        if MARK in old.get("metadata", ())
    }

    for each in annotations:
        assessment = {
            "assessment_name": each.name,
            "trace_id": trace,
            "span_id": each.span,
            "source": {
                "source_type": "LLM_JUDGE" if each.by_judge else "CODE",
                "source_id": SOURCE,
            },
            "feedback": {"value": each.result.score},
            "rationale": each.result.feedback,
            "metadata": {MARK: run_id, "label": LABELS[each.result.passed]},
        }
        body = {"assessment": assessment, "update_mask": "feedback,rationale,metadata"}
        id = tracker_fields.get((each.name, each.span))
        place, method = (f"/{id}", "PATCH") if id else ("", "POST")
        await service.post(f"{path}/assessments{place}", body, method=method)


def metric_name(name: str) -> str:
    """Return the name of a figure as MLflow accepts it: a path in its shortest form, which an
    address in a judge's name is not."""
    return posixpath.normpath(NOT_A_NAME.sub("_", name)).lstrip("/.")


async def write_run(store: Store, run: StudyRun, target: str, settings: Settings) -> str:
    """Write the parameters, metrics, report and records of a run to MLflow, and return the run's
    address there. A run that was written before is updated, except for its parameters, which MLflow
    does not change. The experiment is `textevolve`, or the one that MLflow's own variable names.

    Raises:
        ModelError: not all of it was written.
    """
    record = run.record
    created, updated = (round(seconds * 1000) for seconds in (record.created, record.updated))
    records = read_records(store, run)
    options = run.spec.model_dump(mode="json", exclude_defaults=True)
    options |= {"kind": run.stored.kind, "model": run.stored.model}
    params = [{"key": key, "value": str(value)[:MOST_CHARACTERS]} for key, value in options.items()]
    metrics = [
        {"key": metric_name(name) + end, "value": value, "timestamp": updated}
        for name, figure in make_data(run, records)["aggregates"].items()
        for end, value in (("", figure.value), ("_low", figure.low), ("_high", figure.high))
        if value is not None
    ]
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or SOURCE
    about = {"run_name": record.name or run.id, "start_time": created}

    async with aclosing(open_tracker(target, settings, scores=False)) as service:
        query = {"filter": f"name = '{name}'"}
        place = (await _find(service, "experiments", query, {"name": name}))["experiment_id"]
        query = {"experiment_ids": [place], "filter": f"tags.`{MARK}` = '{run.id}'"}
        fields = {"experiment_id": place, "tags": [{"key": MARK, "value": run.id}], **about}
        current = await _find(service, "runs", query, fields)
        id = current["info"]["run_id"]
        folder = current["info"]["artifact_uri"].partition(":")[2]
        # Parameters never change, and MLflow refuses others.
        new = [] if current["data"].get("params") else params
        await service.post(
            f"{V2}/runs/log-batch", {"run_id": id, "metrics": metrics, "params": new}
        )

        for file in ("report.html", "records.csv"):
            content = io.BytesIO()
            write_output(store, run, records, Path(file).suffix, content)
            where = f"{V2}-artifacts/artifacts{folder}/{file}"
            await service.send(where, content.getvalue(), method="PUT")

        finished_run = {"run_id": id, "status": "FINISHED", "end_time": updated}
        await service.post(f"{V2}/runs/update", {**finished_run, **about})

    return f"{service.base_url}/#/experiments/{place}/runs/{id}"


async def _find(
    service: JsonService, kind: str, query: Mapping[str, Any], fields: Mapping[str, Any]
) -> Any:
    """Return MLflow's experiment or run that a query selects, or else a new one."""
    answer = await service.post(f"{V2}/{kind}/search", {**query, "max_results": 1})
    if kind in answer:
        return answer[kind][0]
    created = await service.post(f"{V2}/{kind}/create", fields)
    return created.get("run", created)
