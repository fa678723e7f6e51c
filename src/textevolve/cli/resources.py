"""`textevolve namespaces|agents|collections|users create|list|show|update|delete|revert`.

One builder makes all of them from the specifications of what they work on; what a kind is shown by
is in one table.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from textevolve.agents.resources import PersonaVersion, split_name
from textevolve.api.namespaces import Namespace, open_namespace
from textevolve.cli import options, say
from textevolve.cli.drawing import open_console, open_status
from textevolve.cli.execution import fetch_weights
from textevolve.cli.results import print_json
from textevolve.cli.spec_options import give_parameters, keyword, parameters_of, read_given
from textevolve.errors import InputError
from textevolve.report.terminal import print_report
from textevolve.settings import Settings, read_settings
from textevolve.spec import suggest
from textevolve.store.erasure import Losses
from textevolve.studies.resource_report import VIEWS, ResourceView, describe, draw_list, draw_one

SOURCE = "command line"
JSON = ("create", "list", "show", "update", "revert")
NamespaceName = Annotated[
    str | None,
    typer.Option("--namespace", metavar="NAME", help="The namespace; that of the settings else."),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Unset = Annotated[
    list[str] | None,
    typer.Option("--unset", metavar="FIELD", help="Back to its default. Repeatable."),
]
Versions = Annotated[bool, typer.Option("--versions", help="All versions of the persona, whole.")]
PersonaNumber = Annotated[int, typer.Argument(metavar="VERSION", help="As `show` numbers them.")]
ExportTarget = Annotated[
    str, typer.Option("--output", "-o", help="The file to write; - is standard output.")
]
WithEmbeddings = Annotated[
    bool, typer.Option("--embeddings", help="With embeddings, which else are computed again.")
]
ImportedFile = Annotated[str, typer.Argument(metavar="FILE", help="What `export` wrote, or -.")]
AsName = Annotated[str | None, typer.Option("--name", help="What it is called here.")]
Force = Annotated[bool, typer.Option("--force", help="Also where agents name it.")]


@dataclass(frozen=True)
class ResourceCall:
    """A command of a group, and what it was given."""

    view: ResourceView
    given: Mapping[str, Any]
    settings: Settings

    @property
    def place(self) -> tuple[str | None, str]:
        """The namespace that was named, if one was, and the bare name."""
        name, space = self.given.get("name") or "", self.given.get("namespace")
        if self.view.noun == "namespace":
            return None, name
        return split_name(name, space or self.settings.namespace) if name else (space, "")

    def open(self) -> Any:
        return open_namespace(self.place[0], settings=self.settings, source=SOURCE)

    def print(self, stored: Any, said: str) -> None:
        if self.given.get("as_json"):
            print_json(describe(stored))
        else:
            typer.echo(said)


def make_command(path: str) -> Callable[..., None]:
    """The command `GROUP.VERB`, such as agents.create."""
    group, _, verb = path.partition(".")
    view, run = VIEWS[group], VERBS[verb]

    def command(**given: Any) -> None:
        settings, _ = read_settings({"store": given.get("store")})
        run(ResourceCall(view, given, settings))

    command.__name__ = verb
    command.__doc__ = (run.__doc__ or "").format(noun=view.noun, many=group)
    return give_parameters(command, [*_parameters(view, verb), *_shared(view, verb)])


def _parameters(view: ResourceView, verb: str) -> list[inspect.Parameter]:
    """What a verb takes for this kind."""
    told = f"The {view.noun}'s name" + (", or NAMESPACE/NAME." if view.walled else ".")
    name = keyword("name", Annotated[str, typer.Argument(metavar="NAME", help=told)], ...)
    own = [one for one in parameters_of(view.spec) if one.name != "name"]
    if verb == "create":
        return [name, *own]
    if verb == "update":
        fixed = [one for one in own if one.name not in view.fixed]
        return [name, *fixed, keyword("unset", Unset)]
    held = view.noun in ("namespace", "collection")
    more = {
        "list": [],
        "export": [
            name,
            keyword("output", ExportTarget, "-"),
            *([keyword("embeddings", WithEmbeddings, False)] if held else []),
        ],
        "import": [keyword("file", ImportedFile, ...), keyword("as_name", AsName)],
        "show": [name, *([keyword("versions", Versions, False)] if view.personas else [])],
        "delete": [
            name,
            *([keyword("force", Force, False)] if view.noun == "collection" else []),
            keyword("yes", Yes, False),
        ],
        "revert": [name, keyword("version", PersonaNumber, ...)],
    }
    return more[verb]


def _shared(view: ResourceView, verb: str) -> list[inspect.Parameter]:
    shared = [keyword("namespace", NamespaceName)] if view.walled else []
    shared += [keyword("as_json", options.Json, False)] if verb in JSON else []
    return [*shared, keyword("store", options.StoreFile)]


def create(call: ResourceCall) -> None:
    """Make a new {noun}."""
    space_name, name = call.place
    fields = read_given(call.view.spec, {**call.given, "name": name})
    spec = call.view.spec(**fields)  # what is wrong is said before anything is opened
    if call.view.noun == "collection" and getattr(spec, "dimension", None) is None:
        fetch_weights([getattr(spec, "embedder", None) or call.settings.embedder], call.settings)
    with call.open() as space:
        made = call.view.group(space).create(**fields)
        where = name if space_name is None else f"{space.name}/{name}"
        call.print(made, f"made the {call.view.noun} {where}")


def list_all(call: ResourceCall) -> None:
    """List the {many}."""
    with call.open() as space:
        found = _describe(call, space, call.view.group(space).list())
        if call.given.get("as_json"):
            for one in found:
                print_json(one)
        elif found:
            print_report(draw_list(call.view, found), open_console())
        else:
            where = f" in the namespace '{space.name}'" if call.view.walled else ""
            typer.echo(
                f"no {call.view.command}{where}; make one with: textevolve {call.view.command}"
                " create NAME"
            )


def show(call: ResourceCall) -> None:
    """Show one of the {many} whole."""
    with call.open() as space:
        found = call.view.group(space).get(call.place[1])
        kept = space.agents.personas(call.place[1]) if call.view.personas else ()
        personas: Sequence[PersonaVersion] = kept
        whole = bool(call.given.get("versions"))
        (data,) = _describe(call, space, [found], personas if whole else ())
        if call.given.get("as_json"):
            print_json(data)
        else:
            print_report(draw_one(call.view, data, personas, whole=whole), open_console())


def _describe(
    call: ResourceCall,
    space: Namespace,
    found: Sequence[Any],
    personas: Sequence[PersonaVersion] = (),
) -> list[dict[str, Any]]:
    """As JSON-ready data; collections with how many memories they hold."""
    counted = call.view.noun == "collection"
    held: Mapping[str, int] = space.collections.count() if counted else {}
    return [
        {**data, **({"memories": held.get(data["name"], 0)} if held else {})}
        for data in (describe(one, personas) for one in found)
    ]


def update(call: ResourceCall) -> None:
    """Change what is given of the {noun}; the rest stays."""
    spec = call.view.spec
    changes = read_given(spec, {**call.given, "name": None})
    for name in call.given.get("unset") or ():
        _unset(spec, name.replace("-", "_"), changes, call.view.fixed)
    if not changes:
        raise InputError("nothing is changed: give an option, such as --description TEXT")
    with call.open() as space:
        changed = call.view.group(space).update(call.place[1], **changes)
        call.print(changed, f"changed the {call.view.noun} {call.place[1]}")


def _unset(spec: Any, name: str, changes: dict[str, Any], fixed: Sequence[str]) -> None:
    """Put a field's default among the changes; of fields that a specification holds as well."""
    places = {n: (changes, f) for n, f in spec.model_fields.items() if n not in fixed}
    for field_name, field in spec.model_fields.items():
        if hasattr(field.annotation, "model_fields"):
            inner = changes.setdefault(field_name, {})
            places |= {n: (inner, f) for n, f in field.annotation.model_fields.items()}
    known = [n for n, (_, f) in places.items() if not f.is_required()]
    if name not in known:
        raise InputError(f"--unset: no field '{name}' with a default{suggest(name, known)}")
    where, field = places[name]
    where[name] = field.get_default(call_default_factory=True)


def delete(call: ResourceCall) -> None:
    """Delete the {noun} with all that belongs to it."""
    name = call.place[1]
    with call.open() as space:
        group = call.view.group(space)
        group.get(name)
        report_losses(group.find_losses(name))
        if not call.given["yes"]:
            held = f" with {call.view.holds}" if call.view.holds else ""
            typer.confirm(f"Delete the {call.view.noun} {name}{held}?", abort=True)
        forced = {"force": True} if call.given.get("force") else {}
        group.delete(name, **forced)
    typer.echo(f"deleted the {call.view.noun} {name}")


def report_losses(losses: Losses) -> None:
    """Tell what goes with texts that are erased, and what stays."""
    for run_id, kinds in losses.items():
        rows = ", ".join(f"{kind} ({number:,})" for kind, number in kinds.items())
        say(f"{f'run {run_id}' if run_id else 'chats and others'}: the text is erased from {rows}")
    if losses:
        say(
            "tokens, costs and scores stay, and so does what says the same in other words; texts in"
            " exported files, in copies and backups of the store (a server's write-ahead log, too),"
            " and at the providers of models are not reached from here"
        )


def revert(call: ResourceCall) -> None:
    """Give an agent an earlier persona again, as its newest version."""
    with call.open() as space:
        agent = space.agents.revert(call.place[1], call.given["version"])
        call.print(
            agent, f"the persona of {agent.full_name} is version {agent.persona_version} now"
        )


def export(call: ResourceCall) -> None:
    """Write one of the {many} to a file, with all that belongs to it: `import` reads it again."""
    output, name = call.given["output"], call.place[1]
    with call.open() as space:
        number = call.view.group(space).export(
            name, output, embeddings=bool(call.given.get("embeddings"))
        )
    if output != "-":
        say(f"{number:,} lines written to {output}")


def import_file(call: ResourceCall) -> None:
    """Take in what `export` wrote, all or nothing; memories without embeddings are embedded."""
    with call.open() as space, open_status() as tell:

        def note(done: int, whole: int) -> None:
            tell(f"{done:,} of {whole:,} memories embedded")

        file, name = call.given["file"], call.given.get("as_name")
        call.view.group(space).import_file(file, name=name, progress=note)
    typer.echo(f"took in {call.given['file']}")


VERBS: Mapping[str, Callable[[ResourceCall], None]] = {
    "create": create,
    "list": list_all,
    "show": show,
    "update": update,
    "delete": delete,
    "revert": revert,
    "export": export,
    "import": import_file,
}
