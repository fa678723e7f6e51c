"""Read chat templates from the files of models, and render them as transformers does.

A template comes from a folder as transformers saves it (`chat_template.jinja` and
`additional_chat_templates/`, or `tokenizer_config.json`), from one of these files alone, or from a
GGUF file. A model may have several, with names: `tool_use` writes conversations with tools.
A template is code of a stranger: it runs in Jinja's sandbox, in a separate process, with limits of
time, memory and size. The process (`jinja_engine`) is started with the first template, shared by
all, and ends with this process.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import date, datetime, time
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from textevolve.errors import InputError, SettingsError
from textevolve.evaluation import empty_default
from textevolve.json_texts import as_array, as_object, is_object
from textevolve.ledger import log
from textevolve.llm.chat_formats.chat_format import join_text_parts
from textevolve.llm.gguf import read_tokenizer
from textevolve.mappings import drop_none, first_of
from textevolve.settings import today
from textevolve.system import CAN_LIMIT_PROCESSES, KILLED, PROCESSOR_TIME_IS_OVER

DONE = b"d"
REFUSED = b"r"
FAILED = b"f"
TOO_LONG = b"l"
NO_MEMORY = b"m"
MIB = 1 << 20
START_SECONDS = 120.0
_ENGINE = Path(__file__).with_name("jinja_engine.py")
_BOOT = "import runpy, sys; sys.path[:] = {path!r}; runpy.run_path({file!r}, run_name='__main__')"


@dataclass(frozen=True, slots=True)
class TemplateLimits:
    """The limits of rendering a template.

    Attributes:
        source: The most characters of the template.
        text: The most characters of the rendered text.
        seconds: The most seconds of processor time for one rendering.
        patience: The most elapsed seconds for one rendering.
        memory: The most bytes of memory, in addition to what the process needs without a template.
    """

    source: int = 256 * 1024
    text: int = 16 * MIB
    seconds: float = 5.0
    patience: float = 120.0
    memory: int = 512 * MIB


@dataclass(eq=False)
class _Running:
    process: subprocess.Popen[bytes]
    limits: TemplateLimits
    requests: Connection[Any, Any]
    answers: Connection[Any, Any]
    owner: int = field(default_factory=os.getpid)

    def exchange(self, request: bytes, patience: float) -> bytes:
        """Send a request and return the answer; empty if the process was killed or does not answer
        in time."""
        try:
            self.requests.send_bytes(request)
            has_answer = self.answers.poll(patience)
            return self.answers.recv_bytes(4 * self.limits.text + 1) if has_answer else b""
        except (EOFError, OSError):
            return b""

    def close_pipes(self) -> None:
        self.requests.close()
        self.answers.close()


_lock = threading.Lock()
_running: _Running | None = None


def render_apart(request: bytes, limits: TemplateLimits) -> str:
    """Render a conversation in the separate process, and return the text. `request`: JSON with the
    time in ISO format, the source of the template, its values and the messages.

    Raises:
        InputError: the source is no template, or the template refuses the values, fails, or exceeds
            a limit.
        SettingsError: the process cannot be started here.
    """
    with _lock:
        running = _get_running(limits)
        try:
            answer = running.exchange(request, limits.patience)
        except BaseException:
            _end(running)  # what was left unread would answer the next template
            raise

        kind = answer[:1]
        text = answer[1:].decode("utf-8", "surrogatepass")
        code = 0 if kind in (DONE, REFUSED, FAILED) else _end(running)

    if kind == DONE:
        return text
    reasons = {
        REFUSED: f"refuses these messages: {text}",
        FAILED: f"fails: {text}",
        TOO_LONG: f"writes more than {limits.text:,} characters",
        NO_MEMORY: f"takes more than {limits.memory / MIB:,.0f} MiB of memory",
        -PROCESSOR_TIME_IS_OVER: f"takes more than {limits.seconds:g} s of processor time",
        -KILLED: f"has not ended after {limits.patience:g} s, or was killed from outside",
    }
    other = f"makes Python itself fail (exit code {code})"
    raise InputError(f"the chat template {reasons.get(kind or code, other)}")


def _get_running(limits: TemplateLimits) -> _Running:
    """Return the process with these limits, and start it if there is none."""
    global _running
    if _running is not None and _running.owner != os.getpid():
        _running.process.returncode = 0  # in a fork: it serves the parent
        _running.close_pipes()
        _running = None

    if _running is not None and (_running.limits != limits or _running.process.poll() is not None):
        _end(_running)
    if _running is None:
        _running = _start(limits)

    return _running


def _start(limits: TemplateLimits) -> _Running:
    if sys.platform == "win32" or not CAN_LIMIT_PROCESSES:
        raise SettingsError(
            "Jinja chat templates are foreign code, which runs only in a process with limits of"
            " time and memory, and this system has no such limits: name a known format instead"
        )

    path = list(map(os.path.abspath, sys.path))
    theirs, requests = Pipe(duplex=False)
    answers, sink = Pipe(duplex=False)

    with theirs, sink:
        try:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _BOOT.format(path=path, file=str(_ENGINE))],
                stdin=theirs.fileno(),
                stdout=sink.fileno(),
                stderr=subprocess.DEVNULL,
                env={"TZ": os.environ["TZ"]} if "TZ" in os.environ else {},
                cwd="/",
                start_new_session=True,  # a key that interrupts this process does not reach it
            )
        except OSError as error:
            raise SettingsError(
                f"the process for chat templates does not start ({error}); name a known format"
                " instead"
            ) from error

    running = _Running(process, limits, requests, answers)
    if running.exchange(json.dumps(asdict(limits)).encode(), START_SECONDS) == DONE:
        return running
    code = _end(running)
    raise SettingsError(
        f"the process for chat templates does not start (exit code {code}); name a known format"
        " instead"
    )


def _end(running: _Running) -> int:
    """End the process, and return its exit code."""
    global _running
    if _running is running:
        _running = None
    try:
        code = running.process.wait(timeout=0.5)
    except subprocess.TimeoutExpired:
        running.process.kill()
        code = running.process.wait()

    running.close_pipes()

    return code


@atexit.register
def end_rendering() -> None:
    """End the rendering process if it is running; the next template starts a new one."""
    with _lock:
        if _running is not None and _running.owner == os.getpid():
            _running.process.kill()
            _end(_running)


LIMITS = TemplateLimits()
ChatMessages = Sequence[Mapping[str, Any]]
_REASONING = ("reasoning_content", "thinking", "reasoning")
"""The field names under which a template may read a message's reasoning; the first is the usual
one."""


@dataclass(frozen=True, slots=True)
class JinjaTemplate:
    """A Jinja chat template with its special tokens. A token that is None is undefined in the
    template. `origin`: the path of the template's file. `tokens`: further special tokens by their
    names, such as `pad_token`. `named`: the model's other templates by their names."""

    source: str
    bos_token: str | None = ""
    eos_token: str | None = ""
    limits: TemplateLimits = LIMITS
    origin: str = ""
    tokens: Mapping[str, str] = empty_default(dict)
    named: Mapping[str, str] = empty_default(dict)

    def render(
        self,
        messages: ChatMessages,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = False,
        continue_final_message: bool = False,
        chat_template: str | None = None,
        **values: Any,
    ) -> str:
        """Render a conversation, byte for byte like `apply_chat_template` in transformers.

        `messages`, `tools` (JSON schemas), `documents` and `values` hold JSON values. Keys of a
        message whose value is None are left out. The date that a template asks for is that of
        `TEXTEVOLVE_TODAY` where it is set. `continue_final_message`: end within the last message,
        so that the model continues it. `chat_template`: the name of one of the model's templates,
        or the source of another one; default: `tool_use` for tools, if the model has it.

        Raises:
            InputError: no messages, values that are not JSON, or a template that refuses the
                messages, fails or breaks a limit.
        """
        if not messages:
            raise InputError("a conversation without a message cannot be rendered")
        source = self._choose_source(chat_template, tools is not None)
        tokens = {**self.tokens, "bos_token": self.bos_token, "eos_token": self.eos_token}
        variables = {
            **drop_none(tokens),
            **values,
            "tools": tools,
            "documents": documents,
            "add_generation_prompt": add_generation_prompt,
        }
        if continue_final_message and add_generation_prompt:
            raise InputError(
                "continue_final_message and add_generation_prompt exclude each other: the first"
                " ends within the last message, the second begins another one"
            )
        talk = list(map(_prepare, messages))
        final_text = _mark_end(talk[-1]) if continue_final_message else ""

        if len(source) > self.limits.source:
            raise InputError(
                f"the chat template has {len(source):,} characters, and at most"
                f" {self.limits.source:,} are allowed: it may not be a chat template"
            )

        try:
            request = json.dumps([_now().isoformat(), source, variables, talk])
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(f"a conversation must be made of JSON values: {error}") from error

        text = render_apart(request.encode(), self.limits)

        return _cut_at_end(text, final_text) if continue_final_message else text

    def _choose_source(self, chat_template: str | None, has_tools: bool) -> str:
        """Return the template for a conversation, by the rules of transformers.

        Raises:
            InputError: the model has several templates, and none of them is the default.
        """
        if chat_template is not None:
            # A model with one template has no names, so the text is a source.
            sources_by_name = {**self.named, "default": self.source} if self.named else {}
            if chat_template not in sources_by_name and "{" not in chat_template:
                names = ", ".join(sorted(sources_by_name)) or "one without a name"
                raise InputError(
                    f"{self.origin}: has no chat template '{chat_template:.60}'; it has {names}"
                )
            return sources_by_name.get(chat_template, chat_template)
        if has_tools and "tool_use" in self.named:
            return self.named["tool_use"]
        if not self.source and self.named:
            names = ", ".join(sorted(self.named))
            raise InputError(
                f"{self.origin}: has several chat templates and no default; name one of them as"
                f" chat_template: {names}"
            )

        return self.source


_END_MARK = "CONTINUE_FINAL_MESSAGE_TAG "
"""The text that transformers, too, puts at the place where the last message is cut."""


def _mark_end(message: dict[str, Any]) -> str:
    """Put the mark behind the text of the last message, and return that text.

    Raises:
        InputError: the message has no text that could be continued.
    """
    content = message.get("content")
    if isinstance(content, str):
        message["content"] = content + _END_MARK
        return content

    parts = as_array(content)
    for place in reversed(range(len(parts))):
        fields = as_object(parts[place])
        text = fields.get("text")
        if isinstance(text, str):
            parts[place] = {**fields, "text": text + _END_MARK}
            message["content"] = parts
            return text

    raise InputError("continue_final_message: the last message has no text to continue")


def _cut_at_end(text: str, final_text: str) -> str:
    """Return the rendered text up to the mark. A template that trims texts also removes the white
    space at the end of the mark; that of the message before it goes, too."""
    place = text.rfind(_END_MARK.strip())
    if place < 0:
        raise InputError(
            "continue_final_message: the chat template leaves out the end of the last message, so"
            " it cannot be continued"
        )
    if final_text.strip() not in text:
        raise InputError(
            "continue_final_message: the chat template leaves out or changes a part of the last"
            " message, such as its thoughts, so the model would continue another one: send the"
            " message without that part"
        )
    is_whole = text.startswith(_END_MARK, place)

    return text[:place] if is_whole else text[:place].rstrip()


def render_request(
    template: JinjaTemplate,
    messages: ChatMessages,
    *,
    tools: Sequence[Mapping[str, Any]] | None = None,
    add_generation_prompt: bool = False,
    **values: Any,
) -> str:
    """Render the messages of a chat request as a server does. Some templates expect the arguments
    of tool calls as objects and others as texts of JSON; some write a content of text parts, and
    others need one text. The messages are in the first form that the template writes without any
    value of Python. Messages that it leaves out are named in warnings.

    Raises:
        InputError: as `JinjaTemplate.render`; or the template writes parts, such as images, as
            Python does.
    """
    parsed = list(map(_parse_arguments, messages))
    plain = [list(map(_join_parts, talk)) for talk in (parsed, messages)]
    talks = [parsed, messages, *plain]
    refusal: InputError | None = None
    write = partial(
        template.render, tools=tools, add_generation_prompt=add_generation_prompt, **values
    )

    for place, talk in enumerate(talks):
        if talk in talks[:place]:
            continue
        try:
            text = write(talk)
        except InputError as error:
            refusal = refusal or error
            continue

        # A value that a template joins to its text is written as Python writes it.
        if not any(value and str(value) in text for value in _find_values(talk)):
            _report_quoted(talk, text)
            _report_left_out(talk, write)
            return text

    raise refusal or InputError(
        "the chat template takes texts alone, and would write a list or an object as Python does:"
        " leave out images, and give arguments of tools as texts of JSON"
    )


def _find_values(messages: ChatMessages) -> Iterator[object]:
    """Yield the contents and arguments that are no texts."""
    for message in messages:
        yield as_array(message.get("content"))
        yield from map(as_object, _list_arguments(message))


def _list_arguments(message: Mapping[str, Any]) -> list[Any]:
    """Return the arguments of a message's calls, which are fields of a call or of its function."""
    calls = map(as_object, as_array(message.get("tool_calls")))
    return [as_object(call.get("function") or call).get("arguments") for call in calls]


def _report_quoted(messages: ChatMessages, text: str) -> None:
    """Warn of arguments that are no JSON objects and stand in the rendered text as quoted texts."""
    for number, message in enumerate(messages, 1):
        for arguments in _list_arguments(message):
            if isinstance(arguments, str) and json.dumps(arguments, ensure_ascii=False) in text:
                log.warning(
                    "message %s: the arguments of a call are no JSON object, and the model sees"
                    " them as a quoted text: %.60s",
                    number,
                    arguments,
                )


def _report_left_out(messages: ChatMessages, write: Callable[[ChatMessages], str]) -> None:
    """Warn of messages that are not in the rendered text: some templates know no such role. They
    are looked for by a number in the place of each text, since one text may occur in another, and
    a template may change letters."""
    marks = [str(7_000_000 + number) for number in range(len(messages))]
    marked = list(map(_mark_text, messages, marks))
    with suppress(InputError):
        text = write(marked)
        for number, message in enumerate(messages):
            if marked[number] != message and marks[number] not in text:
                log.warning(
                    "the chat template leaves out message %s: the model never sees it", number + 1
                )


def _mark_text(message: Mapping[str, Any], mark: str) -> Mapping[str, Any]:
    """Return the message with a mark in the place of its text or of its parts' texts, if any."""
    match message.get("content"):
        case str(content) if content.strip():
            return {**message, "content": mark}
        case [*parts]:
            fields = map(as_object, parts)
            marked = [{**part, "text": mark} if part.get("text") else part for part in fields]
            return {**message, "content": marked}
        case _:
            return message


def _join_parts(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the message with its text parts as one text, which is empty if it has no content, as
    of one that only calls tools. Parts that are no texts stay."""
    with suppress(InputError):
        return {**message, "content": join_text_parts(message.get("content") or "", 0)}
    return message


def _parse_arguments(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the message with arguments of tool calls as objects; an empty text has none."""
    calls: list[Any] = []
    for call, text in zip(
        as_array(message.get("tool_calls")), _list_arguments(message), strict=True
    ):
        with suppress(TypeError, ValueError, RecursionError):
            value: Any = json.loads("{}" if text == "" else text)
            if is_object(value):
                function = as_object(call.get("function"))
                parsed = {**(function or call), "arguments": value}
                call = {**call, "function": parsed} if function else parsed
        calls.append(call)

    return {**message, "tool_calls": calls} if calls else message


def _prepare(message: Mapping[str, Any]) -> dict[str, Any]:
    """Drop fields that are None, and add reasoning under each name that templates use."""
    fields = drop_none(message)
    reasoning = first_of(fields, _REASONING)
    if reasoning is None:
        return fields
    return {"thinking": reasoning, **fields, "reasoning_content": reasoning}


def _now() -> datetime:
    """Return the current time, or the start of the day that `TEXTEVOLVE_TODAY` sets."""
    now = datetime.now()
    day = date.fromisoformat(today())
    return now if now.date() == day else datetime.combine(day, time())


JINJA = "chat_template.jinja"
NAMED = "additional_chat_templates"
CONFIG = "tokenizer_config.json"
_JINJA = (".jinja", ".jinja2", ".j2")


def is_model_file(path: Path | str) -> bool:
    """Return whether a path may hold a model's chat template: a folder, or a file with a known
    name."""
    place = Path(path).expanduser()
    return place.suffix in (".gguf", *_JINJA) or place.name == CONFIG or place.is_dir()


def read_chat_template(path: Path | str) -> JinjaTemplate:
    """Read the chat template of a model from its folder, a GGUF file, or a single template or
    configuration file.

    Raises:
        InputError: no such file, one that is damaged, or one without a chat template.
    """
    place = Path(path).expanduser()
    if place.is_dir():
        # A file of its own comes before the configuration, as in transformers.
        files = [place / JINJA, place / CONFIG, *sorted(place.glob("*.gguf"))]
        place = next((file for file in files if file.is_file()), place / JINJA)

    if not place.is_file():
        raise InputError(f"{place}: there is no such file or folder")
    if place.suffix == ".gguf":
        try:
            texts = read_tokenizer(place)
        except SettingsError as error:
            raise InputError(str(error)) from error
        return JinjaTemplate(
            texts.template,
            texts.bos,
            texts.eos,
            origin=str(place),
            tokens=texts.tokens,
            named=texts.named,
        )

    if place.suffix not in (".json", *_JINJA):
        raise InputError(
            f"{place}: a chat template cannot be read from this file: give a folder, a GGUF file,"
            f" {CONFIG} or a file that ends in .jinja"
        )

    config = place if place.suffix == ".json" else place.with_name(CONFIG)
    config_fields = _load(config) if config.is_file() else {}
    sources_by_name: dict[str, str] = {}
    if place.suffix in _JINJA:
        source = _read(place)
        if place.name == JINJA:
            sources_by_name = {
                file.stem: _read(file) for file in sorted((place.parent / NAMED).glob("*.jinja"))
            }
    else:
        sources_by_name = _named(config_fields, place)
        source = sources_by_name.pop("default", "")

    return JinjaTemplate(
        source,
        _token(config_fields, "bos_token"),
        _token(config_fields, "eos_token"),
        origin=str(place),
        tokens=_more_tokens(config_fields),
        named=sources_by_name,
    )


def _more_tokens(fields: Mapping[str, Any]) -> dict[str, str]:
    """Return the special tokens of a configuration: those that all models may have, and the model's
    own, such as `image_token`."""
    tokens: dict[str, Any] = {name: fields[name] for name in fields if name.endswith("_token")}
    for group in ("extra_special_tokens", "model_specific_special_tokens"):
        tokens |= as_object(fields.get(group))

    return drop_none({name: _token(tokens, name) for name in tokens})


def _token(fields: Mapping[str, Any], name: str) -> str | None:
    match fields.get(name):
        case str(token) | {"content": str(token)}:
            return token
        case _:
            return None


def _named(fields: Mapping[str, Any], place: Path) -> dict[str, str]:
    """Return the templates of a configuration by their names; a single one is the default."""
    written: Any = fields.get("chat_template")
    if isinstance(written, str):
        return {"default": written}

    sources_by_name: dict[str, str] = {}
    for entry in as_array(written):
        match entry:
            case {"name": str(name), "template": str(source)}:
                sources_by_name[name] = source
            case _:
                pass

    if not sources_by_name:
        raise InputError(f"{place}: has no field chat_template")

    return sources_by_name


def _load(place: Path) -> dict[str, Any]:
    try:
        data = json.loads(_read(place))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{place}: not JSON: {error}") from error

    if not is_object(data):
        raise InputError(f"{place}: not a JSON object")
    return data


def _read(place: Path) -> str:
    """Read a file as text, with its line endings unchanged."""
    try:
        return place.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{place}: cannot be read, or is not text in UTF-8 ({error})") from error
