"""The specification of a comparison: its prompts, variants, metrics and judges, as options that are
read and checked.

`compare` runs it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

from pydantic import TypeAdapter, ValidationError, field_validator, model_validator

from textevolve.errors import InputError
from textevolve.images import named_images
from textevolve.json_texts import is_mapping, is_object, is_sequence
from textevolve.judges.judge import Judge, SeveralJudges, parse_judge, require_absolute
from textevolve.ledger import leave_out
from textevolve.llm.chains.chat_template import ChatRole, ChatTemplate, write_text_template
from textevolve.llm.chains.langchain_prompts import find_langchain_prompt
from textevolve.llm.model import Message
from textevolve.llm.targets import FORMS, VERSION_HELP, NamedTarget, Target, keep_common_key
from textevolve.metrics.label_metrics import needs_label, open_metric
from textevolve.report import wording
from textevolve.rows import DATA_ENDINGS, read_argument, read_text
from textevolve.rows.columns import IMAGES
from textevolve.runs.chains import chains_among
from textevolve.spec import Count, Frozen, Several, explain, option
from textevolve.studies.rows import CheckList, MappedSpec, check_option, with_checks_judge
from textevolve.texts.placeholders import fill, find_placeholders, whole_placeholder
from textevolve.texts.yaml_lines import parse_yaml
from textevolve.user_code import OWN, names_chain

PLAIN = (".txt", ".md", ".prompt", ".jinja")
"""The endings of prompt files that hold a plain template."""
TEMPLATES = ("prompt", "template")
"""The fields of a prompt file with fields that may hold a plain template."""
DESCRIBING = ("name", "description")
"""The fields of such a file that say what it is, and that nothing needs."""


class ChatMessage(Frozen):
    """One message of a chat prompt. `content` may contain placeholders of columns."""

    role: ChatRole
    content: str


class NamedPrompt(Frozen):
    """A prompt template with the name under which results show it: either a plain `text` or the
    `messages` of a chat. Placeholders are names of columns in braces."""

    name: str
    text: str = ""
    messages: tuple[ChatMessage, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _read(cls, value: Any) -> Any:
        """Replace the field `file` with the text or messages in that file, unless they are set as
        well."""
        if not is_object(value) or "file" not in value:
            return value
        fields = dict(value)
        path = str(fields.pop("file"))
        text = fields.pop("text", None) or read_text(path)
        name = str(fields.pop("name", "") or Path(path).stem)
        if Path(path).suffix.lower() in DATA_ENDINGS:
            return {**fields, "name": name, **read_prompt(text, path)}

        return {**fields, "name": name, "text": text}

    @model_validator(mode="after")
    def _usable(self) -> NamedPrompt:
        if not self.name.strip():
            raise InputError("a prompt has no name")
        if self.text.strip() and self.messages:
            raise InputError(f"prompt {self.name}: give a text or messages, not both")
        if self.messages and not any(message.role == "user" for message in self.messages):
            raise InputError(f"prompt {self.name}: no message has the role user")
        return self

    @property
    def is_blank(self) -> bool:
        return not any(text.strip() for _, text in self.templates)

    @property
    def templates(self) -> tuple[tuple[ChatRole, str], ...]:
        """The role and template of each message, in order."""
        if not self.messages:
            return (("user", self.text),)
        return tuple((message.role, message.content) for message in self.messages)

    def placeholders(self, columns: Collection[str]) -> tuple[str, ...]:
        return find_placeholders("\n".join(text for _, text in self.templates), columns)

    def chat_columns(self, columns: Collection[str]) -> tuple[str, ...]:
        """Return the columns of which a message of the user consists. A chat in one of them is sent
        as messages."""
        texts = (text for role, text in self.templates if role == "user")
        names = (whole_placeholder(text, columns) for text in texts)
        return tuple(dict.fromkeys(name for name in names if name is not None))

    def fill(
        self,
        values: Mapping[str, str],
        system: str = "",
        images: tuple[str, ...] = (),
        chats: Mapping[str, tuple[Message, ...]] = {},
    ) -> tuple[Message, ...]:
        """Return the messages to send, with `system` first if none has its role. `images` are
        attached to the last message of the user if a message names them or the row has them in a
        column, unless an earlier message has them. `chats`: the messages of columns that hold a
        chat, for templates that consist of such a column."""
        messages: list[Message] = []

        for role, template in self.templates:
            name = whole_placeholder(template, chats) if role == "user" else None
            if name is None:
                messages.append(Message(role, (fill(template, values),)))
            else:
                messages += chats[name]

        if system and all(message.role != "system" for message in messages):
            messages.insert(0, Message("system", (fill(system, values),)))
        if images:
            last = max(n for n, message in enumerate(messages) if message.role == "user")
            # Beside the column of images, those that a message names and that none has sent.
            text = "".join([values.get(IMAGES, ""), *(message.text for message in messages)])
            sent = {url for message in messages[:last] for url in message.images}
            urls = (url for url in named_images(text, images) if url not in sent)
            messages[last] = replace(messages[last], images=tuple(urls))

        return tuple(messages)

    def fill_opening(self, values: Mapping[str, str], system: str) -> tuple[Message, ...]:
        """Return the messages that precede a conversation. A plain text becomes the system message,
        unless it is blank."""
        if self.messages:
            return self.fill(values, system)
        return () if self.is_blank else (Message("system", (fill(self.text, values),)),)

    def show(self, values: Mapping[str, str]) -> str:
        """Return the filled prompt as one text, for judges and readers."""
        filled = self.fill(values)
        if len(filled) == 1:
            return filled[0].text
        return "\n\n".join(f"{message.role}: {message.text}" for message in filled)


def read_prompt(text: str, source: str) -> dict[str, Any]:
    """Read a prompt in a YAML or JSON text: a list of messages, a mapping with `messages` or with a
    template as `prompt` or `template`, a template alone, or a saved prompt of LangChain. Other
    fields are recorded as left out.

    Returns:
        The `messages` or the `text` of a prompt.

    Raises:
        InputError: there is no prompt in it.
    """
    saved = find_langchain_prompt(text, source)
    if saved is not None:
        return {"messages": _list_messages(saved)}
    _, data = parse_yaml(text, source)
    inner: Any = data

    if is_object(data):
        holders = [name for name in ("messages", *TEMPLATES) if data.get(name)]
        inner = data[holders[0]] if len(holders) == 1 else None
        others = [name for name in data if name not in (*holders, *DESCRIBING)]
        leave_out("field", f"{source}: a prompt takes no {', '.join(others)}", len(others))

    if isinstance(inner, str) and inner.strip():
        return {"text": inner}
    if not isinstance(inner, list) or not inner:
        raise InputError(
            f"{source}:1: must be a list of messages, each with a role and a content, or have one"
            " of the fields messages, prompt and template"
        )

    try:
        return {"messages": TypeAdapter(list[ChatMessage]).validate_python(inner)}
    except (InputError, ValidationError) as error:
        reason = explain(error) if isinstance(error, ValidationError) else error
        raise InputError(f"{source}: {reason}") from None


def _list_messages(template: ChatTemplate) -> list[ChatMessage]:
    return [
        ChatMessage(role=message.role, content=write_text_template(message.parts))
        for message in template.messages
    ]


Prompts: TypeAlias = (
    tuple[str | NamedPrompt | dict[str, str], ...]
    | dict[str, str | dict[str, str] | tuple[ChatMessage, ...]]
)
"""Prompts in a study file or in Python: a list, or a mapping from names to templates, files, fields
or chats."""


def take_prompts(prompts: Any) -> Any:
    """Convert prompts from Python or YAML to fields of `NamedPrompt`. They are a list of templates,
    files or fields, or a mapping from names to templates or lists of messages. A template may be
    @FILE."""
    if is_mapping(prompts):
        return [
            _check(f"prompts.{name}", _by_name(str(name), prompt))
            for name, prompt in prompts.items()
        ]

    if not is_sequence(prompts):
        raise InputError(
            "prompts must be a list of templates, or a mapping from names to them, not"
            f" {wording.shorten(repr(prompts), 60)}"
        )

    return [_check(f"prompts.{n}", _take(prompt, n + 1)) for n, prompt in enumerate(prompts)]


def _check(place: str, fields: Any) -> Any:
    """Return a prompt. An error names the place: that of one prompt of many would be unknown."""
    if not is_mapping(fields):
        return fields
    try:
        return NamedPrompt(**fields)
    except InputError as error:
        raise InputError(f"{place}: {error}") from error.__cause__


def _by_name(name: str, content: Any) -> Any:
    if isinstance(content, str | Path):
        return {**_take(content, 0), "name": name}
    if is_mapping(content):  # the fields of a prompt, such as {file: NAME}
        return {**content, "name": name}
    template = find_langchain_prompt(content)
    return {"name": name, "messages": content if template is None else _list_messages(template)}


def _take(prompt: Any, number: int) -> Any:
    if isinstance(prompt, Path):
        return {"file": str(prompt)}
    if isinstance(prompt, str):
        if (prompt.startswith("@") and prompt[1:2] != "@") or _names_file(prompt):
            return {"file": prompt.removeprefix("@")}
        return {"name": f"prompt {number}", "text": read_argument(prompt)}
    template = find_langchain_prompt(prompt)
    if template is None:
        return prompt

    return {"name": f"prompt {number}", "messages": _list_messages(template)}


def _names_file(text: str) -> bool:
    """Tell whether a text is the name of a prompt's file: a single word with the ending of one,
    which a template that asks for something never is."""
    return not re.search(r"[\s{}]", text) and Path(text).suffix.lower() in (*DATA_ENDINGS, *PLAIN)


DEFAULT_JUDGE = "single"
MOST_SAMPLES = 100
"""The most outputs of a variant for a row."""


class CompareSpec(MappedSpec):
    """Run prompts and models over your rows, score every output, and say which is better.

    Every prompt with every model is a variant, and so is each of your applications (targets), and
    each column of existing outputs. The first is the baseline. Judges see the row filled into the
    baseline's prompt as the input, so that no prompt wins by asking for something easier.
    """

    kind: ClassVar[str] = "compare"

    prompts: tuple[NamedPrompt, ...] = option(
        (),
        "A file with a prompt template, in which {names} are columns; .yaml or .json for a chat."
        " Repeatable.",
        flag="--prompt",
        short="-p",
        text="named-file",
        group="Variants",
    )
    models: Several = option(
        (),
        "A model that answers the prompts, or a chain. Repeatable.",
        flag="--model",
        short="-m",
        group="Variants",
    )
    user_model: str | None = option(
        None,
        "The model that simulates the user of a conversation, with the goal and persona of each"
        " row.",
        group="Variants",
        metavar="MODEL",
    )
    max_turns: int = option(
        10,
        "The most messages of a simulated user in a conversation.",
        group="Advanced",
        ge=1,
        le=100,
    )
    targets: tuple[NamedTarget, ...] = option(
        (),
        f"Your application that gives outputs: {FORMS}. Repeatable.",
        flag="--target",
        group="Variants",
        metavar="TARGET",
        identity=False,  # `describe` has them
    )
    target_version: str = option("", VERSION_HELP, group="Advanced", identity=False)
    outputs: Several = option(
        (),
        "A column of the rows with existing outputs. Repeatable.",
        group="Variants",
        metavar="COLUMN",
    )
    baseline: str | None = option(
        None, "The variant that others are compared with; default: the first.", group="Variants"
    )
    system: str = option(
        "", "A system message for prompts without one.", group="Advanced", text="argument"
    )
    data: str = option(
        "",
        "A file of rows as JSONL, JSON, CSV or Parquet.",
        short="-d",
        group="Data",
        identity=False,
        reads=True,
    )
    label: str | None = option(
        None, "The column with the right answer, for metrics and judges.", group="Data"
    )
    input: str | None = option(
        None, "The column with the input that judges see.", group="Advanced", metavar="COLUMN"
    )
    context: str | None = option(
        None,
        "The column with the texts (context) that an output must be faithful to.",
        group="Advanced",
        metavar="COLUMN",
    )
    metric: Several = option(
        (),
        "A metric: exact, regex:PATTERN, rouge-l, FILE.py:FUNCTION, ... Repeatable.",
        group="Judging",
    )
    judge: SeveralJudges = option(
        (),
        "A judge that scores outputs, such as probe+rules. Repeatable. Default without a metric:"
        f" {DEFAULT_JUDGE}.",
        short="-j",
        group="Judging",
    )
    check: CheckList = check_option()
    each_turn: Several = option(
        (),
        "A metric or judge that scores each answer of a conversation, not the whole"
        " conversation. Repeatable.",
        group="Judging",
        metavar="NAME",
    )
    score_by: str | None = option(
        None,
        "The metric or judge that decides which variant is better; default: the first.",
        group="Advanced",
    )
    threshold: float | None = option(
        None,
        "The score from 0 to 1 from which an output passes; default: the metric's or judge's own"
        " verdict.",
        group="Judging",
        ge=0,
        le=1,
    )
    side_by_side: bool = option(
        False,
        "Have debates and judges that compare, such as pairwise, judge all outputs of a row"
        " together; other judges still judge each output alone.",
        group="Advanced",
    )
    model: str | None = option(
        None,
        "The model for judges that name none.",
        flag="--judge-model",
        group="Advanced",
        identity=False,
    )
    samples: int = option(
        1,
        "The number of outputs of each variant for each row.",
        group="Advanced",
        ge=1,
        le=MOST_SAMPLES,
    )
    temperature: float | None = option(
        0.0, "The temperature of the outputs.", group="Advanced", ge=0, le=2
    )
    max_output_tokens: Count = option(512, "The most tokens of an output.", group="Advanced")
    seed: int = option(
        0, "The seed of the outputs and of the significance tests.", group="Advanced"
    )

    @field_validator("prompts", mode="before", json_schema_input_type=Prompts)
    @classmethod
    def _take_prompts(cls, value: Any) -> Any:
        return take_prompts(value)

    @field_validator("targets")
    @classmethod
    def _keep_common_key(cls, targets: tuple[Target, ...]) -> tuple[Target, ...]:
        return keep_common_key(targets)

    @model_validator(mode="after")
    def _usable(self) -> CompareSpec:
        if self.prompts and all(prompt.is_blank for prompt in self.prompts):
            raise InputError(f"prompt {self.prompts[0].name}: is blank; give a template with text")
        chains = chains_among(*self.models)
        if self.prompts and chains and len(chains) == len(self.models):
            raise InputError(
                "a chain answers rows without a prompt: name also a model for the prompts, or"
                " leave the prompts out"
            )

        if not (self.prompts or self.outputs or chains or self.targets):
            raise InputError(
                "nothing to compare: name a prompt template with --prompt, an application with"
                " --target, or a column of outputs with --outputs"
            )

        for names, fault in (
            (self.metric, "the same metric is named twice; name each once"),
            (self.judge, "the same judge is named twice; name each once"),
            (
                [prompt.name for prompt in self.prompts],
                "two prompts have the same name; give each a different name",
            ),
            (self.models, "two models have the same name; give each a different name"),
        ):
            if len(set(names)) < len(names):
                raise InputError(fault)

        baseline_of(self, variants_of(self))
        _check_scorers(self)

        return self


def _check_scorers(spec: CompareSpec) -> None:
    for metric in spec.metric:
        if not metric.startswith(OWN):
            open_metric(metric)
            if needs_label(metric) and spec.label is None:
                raise InputError(f"metric {metric} needs a label: name its column with --label")

    together = together_of(spec)

    for judge in (judge for judge in judges_of(spec) if judge not in together):
        try:
            require_absolute(judge)
        except InputError as error:
            hint = "; or judge outputs --side-by-side" if _compares(judge) else ""
            raise InputError(f"{error}{hint}") from None

    names = (*spec.metric, *map(str, judges_of(spec)))

    for name in (*spec.each_turn, *filter(None, [spec.score_by])):
        if name not in names:
            raise InputError(
                f"no metric or judge of this study is '{name}'; there are: {', '.join(names)}"
            )

    if compared := next((judge for judge in together if judge.text in spec.each_turn), None):
        raise InputError(
            f"--each-turn {compared}: this judge compares whole outputs with --side-by-side, and"
            " cannot score single turns"
        )


@dataclass(frozen=True, slots=True)
class Variant:
    """A compared variant, which has one source of outputs: a `prompt` with a `model`, a `column` of
    existing outputs, a `chain` by its name, or a `target` (an application that is called)."""

    name: str
    prompt: NamedPrompt | None = None
    model: str = ""
    column: str = ""
    chain: str = ""
    target: Target | None = None


def variants_of(spec: CompareSpec) -> tuple[Variant, ...]:
    """Return the variants. Their names contain what differs between them: the prompt, the model, or
    both.

    Raises:
        InputError: two have the same name.
    """
    chains = chains_among(*spec.models)
    models = tuple(model for model in spec.models if model not in chains) or ("",)
    variants: list[Variant] = []
    for prompt, model in itertools.product(spec.prompts, models):
        parts = [prompt.name] if len(spec.prompts) > 1 or len(models) == 1 else []
        parts += [model] if len(models) > 1 else []
        variants.append(Variant(", ".join(parts), prompt, model))

    variants += [Variant(chain.removeprefix(OWN), chain=chain) for chain in chains]
    variants += [Variant(target.label, target=target) for target in spec.targets]
    variants += [Variant(column, column=column) for column in spec.outputs]
    names = [variant.name for variant in variants]
    if double := next((name for name in names if names.count(name) > 1), None):
        raise InputError(f"two variants have the name '{double}'; names must differ")

    return tuple(variants)


def baseline_of(spec: CompareSpec, variants: Sequence[Variant]) -> Variant | None:
    """Return the variant that the others are compared with; None without variants.

    Raises:
        InputError: no variant has the baseline's name; lists the names.
    """
    if spec.baseline is None:
        return next(iter(variants), None)
    for variant in variants:
        if spec.baseline == variant.name:
            return variant
    names = "; ".join(variant.name for variant in variants)
    raise InputError(f"no variant is named '{spec.baseline}'; there are: {names}")


def judges_of(spec: CompareSpec) -> tuple[Judge, ...]:
    """Return the judges, whose texts are their names in results; the default judge if neither a
    judge nor a metric is named."""
    judges = with_checks_judge(spec.judge) if spec.check else spec.judge
    return judges or (() if spec.metric else (parse_judge(DEFAULT_JUDGE),))


def together_of(spec: CompareSpec) -> tuple[Judge, ...]:
    """Return the judges that see all outputs of a row at once: debates, and judges that can only
    compare outputs; none unless `side_by_side` is set."""
    return tuple(judge for judge in judges_of(spec) if spec.side_by_side and _compares(judge))


def _compares(judge: Judge) -> bool:
    return judge.is_relative or any(leaf.is_debate for leaf in judge.leaves())


def decides(spec: CompareSpec) -> str:
    """Return the name of the metric or judge whose score counts: the one that `score_by` names,
    else the first metric, else the first judge."""
    return spec.score_by or next(iter((*spec.metric, *map(str, judges_of(spec)))))


def with_models(spec: CompareSpec) -> dict[str, Judge]:
    """Return each judge with its model, by its name in results."""
    first_model = next((m for m in spec.models if not names_chain(m)), None)
    return {judge.text: judge.with_model(spec.model or first_model) for judge in judges_of(spec)}
