"""What a user can see without running anything, each part as one text.

Commands with their help, fields of files and settings, public names with their signatures, errors,
prompts, the document of the server's API. Whatever changes here, a user can notice.
"""

import enum
import hashlib
import importlib
import inspect
import json
import re
import tomllib
from functools import cached_property
from pathlib import Path

import typer.main

import textevolve
from textevolve import Profile, Settings
from textevolve.cli.app import app
from textevolve.settings import ENVIRONMENT

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "textevolve"
WIDTH = 100


def write_commands():
    """The help of every command, as it is printed."""
    return "\n\n".join(f"$ {path} --help\n{text.rstrip()}" for path, text in walk_commands()) + "\n"


def walk_commands(command=None, name="textevolve", parent=None):
    """Each command and group with its path and its help."""
    command = command or typer.main.get_command(app)
    context = command.context_class(command, info_name=name, parent=parent, terminal_width=WIDTH)
    yield context.command_path, command.get_help(context)
    if hasattr(command, "list_commands"):
        for below in command.list_commands(context):
            yield from walk_commands(command.get_command(context, below), below, context)


def write_studies(schemas):
    """For each kind of study its fields with defaults, types and ranges, as its files may have."""
    parts = (part for kind, schema in schemas.items() for part in (kind, *list_fields(schema), ""))
    return "\n".join(parts)


def list_fields(schema, indent="  "):
    """A line for each field of a JSON schema, those of objects within it below."""
    required = schema.get("required", [])
    for name, field in schema.get("properties", {}).items():
        rule = {key: value for key, value in field.items() if key not in ("description", "title")}
        if isinstance(rule.get("default"), str) and len(rule["default"]) > 200:
            rule["default"] = hashlib.sha256(rule["default"].encode()).hexdigest()[:12]
        mark = " (required)" if name in required else ""
        yield f"{indent}{name}{mark}: {json.dumps(rule, sort_keys=True)}"
    for name, part in schema.get("$defs", {}).items():
        yield f"{indent}[{name}]"
        if "properties" in part:
            yield from list_fields(part, indent + "  ")
        else:
            rule = {k: v for k, v in part.items() if k not in ("description", "title")}
            yield f"{indent}  {json.dumps(rule, sort_keys=True)}"


def write_settings():
    """Settings, profiles, the variables that stand for settings, entry points and extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    source = read_source()
    groups = sorted(set(re.findall(r'^GROUP = "(textevolve\.[^"]+)"', source, re.MULTILINE)))
    parts = {
        "settings": list_fields(freeze_paths(Settings.model_json_schema())),
        "profile": list_fields(Profile.model_json_schema()),
        "environment": (f"  {name}: {field}" for name, field in ENVIRONMENT.items()),
        "other variables": (f"  {name}" for name in sorted(find_variables() - set(ENVIRONMENT))),
        "scripts": (f"  {name} = {value}" for name, value in project["scripts"].items()),
        "entry points": (
            f"  {group}: {name} = {value}"
            for group, points in project["entry-points"].items()
            for name, value in points.items()
        ),
        "groups that other packages may add to": (f"  {name}" for name in groups),
        "extras": (f"  {name}" for name in project["optional-dependencies"]),
    }
    return "\n".join(line for name, lines in parts.items() for line in (name, *lines, ""))


def freeze_paths(schema):
    """The schema without defaults that are paths of this machine."""
    for name in ("store", "weights_folder"):
        schema["properties"][name].pop("default", None)
    return schema


def find_variables():
    return set(re.findall(r"\bTEXTEVOLVE_[A-Z_]*[A-Z]\b", read_source()))


def read_source():
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted(SOURCE.rglob("*.py")))


def write_names():
    """Public names with signatures; of classes their public members, too."""
    lines = []
    for module in (
        *("textevolve", "textevolve.testing", "textevolve.llm.testing"),
        "textevolve.node_eval.arbiteros",
    ):
        lines.append(module)
        loaded = importlib.import_module(module)
        for name in sorted(loaded.__all__):
            lines += [f"  {line}" for line in describe_object(name, getattr(loaded, name))]
        lines.append("")
    return "\n".join(lines)


def describe_object(name, value):
    if not inspect.isclass(value):
        return [f"{name}{describe_signature(value)}" if callable(value) else f"{name}: {value!r}"]
    bases = [base.__name__ for base in value.__mro__[1:] if base.__name__ in textevolve.__all__]
    head = f"class {name}{f' < {bases[0]}' if bases else ''}"
    if issubclass(value, enum.Enum):
        return [head, *(f"  {member.name} = {member.value!r}" for member in value)]
    lines = [f"{head}{describe_signature(value)}"]
    for member in sorted(name for name in vars(value) if not name.startswith("_")):
        if callable(getattr(value, member, None)):
            lines.append(f"  .{member}{describe_signature(getattr(value, member))}")
        elif isinstance(vars(value)[member], property | cached_property):
            lines.append(f"  .{member}")
    return lines


def describe_signature(value):
    """The parameters, each on a line of its own where they are many. Where a type stands is no
    matter to a user, so modules are left out."""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    text = re.sub(r" at 0x[0-9a-f]+", "", str(signature).replace("'", ""))
    text = re.sub(r"\b(?:textevolve|typing|collections\.abc)\.(?:\w+\.)*(?=\w)", "", text)
    text = re.sub(r"ForwardRef\((.*?), module=\w+\)", r"\1", text)
    if len(text) <= WIDTH:
        return text
    head, _, tail = text.rpartition(")")
    names = "|".join(map(re.escape, signature.parameters))
    return re.sub(rf", (?=\*{{0,2}}(?:{names})\b[:=]|[*/],)", ",\n      ", head) + ")" + tail


def write_errors():
    """The tree of errors; how a command ends; what the server says and with which status."""
    from textevolve.server.errors import as_api_error

    lines = ["errors (status over HTTP)"]
    errors = importlib.import_module(textevolve.TextEvolveError.__module__)
    for name, kind in vars(errors).items():
        if inspect.isclass(kind) and issubclass(kind, Exception):
            path = " < ".join(parent.__name__ for parent in kind.__mro__[:-3])
            answer = as_api_error(kind("a message"))
            lines.append(f"  {path}: {answer.status} {answer.code} ({name})")
    codes = inspect.getdoc(importlib.import_module("textevolve.cli")).partition("Exit codes: ")[2]
    lines += ["exit codes", *(f"  {code}" for code in " ".join(codes.split()).split("; "))]
    return "\n".join(lines) + "\n"


def write_prompts():
    """A hash of every text that the package ships for models: a changed one makes another run."""
    paths = sorted(
        (path.name, hashlib.sha256(path.read_bytes()).hexdigest()[:16])
        for pattern in ("**/prompts/*", "**/rubrics/*", "**/profiles/*")
        for path in SOURCE.glob(pattern)
        if path.suffix in (".md", ".yaml", ".txt", ".jinja")
    )
    return "".join(f"{digest}  {name}\n" for name, digest in paths)


SURFACES = {
    "commands.txt": write_commands,
    "settings.txt": write_settings,
    "names.txt": write_names,
    "errors.txt": write_errors,
    "prompts.txt": write_prompts,
}
