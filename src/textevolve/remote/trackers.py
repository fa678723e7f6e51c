"""Scores for Phoenix and MLflow, and runs for MLflow, over their HTTP interfaces.

Phoenix shows a score as an annotation of a span, MLflow as an assessment. What is sent again
replaces what was sent before. `studies/annotations.py` makes annotations of records.
"""

from __future__ import annotations

import base64
import io
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from textevolve.engine.local import gather_bounded
from textevolve.errors import InputError
from textevolve.llm.connections import JsonService
from textevolve.llm.providers import Key, find_key, split_address
from textevolve.remote.connection import part
from textevolve.report import wording
from textevolve.settings import Settings
from textevolve.store.repository import Store
from textevolve.store.runs import RunRecord
from textevolve.studies.annotations import Annotation, list_annotations
from textevolve.studies.kinds import find_study
from textevolve.studies.reporting import make_data, write_output
from textevolve.studies.stored import read_records, read_spec, read_stored

PHOENIX, MLFLOW = "phoenix", "mlflow"
# The variables with keys, as each tool's own client reads them.
KEYS = {PHOENIX: "PHOENIX_API_KEY", MLFLOW: "MLFLOW_TRACKING_TOKEN"}
PAIR = ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD")
SOURCE = "textevolve"
# The name under which MLflow's runs and assessments have the id of our run.
MARK = "textevolve.run"
LABELS = ("failed", "passed")
# Annotations of one request to Phoenix.
AT_ONCE = 100
# Traces whose assessments are sent to MLflow at a time.
IN_FLIGHT = 8
# MLflow's limit of a parameter's value.
MOST_CHARACTERS = 6000
# Characters that names of MLflow's metrics cannot have.
NOT_A_NAME = re.compile(r"[^\w\-./: ]", re.ASCII)
V2, V3 = "/api/2.0/mlflow", "/api/3.0/mlflow"


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
    key, headers = find_key(kind, KEYS[kind], ask_keyring=False), dict[str, Key]()
    pair = [os.environ.get(name, "") for name in PAIR]
    if kind == MLFLOW and all(pair):
        code = base64.b64encode(":".join(pair).encode()).decode()
        key, headers = None, {"Authorization": Key(SecretStr(f"Basic {code}"), PAIR[1])}
    return JsonService(address, name=kind, key=key, timeouts=settings.timeouts, headers=headers)


async def send_scores(store: Store, run: RunRecord, target: str, settings: Settings) -> str:
    """Send the scores of a run to their spans, and return a line with the number of scores sent,
    and of those left out because they have no ids of a span.

    Raises:
        InputError: the run has no scores of spans. ModelError: not all could be sent.
    """
    stored = read_stored(run)
    study = find_study(stored.kind)
    judges = study.asks(read_spec(study, stored)).judges
    annotations = list(list_annotations(read_records(store, run)(), judges))
    if not annotations:
        raise InputError(
            f"run {run.id}: has no scores of spans or rows, so there is nothing to send"
        )
    async with aclosing(open_tracker(target, settings)) as service:
        send = _send_to_mlflow if service.name == MLFLOW else _send_to_phoenix
        sent = [a for a in annotations if a.span and (a.trace or service.name == PHOENIX)]
        await send(service, run.id, sent)
    line = f"{wording.count(len(sent), 'score')} sent to {service.name}"
    missing = len(annotations) - len(sent)
    return f"{line}, {missing:,} without the ids of a span" if missing else line


async def _send_to_phoenix(
    service: JsonService, run_id: str, annotations: Sequence[Annotation]
) -> None:
    data = [
        {
            "span_id": each.span,
            "name": each.name,
            "annotator_kind": "LLM" if each.by_judge else "CODE",
            "identifier": SOURCE,
            "result": {
                "score": each.result.score,
                "label": LABELS[each.result.passed],
                "explanation": each.result.feedback,
            },
            "metadata": {MARK: run_id},
        }
        for each in annotations
    ]
    for start in range(0, len(data), AT_ONCE):
        batch = {"data": data[start : start + AT_ONCE]}
        await service.post("/v1/span_annotations?sync=true", batch)


async def _send_to_mlflow(
    service: JsonService, run_id: str, annotations: Sequence[Annotation]
) -> None:
    """Send the assessments trace by trace; those that are there already are updated."""

    async def send(trace: str, of_trace: Sequence[Annotation]) -> None:
        path = f"{V3}/traces/{part(trace)}"
        info = (await service.post(path, method="GET"))["trace"]["trace_info"]
        known = {
            (old["assessment_name"], old.get("span_id")): old["assessment_id"]
            for old in info.get("assessments", ())
            if MARK in old.get("metadata", ())
        }
        for each in of_trace:
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
            place = f"{path}/assessments"
            if id := known.get((each.name, each.span)):
                await service.post(f"{place}/{id}", body, method="PATCH")
            else:
                await service.post(place, body)

    by_trace: dict[str, list[Annotation]] = {}
    for each in annotations:
        by_trace.setdefault(f"tr-{each.trace.removeprefix('tr-')}", []).append(each)
    await gather_bounded([partial(send, *group) for group in by_trace.items()], IN_FLIGHT)


async def write_run(store: Store, run: RunRecord, target: str, settings: Settings) -> str:
    """Write the parameters, metrics, report and records of a run to MLflow, and return the run's
    address there. A run that was written before is updated, except for its parameters, which MLflow
    does not change. The experiment is `textevolve`, or the one that MLflow's own variable names.

    Raises:
        ModelError: not all of it was written.
    """
    created, updated = (round(seconds * 1000) for seconds in (run.created, run.updated))
    stored = read_stored(run)
    study, records = find_study(stored.kind), read_records(store, run)
    options = read_spec(study, stored).model_dump(mode="json", exclude_defaults=True)
    options |= {"kind": stored.kind, "model": stored.model}
    params = [{"key": key, "value": str(value)[:MOST_CHARACTERS]} for key, value in options.items()]
    metrics = [
        {"key": NOT_A_NAME.sub("_", name) + end, "value": value, "timestamp": updated}
        for name, figure in make_data(study, run, records)["aggregates"].items()
        for end, value in (("", figure.value), ("_low", figure.low), ("_high", figure.high))
        if value is not None
    ]
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or SOURCE
    about = {"run_name": run.name or run.id, "start_time": created}
    async with aclosing(open_tracker(target, settings, scores=False)) as service:
        query = {"filter": f"name = '{name}'"}
        experiment = await _find(service, "experiments", query, {"name": name})
        place = experiment["experiment_id"]
        query = {"experiment_ids": [place], "filter": f"tags.`{MARK}` = '{run.id}'"}
        tags = [{"key": MARK, "value": run.id}]
        current = await _find(
            service, "runs", query, {"experiment_id": place, "tags": tags, **about}
        )
        id, folder = current["info"]["run_id"], current["info"]["artifact_uri"].partition(":")[2]
        batch = {
            "run_id": id,
            "metrics": metrics,
            # They never change, and MLflow refuses others.
            "params": [] if current["data"].get("params") else params,
        }
        await service.post(f"{V2}/runs/log-batch", batch)
        for file in ("report.html", "records.csv"):
            content = io.BytesIO()
            write_output(study, store, run, records, Path(file).suffix, content)
            where = f"{V2}-artifacts/artifacts{folder}/{file}"
            await service.send(where, content.getvalue(), method="PUT")
        ended = {"run_id": id, "status": "FINISHED", "end_time": updated}
        await service.post(f"{V2}/runs/update", {**ended, **about})
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
