"""MCP, by which coding agents and other assistants use this server: its tools, and how they are
answered over standard input and output or over streamable HTTP.

Each tool does what a path of the HTTP API does, by the same functions: the caller's scopes and
namespaces, the reach of a study and the quotas of keys hold here as there. The package `mcp` speaks
the protocol.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, TypeAlias, cast

from mcp import types
from mcp.server import Server as McpServer
from mcp.server import ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager

import textevolve
from textevolve.errors import InputError
from textevolve.json_texts import is_array, is_object, parse_text, write_text
from textevolve.mappings import drop_none, omit, pick
from textevolve.remote.wire import StudyStatus, WireLimits
from textevolve.rows.writing import plain
from textevolve.runs.stored import StudyRun, read_records
from textevolve.runs.study import OURS, schema_of
from textevolve.server.app import open_state
from textevolve.server.errors import as_api_error, log
from textevolve.server.guard import LARGER, MCP_PATH
from textevolve.server.identity import THIS_MACHINE, Caller, caller_of, require_scope
from textevolve.server.options import ServerOptions
from textevolve.server.resources_api import MemorySearch, list_found, open_memories
from textevolve.server.state import ServerState
from textevolve.server.studies.api import begin, cancel_study
from textevolve.server.studies.reading import (
    RunFilter,
    VisibleRun,
    find_study_run,
    list_page,
    run_detail,
    write_report,
)
from textevolve.settings import Settings
from textevolve.spec import Frozen, NonEmpty, option, suggest
from textevolve.store.keys import KeyScope

STEP_SECONDS = 2.0
"""The seconds between two reports of progress while a tool waits for a run."""
USUAL_WAIT = 45.0
"""The seconds that a tool waits for a run, unless the client says otherwise. Many clients give up
after 60."""
MOST_TEXTS = 40_000
LEAST_TEXT = 500
"""About the most characters of all results in an answer, since clients cut long answers, and those
that each text of a result has at least. A result has about four texts."""
ROWS_FILE = "rows.jsonl"


INSTRUCTIONS = """Measure texts, prompts and models with judges whose scores can be checked. Scores
are from 0 to 1; null means that no score could be given, which is not 0, and `reason` says why.
A judge is named by a text: probe+rules (a checklist, cheap), single (one model states a score),
pairwise (compares the candidates), metric:exact and other metrics:NAME that call no model, or none
for a debate of agents. `rubric` replaces a judge's questions by your own criteria, a line each.
Equal calls are answered from the store at no cost. A run that is not finished when a tool answers
goes on: call show_run with its id, or cancel_run."""


class Waiting(Frozen):
    """The argument of tools that wait for a run."""

    wait: float = option(
        USUAL_WAIT,
        "The most seconds to wait for the results; the run then goes on without you.",
        ge=0,
        le=3600,
    )


class Launching(Waiting):
    """The arguments of all tools that begin a run."""

    name: str = option("", "A name for the run.")
    namespace: str | None = option(None, "The namespace that the run belongs to.")
    limits: WireLimits = option(WireLimits(), "The most US dollars, tokens and calls of the run.")


class StudyArguments(Launching):
    """The arguments of tools that run a study of several rows."""

    rows: tuple[dict[str, Any], ...] = option(
        description="The rows, as objects. evaluate: `input` and `candidates` (a list of texts)."
        " compare: the columns that prompts name in {braces}, and further ones such as a label.",
        min_length=1,
    )


class CompareArguments(StudyArguments):
    """The arguments of the tool that compares prompts, models or outputs."""

    prompts: dict[str, Any] = option(
        {},
        "Prompts by their names: a template, in which {names} are columns, or a list of chat"
        " messages.",
    )


class JudgeArguments(Launching):
    """The arguments of the tool that judges one text."""

    text: NonEmpty = option(description="The text to judge.")
    input: str = option(description="What the text answers: a question, a task or an instruction.")
    reference: str | None = option(None, "A right answer, for judges and metrics that read one.")
    context: str | None = option(None, "The material that the text must be faithful to.")


class ListArguments(Frozen):
    """The arguments of the tool that lists runs."""

    kind: str = option("", "Only runs of this kind of study, such as compare.")
    status: StudyStatus | None = option(None, "Only runs with this status.")
    text: str = option("", "Only runs with this text in their id or name.")
    limit: int = option(20, "The most runs.", ge=1, le=500)
    cursor: str = option("", "The value of `next` in the previous page.")


class RunArguments(Frozen):
    """The argument of tools about one run."""

    run: NonEmpty = option(description="The run's id.")


class ShowArguments(RunArguments, Waiting):
    """The arguments of the tool that shows a run."""

    offset: int = option(0, "How many results to leave out at the beginning.", ge=0)
    limit: int = option(20, "The most results.", ge=0, le=500)
    report: int = option(6000, "The most characters of the report, in Markdown.", ge=0)


class SearchArguments(MemorySearch):
    """The arguments of the tool that searches memories."""

    namespace: str = option(description="The namespace of the collection.")
    collection: str = option(description="The name of the collection.")


@dataclass(frozen=True, slots=True)
class McpCall:
    """A call of a tool.

    Attributes:
        values: The arguments as they were sent, without those of `own`.
        own: The arguments that are no fields of a specification.
        report: Report the seconds that the caller has waited, and how far the run is.
    """

    server: ServerState
    caller: Caller
    values: Mapping[str, Any]
    own: Any
    report: Callable[[float, float, str], Awaitable[None]]


Handler: TypeAlias = Callable[[McpCall], Awaitable[dict[str, Any]]]


@dataclass(frozen=True)
class Tool:
    """A tool. Its description is the docstring of `answer`.

    Attributes:
        own: The model of the arguments that are no fields of a specification.
        kind: The kind of study whose specification has the other arguments; empty for none.
        fields: The fields of that specification that clients are shown.
        scope: What the caller needs.
    """

    answer: Handler
    own: type[Frozen]
    scope: KeyScope
    kind: str = ""
    fields: tuple[str, ...] = ()

    @cached_property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of the arguments, without references, which some clients cannot read."""
        schema = self.own.model_json_schema()
        properties = _plain_schema(schema["properties"], schema.get("$defs", {}))
        if self.kind:
            spec = schema_of(self.kind)
            shown = pick(spec["properties"], self.fields)
            properties |= _plain_schema(shown, spec.get("$defs", {}))

        return {
            "type": "object",
            "properties": properties,
            "required": schema.get("required", []),
            "additionalProperties": False,
        }


def _plain_schema(value: Any, definitions: Mapping[str, Any]) -> Any:
    """Return a part of a schema with its references replaced by what they stand for, and without
    what only people read."""
    if is_array(value):
        return [_plain_schema(item, definitions) for item in value]
    if not is_object(value):
        return value
    if "$ref" in value:
        name = str(value["$ref"]).rpartition("/")[2]
        value = {**definitions[name], **omit(value, ["$ref"])}
    # A property of one of these names is an object, and stays.
    texts = [name for name in (*OURS, "title", "default") if not is_object(value.get(name))]
    part = {name: _plain_schema(entry, definitions) for name, entry in omit(value, texts).items()}
    choices = [choice for choice in part.get("anyOf", ()) if choice != {"type": "null"}]
    if len(choices) == 1:
        part = {**omit(part, ["anyOf"]), **choices[0]}
    described = part.get("description")
    if isinstance(described, str):
        part["description"] = described.removesuffix(" Repeatable.")

    return part


def _read_arguments(tool: Tool, sent: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return the arguments that are no fields of a specification, and those that are. Null is the
    same as leaving an argument out. Some clients send lists and objects as texts of JSON.

    Raises:
        InputError: an argument is missing, unknown or invalid.
    """
    properties = tool.schema["properties"]
    values = drop_none(sent)
    unknown = next((name for name in values if name not in properties), None)
    if unknown is not None:
        raise InputError(f"unknown argument '{unknown:.60}'{suggest(unknown, list(properties))}")

    for name, value in values.items():
        if isinstance(value, str) and not _takes_text(properties[name]):
            values[name] = parse_text(value)
    own_names = tool.own.model_fields

    return tool.own(**pick(values, own_names)), omit(values, own_names)


def _takes_text(schema: Mapping[str, Any]) -> bool:
    kinds = schema.get("type", "")
    return "string" in kinds or "enum" in schema or any(map(_takes_text, schema.get("anyOf", ())))


async def evaluate(call: McpCall) -> dict[str, Any]:
    """Score the candidate texts of each row by a judge, with feedback; the best of each row."""
    return await _run_study(call, {"kind": "evaluate", "cases": [ROWS_FILE]}, call.own.rows)


async def compare(call: McpCall) -> dict[str, Any]:
    """Run prompts and models on rows, score all outputs by metrics or judges, and test which
    variant is better, with intervals."""
    body = {"kind": "compare", "data": ROWS_FILE, "prompts": call.own.prompts}
    return await _run_study(call, body, call.own.rows)


async def judge(call: McpCall) -> dict[str, Any]:
    """Score one text from 0 to 1, with feedback and a verdict."""
    own = call.own
    row = {"input": own.input, "candidates": [own.text]}
    row |= drop_none({"reference": own.reference, "context": own.context})
    return await _run_study(call, {"kind": "evaluate", "cases": [ROWS_FILE]}, [row], report=0)


async def _run_study(
    call: McpCall, body: dict[str, Any], rows: Sequence[Mapping[str, Any]], report: int = 6000
) -> dict[str, Any]:
    """Begin a study of rows, wait for it, and return its results so far. If the client cancels the
    call meanwhile, the run is cancelled, too."""
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    own = call.own
    launch = drop_none({"name": own.name, "namespace": own.namespace})
    launch |= {"limits": own.limits.model_dump(), "files": {ROWS_FILE: lines}}
    run, _ = await begin(call.server, call.caller, {**body, **call.values, "run": launch})
    try:
        await _wait_for(call, run.id)
    except asyncio.CancelledError:
        call.server.runner.give_up(run.id)
        raise

    return await asyncio.to_thread(_describe, call, run.id, 0, 20, report)


async def _wait_for(call: McpCall, run_id: str) -> None:
    """Wait until the run ends, or the caller's time is over, and report the progress."""
    runner = call.server.runner
    seconds: float = call.own.wait
    clock = asyncio.get_running_loop().time
    began = clock()

    while runner.works_on(run_id) and not runner.ending.is_set():
        waited = clock() - began
        if waited >= seconds:
            return
        counts = await asyncio.to_thread(runner.store.count_records, run_id)
        await call.report(waited, seconds, f"{sum(counts.values())} records")
        await runner.wait(run_id, min(STEP_SECONDS, seconds - waited))


def _describe(
    call: McpCall, run_id: str, offset: int, limit: int, most_report: int
) -> dict[str, Any]:
    """Return a run as tools answer it: its state, some results and the beginning of its report."""
    server = call.server
    seen = find_study_run(server, call.caller, run_id)
    detail = run_detail(server, seen)
    shown = detail.model_dump(
        mode="json",
        include={"id", "kind", "name", "status", "reason", "model", "cases", "records"},
    )
    spent = detail.spent
    tokens = spent.prompt_tokens + spent.completion_tokens
    shown["spent"] = {"calls": spent.calls, "tokens": tokens, "cost": spent.cost}
    if not detail.records:
        return shown

    rows = _read_results(server, seen, offset, limit + 1)
    shown["results"] = rows[:limit]
    if len(rows) > limit:
        shown["next_offset"] = offset + limit
    if most_report:
        with write_report(server, seen, "md") as file:
            shown["report"] = _cut(file.read().decode(), most_report)

    return shown


def _read_results(server: ServerState, seen: VisibleRun, offset: int, limit: int) -> list[Any]:
    """Return rows of a run's table of results, without what is empty and without costs."""
    run = StudyRun(seen.run)
    results: list[Any] = []

    with server.runner.confine(seen.served):
        table = run.study.table(read_records(server.store, run)())
        rows = list(islice(table, offset, offset + limit))
        most = max(LEAST_TEXT, MOST_TEXTS // (4 * max(len(rows), 1)))
        for row in rows:
            shown = {
                name: _cut(value, most) if isinstance(value, str) else value
                for name, value in drop_none(row).items()
                if value != "" and not name.startswith(COSTS)
            }
            results.append(shown)

    return results


COSTS = ("usage", "judging", "case_")
"""The beginnings of columns with calls and tokens, of which a tool shows the sum of the run."""


def _cut(text: str, most: int) -> str:
    cut = len(text) - most
    return text if cut <= 0 else f"{text[:most]} [... {cut:,} more characters]"


async def list_runs(call: McpCall) -> dict[str, Any]:
    """List stored runs, the newest first. `next` is the cursor of the next page."""
    own = call.own
    run_filter = RunFilter(own.kind, own.status, own.text)
    return await asyncio.to_thread(
        list_page, call.server, call.caller, run_filter, own.cursor, own.limit
    )


async def show_run(call: McpCall) -> dict[str, Any]:
    """Show a run: its status, its results from `offset` on, and its report."""
    own = call.own
    await asyncio.to_thread(find_study_run, call.server, call.caller, own.run)
    await _wait_for(call, own.run)
    return await asyncio.to_thread(_describe, call, own.run, own.offset, own.limit, own.report)


async def cancel_run(call: McpCall) -> dict[str, Any]:
    """Stop a run. Its answers stay stored, and the same call resumes it."""
    seen = await asyncio.to_thread(find_study_run, call.server, call.caller, call.own.run)
    await cancel_study(call.server, call.caller, seen)
    return await asyncio.to_thread(_describe, call, call.own.run, 0, 0, 0)


async def search_memories(call: McpCall) -> dict[str, Any]:
    """Find memories of a collection that are relevant to a text, best first."""
    own = call.own
    place = (own.namespace, own.collection)
    search = MemorySearch(**omit(own.model_dump(exclude_unset=True), ("namespace", "collection")))
    async with open_memories(call.server, call.caller, place, "read", embeds=True) as memories:
        return await list_found(memories, search)


JUDGING = ("judge", "rubric", "check", "model", "threshold", "seed")
TOOLS: Mapping[str, Tool] = {
    "judge": Tool(judge, JudgeArguments, "run", "evaluate", JUDGING),
    "evaluate": Tool(evaluate, StudyArguments, "run", "evaluate", (*JUDGING, "profile", "map")),
    "compare": Tool(
        compare,
        CompareArguments,
        "run",
        "compare",
        (
            *("models", "system", "outputs", "baseline", "label", "input", "context"),
            *("metric", "judge", "check", "score_by", "threshold", "samples", "temperature"),
            *("max_output_tokens", "seed", "model"),
        ),
    ),
    "list_runs": Tool(list_runs, ListArguments, "read"),
    "show_run": Tool(show_run, ShowArguments, "read"),
    "cancel_run": Tool(cancel_run, RunArguments, "run"),
    "search_memories": Tool(search_memories, SearchArguments, "read"),
}


def describe_tools() -> list[types.Tool]:
    """Return the tools as clients list them."""
    return [
        types.Tool(
            name=name,
            description=inspect.cleandoc(tool.answer.__doc__ or "").replace("\n", " "),
            input_schema=tool.schema,
            annotations=types.ToolAnnotations(read_only_hint=tool.scope == "read"),
        )
        for name, tool in TOOLS.items()
    ]


def make_mcp_server(state: ServerState) -> McpServer[Any]:
    """Return the server of the protocol for a running server of ours."""

    async def list_tools(_: ServerRequestContext[Any], _params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=describe_tools())

    async def call_tool(
        context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        # Without an HTTP request, the client has started this process.
        caller = THIS_MACHINE if context.request is None else caller_of(context.request)
        try:
            tool = TOOLS.get(params.name)
            if tool is None:
                raise InputError(f"no tool '{params.name:.60}'{suggest(params.name, list(TOOLS))}")
            require_scope(caller, tool.scope)
            own, values = _read_arguments(tool, params.arguments or {})
            report = context.session.report_progress
            answer = plain(await tool.answer(McpCall(state, caller, values, own, report)))
        except Exception as error:  # noqa: BLE001  the protocol's package would hide its message
            log.info("the tool %s was refused: %s", params.name, type(error).__name__)
            return _fail(error)

        text = write_text(answer)
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=text)], structured_content=answer
        )

    return McpServer(
        "textevolve",
        version=textevolve.__version__,
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def _fail(error: Exception) -> types.CallToolResult:
    """Return an error's message as the result of a tool, so that the client's model reads it; what
    it is not meant to see is logged."""
    api_error = as_api_error(error)
    if api_error.status == 500:
        log.error("a tool failed", exc_info=error)
    text: str = plain(api_error.message)
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=True)


async def run_stdio(options: ServerOptions, settings: Settings) -> None:
    """Serve the client that has started this process, until it closes the standard input.

    Raises:
        TextEvolveError: the models, judges or store to serve cannot be opened.
    """
    asyncio.get_running_loop().set_exception_handler(_report_unexpected)
    async with open_state(options, settings, None) as state:
        server = make_mcp_server(state)
        async with stdio_server() as (received, sent):
            await server.run(received, sent, server.create_initialization_options())


def _report_unexpected(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Report an exception that no task has handled, except an interrupt. A signal may arrive while
    a task of the protocol's package runs; the interrupt reaches the command all the same."""
    error = context.get("exception")
    if isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).split(KeyboardInterrupt)[1]
        if error is None:
            return
    if not isinstance(error, KeyboardInterrupt):
        loop.default_exception_handler(context)


@asynccontextmanager
async def open_mcp(state: ServerState) -> AsyncGenerator[StreamableHTTPASGIApp]:
    """Open the ASGI application that answers at `MCP_PATH`. It keeps no sessions, which clients
    with another key could use: each request has its own key."""
    manager = StreamableHTTPSessionManager(
        make_mcp_server(state), stateless=True, max_request_body_size=LARGER[MCP_PATH]
    )
    async with manager.run():
        yield StreamableHTTPASGIApp(manager)
