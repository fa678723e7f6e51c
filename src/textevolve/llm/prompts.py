"""An estimate of the tokens of a text without a tokeniser, by which budgets are kept.

The tokens that a call really used are in its `Usage`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from textevolve.evaluation import Case
from textevolve.images import IMAGE_TOKENS
from textevolve.llm.model import Message, Request, text_hash
from textevolve.loading import late_re
from textevolve.texts.shipped import list_shipped, read_shipped

if TYPE_CHECKING:
    import jinja2


CHARACTERS_A_TOKEN = 4


def count_tokens(text: str) -> int:
    """Estimate the tokens of a text: characters / 4, rounded up, which fits English prose."""
    return -(-len(text) // CHARACTERS_A_TOKEN)


def count_utf8(text: str) -> int:
    """Count the bytes of a text in UTF-8. Tokenizers make a token of about four: of four Latin
    letters as of one or two Chinese signs. Old ones make up to twice as many of some scripts."""
    # Python knows without a look at the text whether it is plain ASCII.
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def estimate_text(text: str) -> int:
    """Estimate the tokens that an endpoint counts of a text: bytes / 4, rounded up. The budgets of
    recalled memories count in `count_tokens`, so that what a model is shown stays the same."""
    return -(-count_utf8(text) // CHARACTERS_A_TOKEN)


# Fences around texts that are data, so that nothing inside them can pass for an instruction of the
# prompt.
#
# The marks around a text contain a random code (nonce) that occurs in none of the texts, so a
# candidate cannot close its own fence. A quotation needs no closing: every line of it begins with
# a sign. Control tokens of the formats in `chat_formats.catalogue` inside a text are broken up,
# since many servers would read them as a change of speaker; markers that are plain words, such as
# `USER:`, stay. Attempts to forge a mark are counted and shown with the result.

NONCE_LENGTH = 12
EXAMPLE_NONCE = "0" * NONCE_LENGTH
"""The code in the marks of examples. It is the same in all prompts, so that servers keep them in
their cache. A text that contains it is broken up like any other forged mark."""
_FORGED = late_re(
    # A mark like ours, whatever its nonce. In linear time: no part can match where another could.
    r"\[\[\s*(?:/\s*)?[0-9a-fA-F]{6,}\b[^\[\]\n]*\]\]"
    r"|<\|[^|\n]{1,40}\|>|</?s>|<</?SYS>>|\[/?INST\]"
    r"|<(?:start|end)_of_(?:turn|image)>|<｜[^｜\n]{1,40}｜>"
    r"|\[/?(?:SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS)\]"
    r"|<(?:bos|eos|BOS_TOKEN|EOS_TOKEN)>|</?tool_(?:call|response)>"
)
JOINER = "\u2060"
"""The word joiner, an invisible character that is no part of any marker. Inserted into a marker, it
breaks the marker up."""


def draw_nonce(texts: Iterable[str], seed: int) -> str:
    """Return a code (nonce) of 12 hexadecimal digits that is computed from the texts and the seed
    alone, and occurs in none of the texts."""
    all_texts = tuple(texts)
    digest = hashlib.sha256(str(seed).encode())
    for text in all_texts:
        digest.update(b"\0" + text.encode("utf-8", "surrogatepass"))
    while True:
        nonce = digest.hexdigest()[:NONCE_LENGTH]
        if not any(nonce in text.lower() for text in all_texts):
            return nonce
        digest.update(b"again")


@lru_cache(maxsize=256)
def literal_pattern(texts: tuple[str, ...]) -> re.Pattern[str]:
    """Return a regular expression that matches any of the texts, preferring the longest."""
    return re.compile("|".join(map(re.escape, sorted(texts, key=len, reverse=True))))


def sanitize(text: str, nonce: str) -> tuple[str, int]:
    """Return the text with forged marks, control tokens of chat formats and the nonce itself broken
    up by an invisible character, and the number of these places. Time is linear in the text."""
    count = 0
    if "<" in text or "[" in text:  # each mark begins with one of them
        text, count = _FORGED.subn(_break_up, text)
    # A model can be talked into repeating the nonce that it saw; candidates cannot know it.
    if nonce.lower() not in text.lower():  # nearly always, and a pattern costs more than this
        return text, count
    text, leaks = re.compile(re.escape(nonce), re.IGNORECASE).subn(_break_up, text)
    return text, count + leaks


def _break_up(match: re.Match[str]) -> str:
    return match[0][0] + JOINER + match[0][1:]


def fence(name: str, text: str, nonce: str) -> str:
    """Put a sanitized text between an opening and a closing mark, which hold the nonce."""
    return f"[[{nonce} {name}]]\n{text}\n[[/{nonce} {name}]]\n"


def fenced(name: str, text: str, nonce: str) -> str:
    """Sanitize a text, and put it between an opening and a closing mark."""
    return fence(name, sanitize(text, nonce)[0], nonce)


def number_lines(texts: Iterable[str]) -> str:
    """Number texts from 1, each on a line of its own."""
    return "\n".join(f"{n}. {text}" for n, text in enumerate(texts, 1))


def quote(text: str) -> str:
    """Put a quotation sign before each line of a sanitized text."""
    quoted = "".join(f"> {line}" for line in text.splitlines(keepends=True) or [""])
    return quoted if quoted.endswith("\n") else f"{quoted}\n"


# Prompt templates: text files in the `prompts` folders of packages. Values are checked when they
# are filled in.
#
# They use Jinja's syntax. A value that is filled in is never read as a template.


@dataclass(frozen=True, slots=True)
class Template:
    """A compiled prompt template.

    Attributes:
        variables: The names of all its variables.
    """

    name: str
    variables: frozenset[str]
    compiled: jinja2.Template

    def render(self, **values: Any) -> str:
        """Fill in the template; the names of `values` must be exactly the template's variables."""
        if values.keys() != self.variables:
            wrong = sorted(values.keys() ^ self.variables)
            raise KeyError(f"template {self.name}: {', '.join(wrong)} missing or not known")
        compiled = self.compiled
        context = compiled.environment.context_class(  # made here, it has none of jinja's globals
            compiled.environment, values, compiled.name, compiled.blocks
        )

        return "".join(compiled.root_render_func(context))


@cache
def _environment() -> jinja2.Environment:
    import jinja2

    return jinja2.Environment(  # plain text: escaping would alter it
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )


@cache
def load_template(package: str, name: str) -> Template:
    """Load the template in `<package>/prompts/<name>.md`."""
    from jinja2 import meta

    environment = _environment()
    tree = environment.parse(_read_source(package, name))
    variables = frozenset(meta.find_undeclared_variables(tree))
    return Template(name, variables, environment.from_string(tree))


@cache
def _read_source(package: str, name: str) -> str:
    return read_shipped(package, f"prompts/{name}.md")


def prompt_versions(room: str, *names: str) -> dict[str, str]:
    """Return the versions of a room's prompts, which are hashes of their sources, by `room.name`; a
    run with other versions is another run. `names`: the prompts that count; default: all in the
    room's folder. No prompt is compiled for its version, since most are never sent."""
    package = f"textevolve.{room}"
    return {
        f"{room}.{name}": text_hash(_read_source(package, name))[:12]
        for name in names or list_shipped(package, "prompts", ".md")
    }


# Build the messages of a prompt that contain the images of a case; no other module does this.
#
# The images of a message come before its text: first those of the input, then those of the
# candidates. They are numbered from 1 in that order. Their names are written next to the marks
# around a text, where no candidate can write. Prompts without images are unchanged.


def image_tokens(request: Request) -> int:
    """Estimate the tokens of a request's images."""
    return IMAGE_TOKENS * sum(len(message.images) for message in request.messages)


def prompt_tokens(request: Request) -> int:
    """Estimate the tokens of a request's texts and images."""
    return estimate_text("".join(_texts(request))) + image_tokens(request)


def _texts(request: Request) -> list[str]:
    texts = [part for message in request.messages for part in message.parts]
    return [*texts, request.questions or ""]


CUT_SHARE = 2
"""An endpoint that counts less than half of the estimated tokens of a prompt has probably cut it:
of four vocabularies, 22 languages, code and tables none made less than 1 / 1.3 of them
(docs/measurements.md)."""
LEAST_COUNT = 100
"""The fewest tokens that an endpoint which cuts prompts leaves: none has a smaller context, but
some report a small number for every call."""
_RUNS = late_re(r"(.)\1{2,}", re.DOTALL)
"""Repeated signs, such as the spaces of a table, of which tokenizers make few tokens."""
_WIDE = late_re("[\u1100-\u11ff\u2e80-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff]")
"""Chinese and Japanese signs and Korean syllables: tokenizers make 0.5 to 1 token of each."""


def find_cut(request: Request, counted: int) -> int:
    """Return about how many tokens the texts of a request have, if an endpoint that counted so many
    in all has probably cut them; otherwise 0. Images are left out, which endpoints count in many
    ways."""
    if counted < LEAST_COUNT:
        return 0
    text = "".join(_texts(request))
    wide_at_most = (count_utf8(text) - len(text)) // 2
    at_most = len(text) // CHARACTERS_A_TOKEN + wide_at_most
    if counted * CUT_SHARE >= at_most:
        return 0

    text = _RUNS.sub(r"\1", text)
    wide = len(_WIDE.findall(text))
    tokens = (len(text) - wide) // CHARACTERS_A_TOKEN + wide

    return tokens if counted * CUT_SHARE < tokens else 0


def image_rules(case: Case) -> tuple[str, ...]:
    """Return the system message's part on how to read images; empty if the case has no images."""
    return (
        (load_template("textevolve.llm", "images").render(),)
        if case.images or any(case.candidate_images)
        else ()
    )


def images_of(case: Case, candidates: Iterable[int]) -> tuple[str, ...]:
    """Return the images of a message with the input and these candidates, in this order."""
    candidate_images = case.candidate_images
    if not candidate_images:
        return case.images
    return (*case.images, *(url for j in candidates for url in candidate_images[j]))


def user_message(case: Case, parts: tuple[str, ...], candidates: Iterable[int]) -> Message:
    """Build the user message with the texts `parts`, the images of the input and of these
    candidates."""
    return Message("user", parts, images_of(case, candidates))


def name_images(case: Case, candidate: int | None = None, before: Iterable[int] = ()) -> str:
    """Return the names of the images of the input, or of one candidate, such as `image 1` or
    `images 2 to 3`; empty without images. `before`: the candidates whose images come earlier in the
    message."""
    if candidate is None:
        return _name_range(1, len(case.images))
    if not case.candidate_images:
        return ""
    start = 1 + len(images_of(case, before))

    return _name_range(start, len(case.candidate_images[candidate]))


def _name_range(start: int, number: int) -> str:
    if number < 2:
        return f"image {start}" if number else ""
    return f"images {start} to {start + number - 1}"


def fence_with(name: str, text: str, nonce: str, images: str) -> str:
    """Return the text in a fence whose marks also name the images that belong to the text."""
    return fence(f"{name}, {images}" if images else name, text, nonce)


def quote_with(text: str, images: str) -> str:
    """Return the quoted text below a line that names the images that belong to the text."""
    return f"({images})\n{quote(text)}" if images else quote(text)
