"""`textevolve models list|pull|quantize`: the local models with their weights, and the progress bar
of downloads.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from textevolve.cli import FAILED, options
from textevolve.cli.results import draw_transfer, open_console
from textevolve.errors import InputError
from textevolve.llm import weights
from textevolve.llm.chat_formats.catalogue import (
    CHAT_FORMATS,
    chat_format,
    check_chat_template,
    detect_prompt,
)
from textevolve.llm.chat_formats.chat_format import (
    ChatFile,
    ChatFormat,
    parse_chat,
    read_conversation,
    render_chat,
    to_jinja,
)
from textevolve.llm.chat_formats.inference import parse_prompt
from textevolve.llm.chat_formats.sources import (
    JinjaTemplate,
    is_model_file,
    read_chat_template,
    render_request,
)
from textevolve.llm.providers import LOCAL, PROVIDERS
from textevolve.llm.quantize import Quantized, check_copy, quantize_file, quantized_name
from textevolve.llm.weights import fetch
from textevolve.report.terminal import draw_facts, safe
from textevolve.report.wording import visible
from textevolve.rows import open_text
from textevolve.settings import Settings, read_settings


def list_models(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON list.")] = False,
) -> None:
    """List the known local models: size, licence, and whether they are downloaded and checked."""
    settings = read_settings()
    rows = weights.list_weights(settings)
    if as_json:
        typer.echo(json.dumps([asdict(row) | {"path": str(row.path)} for row in rows], indent=2))
        return
    width = max(len(row.name) for row in rows)
    for row in rows:
        size = f"{row.bytes / 1e9:.2f} GB"
        note = f"  ({row.note})" if row.note else ""
        typer.echo(f"{row.name:{width}}  {size:>8}  {row.licence:10}  {row.state:11}{note}")

    typer.echo(f"\nkept in {settings.weights_folder}; used as local/NAME")


def pull(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="The names of the local models; default: the default model."),
    ] = None,
) -> None:
    """Fetch weights and check their hash; a broken download resumes.

    Existing weights are hashed again, and fetched again if they are damaged.
    """
    settings = read_settings()

    for name in names or [PROVIDERS[LOCAL].default_model or ""]:
        weights.forget_check(name.removeprefix(f"{LOCAL}/"), settings)
        with draw_transfer() as report:
            path = weights.fetch(name.removeprefix(f"{LOCAL}/"), settings, report)
        typer.echo(f"{name}: ready in {path}")


def quantize(
    file: Annotated[
        str, typer.Argument(help="A GGUF file, or the name of a local model, which is downloaded.")
    ],
    to: Annotated[
        list[str],
        typer.Option(
            help="The types to write, such as q8_0,q4_k_m; known are f16, bf16, q8_0, q6_k,"
            " q5_k_m, q4_k_m, q4_0, q3_k_m. Repeatable.",
            metavar="TYPE,...",
        ),
    ],
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", help="The folder to write to; default: the folder of the GGUF file."
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
) -> None:
    """Make files of weights with fewer bits from a GGUF file.

    `textevolve models compare-quants` measures their quality and speed.
    """
    settings = read_settings()
    source = _find_source(file, settings)
    types = list(dict.fromkeys(name for group in to for name in group.split(",") if name.strip()))
    if not types:
        raise InputError("--to: name at least one type, such as q8_0")
    folder = source.parent if output is None else Path(output).expanduser()
    targets = {name: folder / quantized_name(source, name) for name in types}
    for into in targets.values():  # before the first takes its time
        check_copy(source, into, force=force)
    for name, into in targets.items():
        with draw_transfer() as report:
            _report_quant(quantize_file(source, name, into, force=force, report=report), settings)


def _find_source(file: str, settings: Settings) -> Path:
    name = file.removeprefix(f"{LOCAL}/")
    if Path(name).expanduser().is_dir():
        raise InputError(
            f"{file}: is a folder. Models as folders of safetensors are first converted to GGUF, by"
            " llama.cpp's convert_hf_to_gguf.py; see docs/models.md#local-models"
        )

    if name.endswith(".safetensors"):
        return _find_source(str(Path(name).expanduser().parent), settings)
    with draw_transfer() as report:
        return fetch(name, settings, report)


def _report_quant(quant: Quantized, settings: Settings) -> None:
    share = quant.bytes / quant.source_bytes
    typer.echo(f"{quant.path}: {quant.bytes / 1e6:,.1f} MB, {share:.0%} of the source")
    typer.echo(f"SHA-256 {quant.sha256}")
    is_named = quant.path.parent.resolve() == settings.weights_folder.resolve()
    typer.echo(f"used as local/{quant.path.stem if is_named else quant.path.resolve()}")


# The commands `models templates`: instruction formats, and the chat templates of models.
#
# They print exactly the text that a model reads.

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
        _print_json(list(map(_data, CHAT_FORMATS.values())))
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
        typer.Option(
            "--from",
            metavar="NAME|MODEL-FILE",
            help="The format of the prompt, or the file of the model whose template wrote it;"
            " default: detected.",
        ),
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

    # The ends of lines are part of a prompt.
    with open_text(source) as file:
        prompt = file.read()
    chat = _read(prompt, source, came_from)
    messages = chat.messages
    rendering = chat.rendering

    if template is not None or (to is None and chat.chat_template is not None):
        # A request may bring its own template, which needs no model.
        model = JinjaTemplate("") if template is None else read_chat_template(template)
        text = render_request(
            model, messages, tools=chat.tools, add_generation_prompt=chat.asks, **rendering
        )
        _write(text)
    elif chat.tools or rendering:
        parts = ", ".join(filter(None, ["tools" if chat.tools else "", *rendering]))
        raise InputError(
            f"the known formats cannot write {parts}; name a model's own template with"
            " --template FILE"
        )
    elif to is None:
        _write(json.dumps({"messages": messages}, indent=2, ensure_ascii=False) + "\n")
    else:
        _write(render_chat(chat_format(to), messages, add_generation_prompt=chat.asks))


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


def _read(text: str, name: str, came_from: str | None) -> ChatFile:
    """Return the conversation of a file, with the fields that say how it is rendered."""
    if came_from is None and text.lstrip().startswith(("[", "{")):
        return read_conversation(text, name)
    if came_from is not None and is_model_file(came_from):
        parsed = parse_prompt(read_chat_template(came_from), text)
    else:
        names = [came_from] if came_from else detect_prompt(text)
        if not names:
            raise InputError(
                f"{name}: the prompt is in none of the known formats; name its format, or the"
                " model's file, with --from"
            )
        parsed = parse_chat(chat_format(names[0]), text)

    return ChatFile(
        messages=list(map(dict, parsed.messages)),
        add_generation_prompt=parsed.add_generation_prompt,
    )


def _write(text: str) -> None:
    """Print only the text; raise InputError for characters that only JSON can express."""
    try:
        typer.echo(text.encode(), nl=False)
    except UnicodeEncodeError as error:
        half = text[error.start].encode("ascii", "backslashreplace").decode()
        raise InputError(
            f"the text has half of a surrogate pair, {half}, which is not valid Unicode"
        ) from error
