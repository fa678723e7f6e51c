"""Hooks of the site's build: pages and a schema, generated from the code, and `llms.txt`."""

from __future__ import annotations

import inspect
import json
import re
import types
import typing
from collections.abc import Iterator, Mapping
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any

import typer.main
from mkdocs.structure.files import File, Files
from pydantic import BaseModel

import textevolve
from textevolve import Settings, cli
from textevolve.cli.app import app
from textevolve.judges.rubric import load_rubric, shipped_rubrics
from textevolve.metrics import label_metrics
from textevolve.runs.study import schema_of_all
from textevolve.settings import ENVIRONMENT

ROOT = Path(__file__).parent.parent
OPENAPI = ROOT / "tests" / "guards" / "frozen" / "openapi.json"
"""The server's description of itself, which a test compares with that of a running server."""
SECTION = re.compile(r"^(Args|Attributes|Raises|Returns|Yields|Example|Examples):$", re.MULTILINE)
SCHEMA = "schema/study.json"
"""The path by which files of studies name their schema; it stays the same."""
OWNER = "OWNER/textevolve"
SITE = "https://OWNER.github.io/textevolve/"
"""The repository and the site in the texts, which a build replaces by its own."""
WIDTH = 100
PAGES: list[Any] = []
Config = Mapping[str, Any]


def on_files(files: Files, config: Any) -> Files:
    """Add the generated pages, the changelog and the schema of studies."""
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    schema = {"$id": f"{config['site_url'] or ''}{SCHEMA}", **schema_of_all()}
    contents = {
        "reference/commands.md": "\n".join(write_commands()),
        "reference/names.md": "\n".join(write_names()),
        "reference/lists.md": "\n".join(write_lists()),
        "changelog.md": changelog.replace("](docs/", "]("),
        SCHEMA: json.dumps(schema, indent=2, ensure_ascii=False),
    }
    for path, content in contents.items():
        files.append(File.generated(config, path, content=f"{content}\n"))
    return files


def on_page_markdown(markdown: str, page: Any, config: Config, files: Files) -> str:
    """Link files outside of `docs` in the repository, name its owner, and keep the text for
    `llms.txt`."""
    repository = config["extra"]["social"][0]["link"]
    markdown = markdown.replace("](../", f"]({repository}/blob/main/")
    owner = "/".join(repository.split("/")[-2:])
    markdown = markdown.replace(OWNER, owner).replace(SITE, config["site_url"] or SITE)
    page.meta["text"] = markdown
    return markdown


def on_nav(nav: Any, config: Config, files: Files) -> None:
    """Remember the order of the pages."""
    PAGES[:] = nav.pages


def on_post_build(config: Config) -> None:
    """Write `llms.txt`, and the text of each page beside it."""
    site = Path(config["site_dir"])
    lines = [f"# {config['site_name']}", "", f"> {config['site_description']}", "", "## Pages", ""]
    for page in PAGES:
        source = page.file.src_uri
        (site / source).parent.mkdir(parents=True, exist_ok=True)
        (site / source).write_text(page.meta["text"], encoding="utf-8")
        address = f"{config['site_url'] or ''}{source}"
        lines.append(f"- [{page.title}]({address}){find_summary(page.meta['text'])}")
    (site / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def find_summary(markdown: str) -> str:
    """Return the first sentence of a page, after a colon; nothing if it begins with code."""
    paragraphs = [part for part in markdown.split("\n\n") if not part.startswith("#")]
    text = re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", " ".join(paragraphs[0].split()))
    sentence = re.match(r"[A-Z`*].*?(?:[.?](?= |$)|:$)", text)
    return f": {sentence[0].rstrip(':')}" if sentence else ""


def write_commands() -> Iterator[str]:
    """Yield each command with its help, as `--help` prints it."""
    yield "# Commands\n\nThe help of every command, as `--help` prints it."
    for path, text in walk_commands(typer.main.get_command(app)):
        yield f"\n## {path}\n\n```text\n{text.rstrip()}\n```"


def walk_commands(command: Any, name: str = "textevolve", parent: Any = None) -> Iterator[Any]:
    context = command.context_class(command, info_name=name, parent=parent, terminal_width=WIDTH)
    yield context.command_path, command.get_help(context)
    for below in command.list_commands(context) if hasattr(command, "list_commands") else ():
        yield from walk_commands(command.get_command(context, below), below, context)


def write_names() -> Iterator[str]:
    """Yield each public name with its signature and docstring, and the methods of classes."""
    yield "# Names in Python\n\nEverything that `from textevolve import NAME` offers."
    for name in sorted(textevolve.__all__, key=str.lower):
        thing = getattr(textevolve, name)
        yield f"\n## {name}\n"
        if not callable(thing):
            yield f"`{thing!r}`"
            continue
        yield f"```python\n{write_signature(name, thing)}\n```\n"
        yield write_docstring(thing)
        for method, function in vars(thing).items() if inspect.isclass(thing) else ():
            if method[0] != "_" and inspect.isfunction(function):
                yield f"\n### {name}.{method}\n"
                yield f"```python\n{write_signature(method, function)}\n```\n"
                yield write_docstring(function)


def write_signature(name: str, thing: Any) -> str:
    """Write a signature, with a line for each parameter if it is long."""
    if inspect.isclass(thing) and issubclass(thing, Exception):
        return f"class {name}({thing.__base__.__name__})"
    signature = inspect.signature(thing)
    kind = "async def" if inspect.iscoroutinefunction(thing) else "def"
    kind = "class" if inspect.isclass(thing) else kind
    parts: list[str] = []
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not any(p[0] == "*" for p in parts):
            parts.append("*")
        parts.append(write_parameter(parameter))
    returned = signature.return_annotation
    end = "" if returned in (signature.empty, None) else f" -> {write_type(returned)}"
    line = f"{kind} {name}({', '.join(parts)}){end}"
    if len(line) <= WIDTH:
        return line
    return "\n    ".join([f"{kind} {name}(", *(f"{part}," for part in parts)]) + f"\n){end}"


def write_parameter(parameter: inspect.Parameter) -> str:
    mark = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    text = mark + parameter.name
    if parameter.annotation is not parameter.empty:
        text += f": {write_type(parameter.annotation)}"
    if parameter.default is not parameter.empty:
        default = re.sub(r" at 0x\w+|<function (\w+)>", r"\1", repr(parameter.default))
        text += f" = {'...' if default.startswith('<') or len(default) > 60 else default}"
    return text


def write_type(annotation: Any) -> str:
    """Write a type without the module names and without pydantic's limits."""
    annotation = drop_limits(annotation)
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return re.sub(r"\b(?:textevolve|collections|typing|pathlib)(?:\.\w+)*\.(?=\w)", "", text)


def drop_limits(annotation: Any) -> Any:
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return drop_limits(parts[0])
    if origin in (typing.Union, types.UnionType):
        return reduce(or_, map(drop_limits, parts))
    return origin[tuple(map(drop_limits, parts))] if origin in (dict, tuple) else annotation


def write_docstring(thing: Any) -> str:
    """Write a docstring as Markdown: its sections become lists."""
    text = inspect.getdoc(thing) or "" if thing.__doc__ else ""  # not that of a parent
    if text.startswith(f"{thing.__name__}("):  # a dataclass without one
        return ""
    text = SECTION.sub(r"\n**\1**\n", text)
    text = re.sub(r"^    (\*{0,2}\w+): ", r"- `\1`: ", text, flags=re.MULTILINE)
    return re.sub(r"^ {6,8}(?=\S)", "  ", text, flags=re.MULTILINE)


def write_lists() -> Iterator[str]:
    """Yield settings, exit codes, metrics, rubrics and HTTP paths."""
    yield "# Settings, metrics, rubrics, HTTP\n\n## Settings\n"
    yield "| setting | type | default | environment |\n|---|---|---|---|"
    variables = {name: variable for variable, name in ENVIRONMENT.items()}
    for name, field in walk_settings(Settings):
        kind = write_type(field.annotation).replace("|", "\\|")
        default = "" if field.default_factory else f"`{field.default!r}`"
        yield f"| `{name}` | `{kind}` | {default} | {variables.get(name, '')} |"
    codes = re.search(r"Exit codes: (.*?)\.\n", f"{cli.__doc__}", re.DOTALL)
    assert codes, "the command line's docstring no longer lists its exit codes"
    yield "\n## Exit codes\n\n| code | |\n|---|---|"
    for code in " ".join(codes[1].split()).split("; "):
        yield "| {} | {} |".format(*code.split(" ", 1))
    yield "\n## Metrics\n\n[Explained](../metrics.md) beside [judges](../judges.md#names).\n"
    yield from (f"- `{one.form}`" for one in label_metrics.SHIPPED.values())
    yield "- `FILE.py:FUNCTION`, `MODULE:FUNCTION`\n\n## Rubrics\n"
    for name in shipped_rubrics():
        yield f"### {name}\n\n```text\n{load_rubric(name).source.strip()}\n```\n"
    yield "## HTTP paths\n\n| method | path | |\n|---|---|---|"
    for path, methods in json.loads(OPENAPI.read_text(encoding="utf-8"))["paths"].items():
        for method, operation in methods.items():
            text = " ".join(operation.get("description", operation["summary"]).split())
            query = [one["name"] for one in operation.get("parameters", ()) if one["in"] == "query"]
            address = f"{path}?{'&'.join(f'{name}=' for name in query)}" if query else path
            yield f"| {method.upper()} | `{address}` | {text.partition('. ')[0]} |"


def walk_settings(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, field in model.model_fields.items():
        if isinstance(field.default, BaseModel):
            yield from walk_settings(type(field.default), f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", field
