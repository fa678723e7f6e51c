"""The commands of resources (namespaces, agents, collections and users), such as `agents create`.

Each verb is one function for all kinds of resources. Its options are its own parameters and the
fields of the kind's specification.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from textevolve.agents.resources import SpecVersion, split_name
from textevolve.api.client import Client
from textevolve.api.namespaces import Namespace
from textevolve.api.opened import keep_namespace
from textevolve.cli import options, say
from textevolve.cli.options import NamespaceName, Yes
from textevolve.cli.results import fetch_weights, print_json, print_list, show_report
from textevolve.cli.spec_options import give_parameters, keyword, parameters_of, read_given
from textevolve.desk.exchange import describe, draw_list, draw_one
from textevolve.errors import InputError
from textevolve.settings import Settings, read_settings
from textevolve.spec import suggest
from textevolve.store.kinds import AGENTS, COLLECTIONS, KINDS, Kind

SOURCE = "command line"
UNNAMED = ("list", "import")
"""The verbs that take no name of a resource."""
TEXT_ONLY = ("delete", "export", "import")
"""The verbs without the option `--json`."""
Unset = Annotated[
    list[str] | None,
    typer.Option(
        "--unset", metavar="FIELD", help="The name of a field to reset to its default. Repeatable."
    ),
]
Versions = Annotated[bool, typer.Option("--versions", help="Show the changes of each version.")]
VersionNumber = Annotated[
    int,
    typer.Argument(
        metavar="VERSION", help="The number of the version, as `show --versions` lists it."
    ),
]
ExportTarget = Annotated[
    str, typer.Option("--output", "-o", help="The file to write; - is standard output.")
]
ImportedFile = Annotated[
    str, typer.Argument(metavar="FILE", help="The file that `export` wrote; - is standard input.")
]
AsName = Annotated[str | None, typer.Option("--name", help="A new name for what the file holds.")]
Force = Annotated[bool, typer.Option("--force", help="Delete it even if agents use it.")]


@dataclass(frozen=True)
class ResourceCall:
    """A call of a resource command.

    Attributes:
        kind: The kind of resource.
        name: The name of the resource; empty for verbs without a name.
        space: The open namespace.
        settings: The settings of the command.
        values: The values of the options, by name.
    """

    kind: Kind[Any, Any]
    name: str
    space: Namespace
    settings: Settings
    values: Mapping[str, Any]

    @property
    def group(self) -> Any:
        return getattr(self.space, self.kind.command)

    def describe(self, stored: Any, versions: Sequence[SpecVersion] = ()) -> list[dict[str, Any]]:
        counts = self.space.collections.count() if self.kind is COLLECTIONS else None
        return [describe(each, versions, counts) for each in stored]

    def print(self, stored: Any, text: str) -> None:
        if self.values["as_json"]:
            print_json(describe(stored))
        else:
            typer.echo(text)


def make_command(path: str) -> Callable[..., None]:
    """Return the command function of a verb for a group. `path`: GROUP.VERB, such as
    agents.create."""
    group, _, verb = path.partition(".")
    kind = KINDS[group]
    run = VERBS[verb]
    takes = inspect.signature(run, eval_str=True).parameters.values()
    hidden = {"call"} if kind is COLLECTIONS else {"call", "force"}
    verb_parameters = [each for each in takes if each.name not in hidden]

    def command(**values: Any) -> None:
        settings = read_settings(store=values["store"])
        name = values.get("name") or ""
        namespace = values.get("namespace")
        if kind.walled and name:
            namespace, name = split_name(name, namespace or settings.namespace)
        with keep_namespace(Client(settings=settings), namespace, source=SOURCE) as space:
            call = ResourceCall(kind, name, space, settings, values)
            run(call, **{each.name: values[each.name] for each in verb_parameters})

    command.__name__ = verb
    command.__doc__ = (run.__doc__ or "").format(noun=kind.noun, many=group)
    text = f"The {kind.noun}'s name" + (", or NAMESPACE/NAME." if kind.walled else ".")
    name = keyword("name", Annotated[str, typer.Argument(metavar="NAME", help=text)], ...)
    fields = [each for each in parameters_of(kind.spec) if each.name != "name"]
    unfixed = [each for each in fields if each.name not in kind.fixed]
    parameters = [
        *([] if verb in UNNAMED else [name]),
        *{"create": fields, "update": unfixed}.get(verb, []),
        *verb_parameters,
        *([keyword("namespace", NamespaceName)] if kind.walled else []),
        *([] if verb in TEXT_ONLY else [keyword("as_json", options.Json, False)]),
        keyword("store", options.StoreFile),
    ]

    return give_parameters(command, parameters)


def create(call: ResourceCall) -> None:
    """Make a new {noun}."""
    fields = read_given(call.kind.spec, {**call.values, "name": call.name})
    spec = call.kind.spec(**fields)
    if call.kind is COLLECTIONS and getattr(spec, "dimension", None) is None:
        fetch_weights([getattr(spec, "embedder", None) or call.settings.embedder], call.settings)
    stored = call.group.create(**fields)
    where = f"{call.space.name}/{call.name}" if call.kind.walled else call.name
    call.print(stored, f"made the {call.kind.noun} {where}")


def list_all(call: ResourceCall) -> None:
    """List the {many}."""
    persona = ' --persona "You are a guide."' if call.kind is AGENTS else ""
    print_list(
        call.describe(call.group.list()),
        dict,
        lambda rows: show_report(draw_list(call.kind, list(rows))),
        f"no {call.kind.command}{call.kind.place(call.space.name)}; make one with: textevolve"
        f" {call.kind.command_path} create my-{call.kind.noun}{persona}",
        as_json=call.values["as_json"],
    )


def show(call: ResourceCall, *, versions: Versions = False) -> None:
    """Show one of the {many} in full."""
    version_list = call.group.versions(call.name) if versions else ()
    (data,) = call.describe([call.group.get(call.name)], version_list)
    if call.values["as_json"]:
        print_json(data)
    else:
        show_report(draw_one(call.kind, data, version_list))


def update(call: ResourceCall, *, unset: Unset = None) -> None:
    """Change the given fields of the {noun}; the others stay."""
    changes = read_given(call.kind.spec, {**call.values, "name": None})
    for name in unset or ():
        _unset(call.kind.spec, name.replace("-", "_"), changes, call.kind.fixed)
    if not changes:
        raise InputError("nothing to change: give an option, such as --description TEXT")
    call.print(call.group.update(call.name, **changes), f"changed the {call.kind.noun} {call.name}")


def _unset(spec: Any, name: str, changes: dict[str, Any], fixed: Sequence[str]) -> None:
    """Add a field with its default value to `changes`; fields of inner specifications are allowed,
    fixed and required ones are refused."""
    places = {n: (changes, f) for n, f in spec.model_fields.items() if n not in fixed}
    for field_name, field in spec.model_fields.items():
        if hasattr(field.annotation, "model_fields"):
            inner = changes.setdefault(field_name, {})
            places |= {n: (inner, f) for n, f in field.annotation.model_fields.items()}

    names = [n for n, (_, f) in places.items() if not f.is_required()]
    if name not in names:
        raise InputError(f"--unset: no field '{name}' with a default{suggest(name, names)}")
    where, field = places[name]
    where[name] = field.get_default(call_default_factory=True)


def delete(call: ResourceCall, *, force: Force = False, yes: Yes = False) -> None:
    """Delete the {noun} with all that belongs to it."""
    kind = call.kind
    name = call.name
    call.group.get(name)
    if kind.command in ("namespaces", "collections"):
        say(ERASES)
    options.confirm(f"Delete the {kind.noun} {name} with {kind.holds}?", yes)
    call.group.delete(name, force=force)
    typer.echo(f"deleted the {kind.noun} {name}")


ERASES = (
    "the texts are also erased from runs, calls and chats; tokens, costs and scores stay, and so"
    " do other texts with the same meaning; exported files, copies and backups of the store"
    " (also the write-ahead log of a database server) and the providers of models may still have"
    " the texts"
)


def revert(call: ResourceCall, *, version: VersionNumber) -> None:
    """Revert the {noun} to an earlier version, which becomes the newest one."""
    stored = call.group.revert(call.name, version)
    call.print(stored, f"the {call.kind.noun} {call.name} is as in version {version} again")


def export(call: ResourceCall, *, output: ExportTarget = "-") -> None:
    """Write one of the {many} to a file, with all that belongs to it: `import` reads it again."""
    number = call.group.export(call.name, output)
    if output != "-":
        say(f"{number:,} lines written to {output}")


def import_file(call: ResourceCall, *, file: ImportedFile, as_name: AsName = None) -> None:
    """Import a file of `export` in one transaction; its memories are embedded again."""
    call.group.import_file(file, name=as_name)
    typer.echo(f"imported {file}")


VERBS: Mapping[str, Callable[..., None]] = {
    "create": create,
    "list": list_all,
    "show": show,
    "update": update,
    "delete": delete,
    "revert": revert,
    "export": export,
    "import": import_file,
}
