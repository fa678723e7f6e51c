"""The commands `models templates`: instruction formats, and the chat templates of models.

They print exactly the text that a model reads.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Any

import typer

from textevolve.cli import FAILED, options
from textevolve.cli.drawing import open_console
from textevolve.errors import InputError
from textevolve.llm.chat_formats.catalogue import CHAT_FORMATS, chat_format
from textevolve.llm.chat_formats.chat_format import (
    ChatFormat,
    read_conversation,
    render_chat,
    to_jinja,
)
from textevolve.llm.chat_formats.detection import check_chat_template, detect_prompt
from textevolve.llm.chat_formats.parsing import parse_chat
from textevolve.llm.chat_formats.sources import is_model_file, read_chat_template
from textevolve.report.terminal import draw_facts
from textevolve.report.terminal_tables import safe
from textevolve.report.wording import visible
from textevolve.rows import read_text

ModelFile = Annotated[
    str,
    typer.Argument(
        metavar="MODEL-FILE",
        help="A model's folder, its GGUF file, tokenizer_config.json, or a Jinja file.",
    ),
]


def list_formats(as_json: options.Json = False) -> None:
    """List the known instruction formats."""
    if as_json:
        _print_json([_data(format) for format in CHAT_FORMATS.values()])
        return
    width = max(map(len, CHAT_FORMATS))
    for name, format in CHAT_FORMATS.items():
        parts = {"system": format.system, "thoughts": format.thoughts}
        has = ", ".join(part for part, there in parts.items() if there is not None)
        typer.echo(f"{name:{width}}  {format.title}\n{'':{width}}  {has or 'no system message'}")


def show(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="The name of a format, as `models templates list` shows it."
        ),
    ],
    as_jinja: Annotated[
        bool, typer.Option("--jinja", help="Print the format as a Jinja chat template.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Show a format: its markers and rules, or a chat template that writes the same."""
    format = chat_format(name)
    if as_jinja:
        _write(to_jinja(format))
        return
    if as_json:
        _print_json(_data(format))
        return
    console = open_console()
    console.print(safe(f"{format.name}: {format.title}", "bold"))
    fields = format.model_dump(mode="json", exclude_defaults=True, exclude={"name", "title"})
    facts = [(field, safe(_spell(value))) for field, value in fields.items()]
    console.print(draw_facts([*facts, ("markers", safe(_spell(format.markers)))]))


def convert(
    source: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="A file with messages in JSON, the body of a chat request, or a prompt in some"
            " format; - is standard input.",
        ),
    ],
    to: Annotated[
        str | None, typer.Option("--to", metavar="NAME", help="The name of the format to write.")
    ] = None,
    template: Annotated[
        str | None,
        typer.Option(
            "--template", "-t", help="A model's file, whose chat template is used instead of --to."
        ),
    ] = None,
    came_from: Annotated[
        str | None,
        typer.Option("--from", metavar="NAME", help="The format of the prompt; default: detected."),
    ] = None,
) -> None:
    """Write a prompt or a conversation as a model reads it, byte for byte. Without --to and
    --template a prompt becomes a conversation in JSON.

    With --to, a marker of the format inside a message is broken up, so that no text can pretend to
    be another speaker; a template writes messages unchanged.
    """
    if is_model_file(source):
        raise InputError(
            f"{source}: is a model's file, not a prompt; check its template with: textevolve"
            f" models templates check {source}"
        )
    messages, tools, asks = _read(read_text(source), source, came_from)
    if template is not None:
        model = read_chat_template(template)
        _write(model.render(messages, tools=tools, add_generation_prompt=asks))
    elif tools:
        raise InputError(
            "the known formats cannot write tools; name a model's own template with --template FILE"
        )
    elif to is None:
        _write(json.dumps({"messages": messages}, indent=2, ensure_ascii=False) + "\n")
    else:
        _write(render_chat(chat_format(to), messages, add_generation_prompt=asks))


def check(
    model_file: ModelFile,
    as_json: options.Json = False,
) -> None:
    """Report the format that a model's chat template writes, and whether it keeps the system
    message.

    Exit codes: 0 the system message is kept; 1 the model never sees it.
    """
    model = read_chat_template(model_file)
    result = check_chat_template(model)
    if as_json:
        formats = {"format": result.format, "formats": list(map(asdict, result.formats))}
        _print_json({"origin": model.origin, **formats, "system": result.system})
    else:
        near = "".join(
            f"; like {near_format.name}: {near_format.same} of {near_format.of}"
            for near_format in result.formats[:1]
        )
        typer.echo(model.origin)
        typer.echo(f"  format          {result.format or f'none that is known{near}'}")
        typer.echo(f"  system message  {visible(result.system) or 'kept'}")
    raise typer.Exit(FAILED if result.system else 0)


def _print_json(data: Any) -> None:
    typer.echo(json.dumps(data))


def _data(format: ChatFormat) -> dict[str, Any]:
    return format.model_dump(mode="json", exclude_defaults=True) | {"markers": format.markers}


def _spell(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _read(text: str, name: str, came_from: str | None) -> tuple[list[dict[str, Any]], Any, bool]:
    """Return the messages and tools of a file, and whether it ends with a request for an answer."""
    if came_from is None and text.lstrip().startswith(("[", "{")):
        chat = read_conversation(text, name)
        return chat.messages, chat.tools, True
    names = [came_from] if came_from else detect_prompt(text)
    if not names:
        raise InputError(
            f"{name}: the prompt is in none of the known formats; name its format with --from"
        )
    parsed = parse_chat(chat_format(names[0]), text)
    messages = [dict(message) for message in parsed.messages]
    return messages, None, parsed.add_generation_prompt


def _write(text: str) -> None:
    """Print only the text; raise InputError for characters that only JSON can express."""
    try:
        typer.echo(text.encode(), nl=False)
    except UnicodeEncodeError as error:
        half = text[error.start].encode("ascii", "backslashreplace").decode()
        raise InputError(
            f"the text has half of a surrogate pair, {half}, which is not valid Unicode"
        ) from error
