"""What there is to hold a law against, as the product itself lists it.

Everything is read through public doors: the command line's lists, schemas, help and refusals, and
the enumerations of the scripted server. A member that is added to the product is in each matrix by
itself; `matrix.check_members` fails by name where a law has no way to run it.
"""

import json
import re
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Any

from textevolve.llm.testing import BatchFault, Fault

Cli = Callable[..., Any]


def choose(member: str, names: Iterable[str], number: int) -> list[str]:
    """Return so many names for a member of a registry, drawn by the member's own name, so that a
    new member moves no other."""
    return sorted(names, key=lambda name: sha256(f"{member} {name}".encode()).digest())[:number]


def list_kinds(cli: Cli) -> dict[str, dict[str, Any]]:
    """Return the JSON schema of each kind of study, by its name."""
    schemas = json.loads(cli("run", "schema").out)["oneOf"]
    kinds = [schema["properties"]["kind"]["const"] for schema in schemas]
    return {kind: json.loads(cli("run", "schema", kind).out) for kind in kinds}


def list_judges(cli: Cli) -> list[str]:
    """Return the form of each judge, such as `metric:NAME`."""
    return [judge["name"] for judge in json.loads(cli("judges", "list", "--json").out)]


def list_metrics(cli: Cli) -> list[str]:
    """Return the name of each built-in metric, from the refusal of one that does not exist."""
    refusal = cli("evaluate", "a", "b", "--judge", "metric:nosuch").err
    forms = refusal.partition("Write ")[2].partition(" or MODULE")[0]
    # An option within a form may have commas: `tool-sequence[:MODE][:NAME,NAME]`.
    names = [form.strip() for form in re.split(r", (?=[a-z-]+(?:[\[:,]|$)|FILE)", forms)]
    return [re.split(r"[:\[]", name)[0] for name in names if not name.startswith("FILE")]


def list_row_formats(cli: Cli) -> list[str]:
    """Return the endings of files of rows."""
    refusal = cli("evaluate", "rows.nosuch", "--judge", "probe").err
    return re.findall(r"\.\w+", re.search(r"\((\.[^)]*)\)", refusal)[1])


def list_outputs(cli: Cli) -> list[str]:
    """Return the endings of files that a run is written to."""
    refusal = cli("evaluate", "a", "b", "--judge", "look:length", "-o", "x.nosuch").err
    return re.findall(r"\.\w+", refusal.partition("must end in")[2])


def list_programs(cli: Cli) -> list[str]:
    """Return the other programs for which a run is written to a folder."""
    help_text = re.sub(r"[\s│]", "", cli("runs", "export", "--help").out)
    return re.findall(r"([a-z-]+):FOLDER", help_text)


FAULTS = tuple(Fault)
BATCH_FAULTS = tuple(BatchFault)
