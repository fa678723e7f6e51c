"""A judge's verdicts on many texts, and people's on some of them, out of two files.

Read are the files that `textevolve evaluate -o` writes, and rows with `id` and `judged`. Labelled
rows have `human` beside these; a verdict they lack is looked up by `id` (and `candidate`). What is
made of the verdicts is in `rates.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

import numpy as np

from textevolve.errors import InputError
from textevolve.rows import Placed, Row, read_rows
from textevolve.statistics.intervals import Array

HUMAN = "human"
FIELDS = ("judged", "passed")
METRICS = {"passed": "passed", "score": "scores"}  # the field, and its list in a whole result

RowKey: TypeAlias = tuple[str, int | None]
"""The id of a row, and the number of its candidate from 1 on where it has one."""


@dataclass(frozen=True, slots=True)
class JudgedTexts:
    """Verdicts in [0, 1], a yes being 1; NaN where there is none.

    `judged`: the judge's, on texts without a label. `labelled_judged` and `labelled_human`: its
    and people's on the same other texts. `moved`: texts of the large file that are among the
    labelled ones. `field` is what the judge's verdicts were read from.
    """

    field: str
    judged: Array
    labelled_judged: Array
    labelled_human: Array
    moved: int

    @property
    def is_rate(self) -> bool:
        """Whether every verdict is a plain yes or no."""
        every = np.concatenate([self.judged, self.labelled_judged, self.labelled_human])
        return bool(np.isin(every[~np.isnan(every)], (0.0, 1.0)).all())


@dataclass(frozen=True, slots=True)
class _Text:
    """One judged text. `stated`: its row has a place for the verdict, which may be empty; else the
    verdict is to be looked up. `where` is for messages."""

    where: str
    key: RowKey | None
    judged: float | None
    human: float | None = None
    stated: bool = True


@dataclass
class _Large:
    """The large file by key."""

    path: str
    texts: list[_Text]
    by_key: dict[RowKey, _Text] = field(default_factory=dict[RowKey, _Text])
    by_id: dict[str, list[RowKey]] = field(default_factory=dict[str, list[RowKey]])

    def __post_init__(self) -> None:
        for text in self.texts:
            if text.key is None:
                continue
            if text.key in self.by_key:
                shown = _show(text.key)
                raise InputError(f"{text.where}: {shown} is there already; ids must differ")
            self.by_key[text.key] = text
            self.by_id.setdefault(text.key[0], []).append(text.key)

    def find(self, text: _Text) -> _Text | None:
        """The text of the large file that a labelled row is about.

        Raises:
            InputError: the row names an id of several candidates and none of them.
        """
        if text.key is None or text.key in self.by_key:
            return None if text.key is None else self.by_key[text.key]
        id, candidate = text.key
        keys = self.by_id.get(id, [])
        if candidate is None and len(keys) > 1:
            raise InputError(
                f"{text.where}: '{id}' has {len(keys)} candidates in {self.path};"
                " say which by 'candidate', from 1 on"
            )
        return self.by_key[keys[0]] if keys and candidate is None else None


def read_judged(judged: str, labelled: str, field: str | None = None) -> JudgedTexts:
    """The verdicts of a large file and of a small labelled one.

    `field`: where the judge's verdicts stand, `judged` or else `passed` where it is None.

    Raises:
        InputError: a file cannot be read, or a row cannot be used; names file, line and reason.
    """
    used, texts = _read_large(judged, field)
    large = _Large(judged, texts)
    found: list[tuple[float, float]] = []
    moved: set[RowKey] = set()
    for row in _read(labelled, "labelled row"):
        for text in _take(row, used, labelled=True):
            if text.human is None:
                continue
            other = large.find(text)
            if other is not None and other.key is not None:
                if other.key in moved:
                    raise InputError(f"{text.where}: {_show(other.key)} is labelled twice")
                moved.add(other.key)
            found.append((_verdict_of(text, other, used, judged), text.human))
    if not found:
        raise InputError(f"{labelled}: no row has '{HUMAN}', what a person said of the text")
    left = [text.judged for text in large.texts if text.key is None or text.key not in moved]
    return JudgedTexts(
        field=used,
        judged=_numbers(left),
        labelled_judged=_numbers([ours for ours, _ in found]),
        labelled_human=_numbers([human for _, human in found]),
        moved=len(moved),
    )


def _verdict_of(text: _Text, other: _Text | None, name: str, path: str) -> float:
    if text.judged is not None:
        return text.judged
    if other is None and text.stated:
        return float("nan")
    if other is None:
        known = "" if text.key is None else f", and {path} has no {_show(text.key)}"
        raise InputError(f"{text.where}: '{name}' is missing{known}")
    return float("nan") if other.judged is None else other.judged


def _numbers(values: Sequence[float | None]) -> Array:
    return np.array([np.nan if v is None else v for v in values], dtype=np.float64)


def _read(path: str, noun: str) -> Iterator[Placed]:
    return read_rows(path, noun, lambda column: column in ("id", "text", "feedback", "reason"))


def _read_large(path: str, name: str | None) -> tuple[str, list[_Text]]:
    """The texts of the large file, read row by row, and the field that their verdicts stand in."""
    texts: list[_Text] = []
    first: Placed | None = None
    for placed in _read(path, "judged row"):
        first = first or placed
        name = name or _find_field(placed[1])
        texts += _take(placed, name or FIELDS[0], labelled=False)
    if first is None:
        raise InputError(f"{path}: no rows")
    if name is None or all(text.judged is None for text in texts):
        wanted = " or ".join(FIELDS) if name is None else name
        shown = ", ".join(str(field) for field in list(first[1])[:8])
        raise InputError(
            f"{path}: no row has a verdict in '{wanted}'; name the field with --field (the first"
            f" row has: {shown})"
        )
    return name, texts


def _find_field(row: Row) -> str | None:
    """The field of the judge's verdict; None for a row that has none of those expected."""
    return next((f for f in FIELDS if f in row or (f in METRICS and _is_result(row))), None)


def _is_result(row: Row) -> bool:
    """Whether the row is a case with all its candidates."""
    return _is_debate(row) or _is_judgement(row)


def _is_debate(row: Row) -> bool:
    return isinstance(row.get("case"), Mapping) and _metrics_of(row) is not None


def _metrics_of(row: Row) -> Row | None:
    """What was computed of a debate; files of earlier versions call it figures."""
    found: Any = row.get("metrics", row.get("figures"))
    return cast(Row, found) if isinstance(found, Mapping) else None


def _is_judgement(row: Row) -> bool:
    """Of a judge that is no debate, as `export.judged` writes it."""
    listed: Any = row.get("candidates")
    return isinstance(listed, list) and all(
        isinstance(one, Mapping) for one in cast("list[Any]", listed)
    )


def _take(placed: Placed, name: str, *, labelled: bool) -> Iterator[_Text]:
    """The texts of a row: one, or each candidate of a whole result."""
    where, row = placed
    human = _take_verdict(row, HUMAN, where) if labelled and HUMAN in row else None
    if not _is_result(row):
        if not labelled and name not in row and "id" not in row:
            raise InputError(f"{where}: '{name}' is missing")
        key, verdict = _take_key(row, where), _take_verdict(row, name, where)
        yield _Text(where, key, verdict, human, stated=name in row)
        return
    if labelled:
        raise InputError(
            f"{where}: a whole result has no place for '{HUMAN}'; give rows with id, candidate and"
            f" {HUMAN}"
        )
    if name not in METRICS:
        raise InputError(f"{where}: a result has no '{name}'; there are: {', '.join(METRICS)}")
    if _is_debate(row):
        id: Any = cast(Row, row["case"]).get("id")
        verdicts: Any = (_metrics_of(row) or {}).get(METRICS[name])
    else:
        id = row.get("id")
        verdicts = [one.get(name) for one in cast("list[Row]", row["candidates"])]
    if not isinstance(verdicts, list):
        raise InputError(f"{where}: not a result of textevolve evaluate: no '{METRICS[name]}'")
    id = str(id or row.get("index", ""))
    for number, verdict in enumerate(cast("list[Any]", verdicts), 1):
        yield _Text(where, (id, number), _take_verdict({name: verdict}, name, where))


def _take_key(row: Row, where: str) -> RowKey | None:
    id, candidate = row.get("id"), row.get("candidate")
    if id is None:
        return None
    if isinstance(candidate, float) and candidate.is_integer():
        candidate = int(candidate)  # as tables give it where a row of the column is empty
    if candidate is not None and (not isinstance(candidate, int) or isinstance(candidate, bool)):
        raise InputError(f"{where}: 'candidate' must be a number from 1 on, not {candidate!r:.40}")
    return str(id), candidate


def _take_verdict(row: Row, name: str, where: str) -> float | None:
    """Yes is 1 and no is 0; None where the field is missing or empty."""
    value: Any = row.get(name)
    if value is None or value == "":
        return None
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return float(value.lower() == "true")
    if isinstance(value, bool | int | float) and 0 <= value <= 1:
        return float(value)
    raise InputError(
        f"{where}: '{name}' must be true, false or a number from 0 to 1, not {value!r:.40}"
    )


def _show(key: RowKey) -> str:
    id, candidate = key
    return f"'{id}'" if candidate is None else f"'{id}', candidate {candidate}"
