"""A judge as an object, and the text by which command lines, files and stored runs name it.

    NAME[:ARGUMENT][+OPTION...][@MODEL]

    probe+rules@local/laya            flags after a plus sign, the judge's own model after the @
    debate:general+rounds=1           an argument after the colon, and an option with a value
    single+decider="URL#m@v2"         a value with signs of its own, quoted as in JSON

A judge is a frozen dataclass. Its fields are its options, and its properties answer what studies
ask of it. The decorator `judge` registers it under its name. A text is parsed once, by the field of
a specification (`Judge` as its type); everything after takes the object. The modules of this room
declare the shipped judges; `opening.py` opens them.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from functools import cache, lru_cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Self,
    TypeAlias,
    TypeVar,
    cast,
    get_type_hints,
)

from pydantic import BeforeValidator, GetCoreSchemaHandler, create_model
from pydantic_core import CoreSchema, SchemaSerializer, core_schema

from textevolve.errors import InputError
from textevolve.json_texts import is_mapping
from textevolve.judges.rubric import (
    ask_criteria,
    expand_rubric,
    has_levels,
    is_rubric_name,
    load_rubric,
    read_criteria,
)
from textevolve.ledger import leave_out
from textevolve.mappings import drop_empty
from textevolve.reach import is_file
from textevolve.rows import read_text
from textevolve.spec import Frozen, suggest
from textevolve.user_code import load_point

if TYPE_CHECKING:
    from textevolve.debate.profile import Profile
    from textevolve.evaluation import Evaluator
    from textevolve.judges.opening import Judges

J = TypeVar("J", bound="type[Judge]")
ModelOfJudge = TypeVar("ModelOfJudge", str, str | None)

GROUP = "textevolve.judges"
"""The group of the entry points by which other packages add judges, each by the judge's name."""

ALIASES = {"few-shot": "examples", "reference-guided": "reference"}
"""Terms of the literature for options, with the names of the options here."""

# The modules that declare the shipped judges, in the order of `judges list`.
_MODULES = (
    "debates",
    "pairwise",
    "probe",
    "investigator",
    "decide",
    "measures",
    "statements",
    "plain",
    "checks",
    "own_prompt",
    "cascade",
    "fitted",
)

REGISTRY: dict[str, type[Judge]] = {}
"""The class of each judge that is loaded, by the name with which its text begins."""

FORMS: dict[str, dict[str, str]] = {}
"""The help of each judge by its form for `--judge`, such as `metric:NAME`, grouped by module."""


def judge_option(default: Any, help: str, *, file: bool = False) -> Any:
    """Declare a field of a judge that its text sets by `+NAME` or `+NAME=VALUE`.

    `file`: an unquoted value names a shipped text or a file, and the field then holds it after an
    @; a quoted value is the text itself.
    """
    return field(default=default, kw_only=True, metadata={"help": help, "file": file})


def judge_argument(default: Any = MISSING) -> Any:
    """Declare the field of a judge that its text sets after the colon."""
    return field(default=default, metadata={"argument": True})


def judge_aside(default_factory: Callable[[], Any]) -> Any:
    """Declare a field of a judge that its class reads from the text in its own way."""
    return field(
        default_factory=default_factory, kw_only=True, hash=False, metadata={"aside": True}
    )


@dataclass(frozen=True)
class Judge(ABC):
    """A judge before it is opened: options are its fields, and what a study asks of it are its
    properties. A judge that calls other judges has them as `parts`, and answers as they do unless
    it says otherwise.

    Attributes:
        source: The text from which it was parsed; empty if it was made in Python.
        name: The name with which its text begins; set by the decorator `judge`.
        usage: The form of a judge whose text after the colon is its argument as a whole, whatever
            signs it has; empty for others.
        ending: The ending of the files whose path is the whole text of such a judge.
        asks: Whether it calls a model that the run chooses.
        is_debate: Whether it holds a debate, whose result has more than scores.
        by_criteria: Whether each line of its rubric is a criterion of its own.
        reads_levels: Whether it asks on which of a line's levels a response is, not yes or no.
        shipped: The name of the shipped rubric by which it judges if the user gives none; empty:
            none.
    """

    source: str = field(default="", kw_only=True, repr=False)
    name: ClassVar[str] = ""
    usage: ClassVar[str] = ""
    ending: ClassVar[str] = ""
    asks: ClassVar[bool] = False
    is_debate: ClassVar[bool] = False
    by_criteria: ClassVar[bool] = False
    reads_levels: ClassVar[bool] = False
    shipped: ClassVar[str] = ""

    # As data a judge is its text, wherever it stands.
    __pydantic_serializer__: ClassVar = SchemaSerializer(
        core_schema.any_schema(serialization=core_schema.to_string_ser_schema(when_used="always"))
    )

    @abstractmethod
    def open(self, bench: Judges, rubric: str) -> Evaluator:
        """Return the evaluator that does the work. `rubric`: the result of `find_rubric`.

        Raises:
            InputError: a file or an option cannot be used.
        """

    # What others ask of a judge.

    @property
    def parts(self) -> tuple[Judge, ...]:
        """The judges that it calls."""
        return ()

    @property
    def is_swayed(self) -> bool:
        """Return whether the order of the candidates may influence the scores. Most judges see one
        candidate at a time, or each pair in both orders."""
        return any(part.is_swayed for part in self.parts)

    @property
    def is_relative(self) -> bool:
        """Return whether the scores only compare the candidates of one case with each other."""
        return any(part.is_relative for part in self.parts)

    @property
    def reads_reference(self) -> bool:
        """Return whether the judge reads the reference of a case."""
        return any(part.reads_reference for part in self.parts)

    @property
    def reads_trajectory(self) -> bool:
        """Return whether the judge reads the steps of an agent, and not only its output."""
        return any(part.reads_trajectory for part in self.parts)

    @property
    def reads_context(self) -> bool:
        """Tell whether the judge reads the passages of a case."""
        is_read = "context" in self.needs or self.reads_trajectory
        return is_read or any(part.reads_context for part in self.parts)

    @property
    def reads_row(self) -> bool:
        """Return whether a function of the user reads the row as it is."""
        return any(part.reads_row for part in self.parts)

    @property
    def reads_checks(self) -> bool:
        """Return whether it applies the checks of each row."""
        return any(part.reads_checks for part in self.parts)

    @property
    def may_ask(self) -> bool:
        """Return whether some rows may ask a model, although a run without a model is possible."""
        return any(part.may_ask for part in self.parts)

    @property
    def needs(self) -> tuple[str, ...]:
        """Return which of `context` and `reference` a case needs for a score."""
        return tuple(dict.fromkeys(need for part in self.parts for need in part.needs))

    @property
    def takes_rubric(self) -> bool:
        """Return whether a rubric of the run can replace the judge's own questions."""
        return getattr(self, "rubric", None) == ""

    @property
    def threshold(self) -> float | None:
        """The score from which it passes a text. None if its verdict does not depend on a
        threshold, as with a metric, or if its parts have different thresholds."""
        thresholds = {part.threshold for part in self.parts}
        return thresholds.pop() if len(thresholds) == 1 else None

    @property
    def profiles(self) -> tuple[Profile, ...]:
        """The profiles of its debates."""
        return tuple(profile for part in self.parts for profile in part.profiles)

    @property
    def prompts(self) -> dict[str, str]:
        """The versions of the prompts that it may use, by their names. They are part of the
        identity of a run."""
        prompts: dict[str, str] = {}
        for part in self.parts:
            prompts |= part.prompts

        return prompts

    def leaves(self) -> Iterator[Judge]:
        """Yield its innermost parts, which call no other judge; itself if it has no parts."""
        parts = self.parts
        if not parts:
            yield self
        for part in parts:
            yield from part.leaves()

    def models(self, model: ModelOfJudge) -> tuple[str | ModelOfJudge, ...]:
        """Return the models that it calls, without repetition; `model` where it names none."""
        return tuple(dict.fromkeys(name for part in self.parts for name in part.models(model)))

    def with_model(self, model: str | None) -> Judge:
        """Return it with `model` for each judge that calls a model and names none."""
        return self

    def check(self) -> None:
        """Raise InputError if a file or a function that it names cannot be used."""
        for part in self.parts:
            part.check()

    def describe(self) -> Mapping[str, Any]:
        """Return the content of its files (its profile, rubric, rules, metric or fit), JSON-ready;
        empty if it has none. It is part of the identity of a run."""
        rubric = self.find_rubric()
        return {"rubric": rubric} if rubric else {}

    def find_rubric(self, rubric: str = "") -> str:
        """Return the rubric that replaces its own questions: `rubric`, or that of its options, or
        the shipped one; empty if there is none.

        Raises:
            InputError: the file cannot be read, both rubrics are set, the judge takes no rubric, or
                its levels cannot be used.
        """
        rubric_text: str = getattr(self, "rubric", "")
        if not rubric and not rubric_text:
            return load_rubric(self.shipped).text if self.shipped else ""
        if rubric and rubric_text:
            raise InputError(
                "the rubric is set twice, in the judge's name and as an option of its own; set it"
                " once"
            )

        if rubric and not self.takes_rubric:
            raise InputError(
                f"judge {self.name} takes no rubric: it asks no question that a rubric could"
                " replace"
            )

        for part in self.parts:
            part.find_rubric(rubric if part.takes_rubric else "")
        if self.parts:
            return rubric
        rubric = expand_rubric(rubric or _read_rubric(rubric_text))
        if self.by_criteria:
            ask_criteria(read_criteria(rubric))

        return rubric

    def note_levels(self, rubric: str) -> None:
        """Record in the ledger the levels of its rubric, or of `rubric`, that it does not ask
        about."""
        for leaf in self.leaves():
            lines = read_criteria(leaf.find_rubric(rubric if leaf.takes_rubric else ""))
            if leaf.is_relative or not leaf.reads_levels:
                reason = f"{leaf.name} asks about no levels of a rubric; the judge decide does"
                leave_out("scale", reason, sum(map(has_levels, lines)))

    # Its text.

    @property
    def text(self) -> str:
        """The text that names it: the one it was parsed from, or else one that is parsed to an
        equal judge."""
        return self.source or self.write()

    def __str__(self) -> str:
        return self.text

    def write(self) -> str:
        """Write the text anew, from the fields."""
        argument = getattr(self, argument_name(type(self)), "")
        text = self.name
        if argument:
            text += f":{argument if self.usage else quote_value(argument)}"
        for name, option in options_of(type(self)).items():
            value = getattr(self, name)
            if value != option.default:
                text += f"+{name}" if value is True else f"+{name}={_write_value(option, value)}"
        parameters: Mapping[str, Any] = getattr(self, "parameters", {})
        for name, value in parameters.items():
            text += f"+{name}={quote_value(value)}"
        model = getattr(self, "model", "")

        return f"{text}@{model}" if model else text

    @classmethod
    def read(cls, text: str) -> Judge:
        """Parse the text of a judge with this name.

        Raises:
            InputError: an option, or its value, cannot be used.
        """
        make: Any = cls
        name = argument_name(cls)
        if cls.usage:
            argument = text.partition(":")[2]
            if not argument:
                raise InputError(
                    f"judge '{text}': its text after the colon is missing; write {cls.usage}"
                )

            return make(**{name: argument}, source=text)

        argument, options, model = parse_options(cls, text)
        if argument and not name:
            raise InputError(f"judge '{text}': '{cls.name}' takes no profile")
        if model and not hasattr(cls, "model"):
            raise InputError(f"judge '{text}': '{cls.name}' calls no model")
        if unknown := sorted(options.keys() - options_of(cls)):
            raise InputError(f"judge {cls.name}: no parameter '{unknown[0]}'")
        checked = _checks_of(cls)(**options)
        values = {option: getattr(checked, option) for option in options}
        values |= drop_empty({name: argument, "model": model})

        return make(**values, source=text)

    @classmethod
    def __get_pydantic_core_schema__(
        cls, _source: object, _handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Let specifications have judges as fields, which files and stored runs hold as texts."""
        return core_schema.no_info_plain_validator_function(
            read_judge,
            json_schema_input_schema=core_schema.str_schema(),
            serialization=core_schema.to_string_ser_schema(when_used="always"),
        )


def read_judge(value: object) -> Judge:
    """Return the judge that a text names, or a judge as it is. A judge made in Python takes the way
    through its text, too, since a stored run has only that. What is wrong with a text is raised
    when the judge is used: a stored run can be shown where its judge is not known.

    Raises:
        InputError: the value is neither, or its class is not registered.
    """
    if is_mapping(value):
        value = write_prompt_judge(value)
    # `Debate(rounds=2)` of the package's names has a text, too.
    text = value if isinstance(value, str) else getattr(value, "text", None)
    if not isinstance(text, str):
        raise InputError(f"a judge is named by a text such as probe+rules, not by {value!r:.40}")
    try:
        parsed = parse_judge(text)
    except InputError as error:
        parsed = UnknownJudge(str(error), source=text)
    if isinstance(value, Judge) and type(value) is not type(parsed):
        raise InputError(
            f"{type(value).__name__} is not registered as a judge; write @judge(...) above it"
        )

    return parsed


def write_prompt_judge(fields: Mapping[Any, Any]) -> str:
    """Return the text of the judge that a study file writes as `{prompt: FILE, labels: {...}}`.

    Raises:
        InputError: a field is missing, or there is another one.
    """
    options: dict[str, Any] = {str(name): value for name, value in fields.items()}
    file = options.pop("prompt", "")
    model = options.pop("model", "")
    if not file or not options.keys() <= {"labels", "numbers", "logprobs"}:
        raise InputError(
            "judge: write {prompt: FILE, labels: {good: 1, bad: 0}}, with numbers: 1-5 instead of"
            f" labels, and model or logprobs; not the fields {', '.join(map(str, fields))}"
        )

    labels = options.get("labels")
    if isinstance(labels, Mapping):
        # YAML reads `yes` and `no` as truth values.
        words: Mapping[Any, str] = {True: "yes", False: "no"}
        pairs = cast("Mapping[Any, Any]", labels).items()
        options["labels"] = {
            words[name] if isinstance(name, bool) else str(name): score for name, score in pairs
        }
    text = f"prompt:{quote_value(file)}"
    for name, value in options.items():
        text += f"+{name}" if value is True else f"+{name}={quote_value(value)}" if value else ""

    return f"{text}@{model}" if model else text


@dataclass(frozen=True)
class UnknownJudge(Judge):
    """A judge whose text cannot be parsed here, for instance because the package that declares it
    is missing. `reason`: why, which is raised whatever is asked of it."""

    reason: str

    @property
    def parts(self) -> tuple[Judge, ...]:
        raise InputError(self.reason)

    def open(self, bench: Judges, rubric: str) -> Evaluator:
        raise InputError(self.reason)


def _as_several(value: object) -> object:
    return cast("object", (value,)) if isinstance(value, str | Judge | Mapping) else value


SeveralJudges: TypeAlias = Annotated[
    tuple[Judge, ...],
    BeforeValidator(
        _as_several,
        json_schema_input_type=str | dict[str, Any] | tuple[str | dict[str, Any], ...],
    ),
]
"""One or more judges; a single one needs no brackets, as in a YAML file. A mapping is a judge by a
prompt of the user's."""


@dataclass(frozen=True)
class AskingJudge(Judge):
    """The base of judges that call a model. `model`: its spec; empty: the run's model judges."""

    model: str = field(default="", kw_only=True)
    asks: ClassVar[bool] = True

    def models(self, model: ModelOfJudge) -> tuple[str | ModelOfJudge, ...]:
        chosen = self.model or model
        return tuple(dict.fromkeys((chosen, getattr(self, "decider", None) or chosen)))

    def with_model(self, model: str | None) -> Self:
        if model is None or self.model:
            return self
        return replace(self, model=model, source=f"{self.text}@{model}")


@dataclass(frozen=True)
class CombinedJudge(Judge):
    """The base of judges whose text has the texts of the judges that they call."""

    asks: ClassVar[bool] = True

    @property
    def parts(self) -> tuple[Judge, ...]:
        return tuple(value for value in vars(self).values() if isinstance(value, Judge))

    @property
    def takes_rubric(self) -> bool:
        return any(part.takes_rubric for part in self.parts)

    def with_model(self, model: str | None) -> Self:
        if model is None:
            return self
        judges_by_name = {
            name: part.with_model(model)
            for name, part in vars(self).items()
            if isinstance(part, Judge)
        }
        combined = replace(self, **judges_by_name)
        return replace(combined, source=combined.write())


def describe_parts(judge: Judge) -> dict[str, Any]:
    """Return the content of the files of a judge's parts, by the texts of the parts."""
    described = {part.text: part.describe() for part in judge.parts}
    return drop_empty(described)


def _read_rubric(name: str) -> str:
    """Return the text of a rubric that a judge's options name: that of a file after an @, unless
    it is the name of a shipped rubric."""
    if not name.startswith("@"):
        return name
    file = name.removeprefix("@")
    return file if is_rubric_name(file) and not is_file(file) else read_text(file)


# The registry.


def judge(form: str, help: str = "", *, name: str = "") -> Callable[[J], J]:
    """Return a decorator that registers a class of judges.

    `form`: how `--judge` takes it, such as `look:length`; it begins with the judge's name. `help`:
    what the judge does, in a few words; empty: it is not listed. `name`: the name of a judge whose
    text does not begin with one.
    """

    def register(kind: J) -> J:
        kind.name = name or first_word(form)
        REGISTRY[kind.name] = kind
        if help:
            FORMS.setdefault(kind.__module__, {})[form] = help
        parse_judge.cache_clear()
        return kind

    return register


@cache
def load_judges() -> None:
    """Import the modules that declare the shipped judges. That is put off until the first judge is
    named, since they load what computes scores."""
    for module in _MODULES:
        import_module(f"textevolve.judges.{module}")


def listed_judges() -> Mapping[str, str]:
    """Return what each judge does, by the form in which `--judge` takes it."""
    load_judges()
    shipped = (f"{__package__}.{module}" for module in _MODULES)
    listed: dict[str, str] = {}
    # In the order of the modules, whichever was imported first; then those of other packages.
    for module in dict.fromkeys([*shipped, *FORMS]):
        listed |= FORMS.get(module, {})

    return listed


def judge_names() -> tuple[str, ...]:
    """Return the names with which a judge's text can begin on the command line."""
    words = dict.fromkeys(map(first_word, listed_judges()))
    return tuple(word for word in words if word in REGISTRY)


def find_judge(name: str) -> type[Judge] | None:
    """Return the class of the judges with this name; None if there is none."""
    load_judges()
    for point in () if name in REGISTRY else entry_points(group=GROUP, name=name):
        load_point(point)  # its module registers the judge

    return REGISTRY.get(name)


def load_installed_judges() -> None:
    """Import the judges of all other packages that are installed, for a list of them. To name one,
    that is not needed."""
    for point in entry_points(group=GROUP):
        load_point(point)


def first_word(text: str) -> str:
    return re.split("[:+@]", text, maxsplit=1)[0]


def begins_judge(text: str) -> bool:
    """Return whether a text begins with the name of a judge, or with a path that names one."""
    path = text.partition("@")[0]
    is_path = "," not in path and find_path_judge(path) is not None
    return is_path or first_word(text.partition(",")[0]) in REGISTRY


def find_path_judge(text: str) -> type[Judge] | None:
    """Return the class of the judges whose text is a path with this ending; None if there is
    none."""
    kinds = (kind for kind in REGISTRY.values() if kind.ending and text.endswith(kind.ending))
    return next(kinds, None)


@lru_cache(maxsize=4096)
def parse_judge(text: str) -> Judge:
    """Parse the text of a judge, such as `probe+rules@MODEL`. Only the text is looked at: files and
    functions that it names are read later, by `Judge.check` and `Judge.describe`.

    Raises:
        InputError: there is no such judge or option, or a value cannot be used; lists the choices.
    """
    text = text.strip()
    name = first_word(text)
    kind = find_judge(name)
    if kind is None or not kind.usage:
        kind = find_path_judge(text) or kind

    if kind is None:
        is_function = ".py:" in text
        hint = f"; your function is metric:{text}" if is_function else suggest(name, judge_names())
        raise InputError(f"judge '{text}': '{name}' is not the name of a judge{hint}")

    return kind.read(text)


def require_absolute(judge: Judge) -> None:
    """Raise InputError if a judge cannot be used, or only compares the candidates of one case with
    each other."""
    judge.check()
    if judge.is_relative:
        raise InputError(
            f"judge '{judge}' compares the candidates of one case with each other, so its scores"
            " of two cases cannot be compared; use another judge, such as probe+rules"
        )


# The options in a judge's text.


def argument_name(kind: type[Judge]) -> str:
    """Return the name of the field that a judge's text sets after the colon; empty if there is
    none."""
    return next((entry.name for entry in fields(kind) if entry.metadata.get("argument")), "")


def options_of(kind: type[Judge]) -> Mapping[str, Field[Any]]:
    """Return the fields of a judge that are options of its text, by name."""
    return {
        option.name: option
        for option in fields(kind)
        if option.name not in ("source", "model")
        and not option.metadata.keys() & {"argument", "aside"}
    }


@cache
def _checks_of(kind: type[Judge]) -> type[Frozen]:
    """Return the model that checks the values of a judge's options."""
    hints = get_type_hints(kind, include_extras=True)
    checks: Any = {name: (hints[name], option.default) for name, option in options_of(kind).items()}
    return create_model(kind.__name__, __base__=Frozen, **checks)


_QUOTED = r'"(?:[^"\\]|\\.)*"'
_VALUE = rf"(?:{_QUOTED}|[^+@]*)"
_OPTION = re.compile(rf"\+([^=+@]*(?:={_VALUE})?)")
_TEXT = re.compile(rf"[^:+@]*(?::({_VALUE}))?((?:{_OPTION.pattern})*)(?:@(.*))?", re.DOTALL)


def parse_options(kind: type[Judge], text: str) -> tuple[str, dict[str, Any], str]:
    """Return the parts of NAME:ARGUMENT+FLAG+NAME=VALUE@MODEL: the argument, the values of the
    options by name (True for a flag), and the model.

    Raises:
        InputError: there is no such flag, or an option is set twice.
    """
    parts = _TEXT.fullmatch(text)
    assert parts is not None  # each part may be empty, and the model takes any rest
    argument, options_text, _, model = parts.groups("")
    written: list[str] = _OPTION.findall(options_text)
    options = options_of(kind)
    flags = {ALIASES.get(option, option) for option in written if "=" not in option}
    names = sorted(name for name, option in options.items() if isinstance(option.default, bool))
    if unknown := sorted(flags.difference(names)):
        hint = f"{suggest(unknown[0], names)} (or NAME=VALUE)" if names else ": it has none"
        if options_text.partition("=")[2].endswith(f"+{unknown[0]}"):
            hint += '; a value with + or @ is quoted: +rubric="a + b", +rubric="@a+b.md"'
        raise InputError(f"judge '{text}': no option '{unknown[0]}'{hint}")

    pairs = [option.split("=", 1) for option in written if "=" in option]
    values: dict[str, Any] = dict.fromkeys(flags, True)
    if len({name for name, _ in pairs}) < len(pairs):
        raise InputError(f"judge '{text}': a parameter is set twice; set each once")

    for name, value in pairs:
        is_path = name in options and options[name].metadata.get("file") and value[:1] != '"'
        values[name] = f"@{value}" if is_path else _read_value(value)

    return _read_value(argument), values, model


def _read_value(text: str) -> str:
    """Return a quoted value without its quotes, and any other as it is."""
    try:
        return json.loads(text, strict=False) if text.startswith('"') else text
    except ValueError:
        return text


def quote_value(value: object) -> str:
    """Return a value as a judge's text has it: quoted as in JSON if it has signs of its own. A
    mapping is written as JSON."""
    text = json.dumps(value) if isinstance(value, Mapping) else str(value)
    return text if is_plain(text) else json.dumps(text, ensure_ascii=False)


def _write_value(option: Field[Any], value: Any) -> str:
    """Return the value of an option as a judge's text has it. One that names a file loses its @."""
    if not option.metadata.get("file"):
        return quote_value(value)
    path = value.removeprefix("@")
    return path if path != value and is_plain(path) else json.dumps(value, ensure_ascii=False)


def is_plain(text: str) -> bool:
    """Return whether a value needs no quotes."""
    return re.search(r'[+@"]', text) is None and text == text.strip()


def mask_quoted(text: str) -> str:
    """Return a text of the same length in which quoted values have no signs that mean something."""
    return re.sub(rf"(?<=[=:]){_QUOTED}", lambda quoted: "x" * len(quoted[0]), text)
