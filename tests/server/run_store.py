"""Runs as they lie in a store, written without asking any model."""

import json

from textevolve.evaluation import Case, EvaluationResult, Failure, Usage
from textevolve.judges.opening import JudgedCase
from textevolve.runs.stored import StoredSpec, keep_record
from textevolve.runs.study import find_study
from textevolve.studies import compare, evaluate
from textevolve.studies.compare_cells import Grade, Output


def begin_run(store, kind="evaluate", name="", cases=0, **spec):
    stored = StoredSpec(kind=kind, spec=spec, model="none").model_dump(mode="json")
    run = store.create_run(stored, f"{kind} {name} {cases} {spec}", name, "a test")
    rows = (json.dumps({"question": f"input {n}"}) for n in range(cases))
    inputs = rows if kind == "compare" else (f"input {n}" for n in range(cases))
    store.add_cases(run.id, (Case(input, (), f"case-{n}") for n, input in enumerate(inputs)))
    return run.id


def judge(n, score=0.5, text="", passed=None):
    """A judged case; one without a score failed."""
    case = Case(f"Input {n} {text}", (f"Output {n} {text}",), f"case-{n}", reference=text or None)
    result = (
        Failure("failed", f"no score {text}")
        if score is None
        else EvaluationResult(score, score >= 0.5 if passed is None else passed, f"because {text}")
    )
    return JudgedCase(case, n, (result,), Usage(1, 10, 0, 2, 0.01))


def answer(position, row, variant, score, text=""):
    grades = {"judge": Grade(score, score >= 0.5, f"because {text}")}
    return Output(
        *(position, row, variant),
        input=f"Asked {row} {text}",
        text=f"{variant} says {text}",
        score=score,
        passed=score >= 0.5,
        grades=grades,
    )


def keep(store, run_id, kind, *records):
    study = {"evaluate": evaluate.STUDY, "compare": compare.STUDY}.get(kind) or find_study(kind)
    store.keep_records(
        run_id, [keep_record(study, record, study.row(record)) for record in records]
    )


def add_run(store, *scores, name="", text=""):
    """A finished run of the kind evaluate."""
    run_id = begin_run(store, name=name, cases=len(scores), judge="probe")
    keep(store, run_id, "evaluate", *(judge(n, one, text) for n, one in enumerate(scores)))
    store.finish_run(run_id, "finished")
    return run_id


def add_comparison(store, rows, name="", text=""):
    """A finished run of the kind compare: of each row the scores of `one` and `two`."""
    run_id = begin_run(store, "compare", name, len(rows), data="rows.jsonl", outputs=["one", "two"])
    outputs = [
        answer(2 * n + v, f"row-{n}", variant, score, text)
        for n, scores in enumerate(rows)
        for v, (variant, score) in enumerate(zip(("one", "two"), scores, strict=True))
    ]
    keep(store, run_id, "compare", *outputs)
    store.finish_run(run_id, "finished")
    return run_id
