"""The wording of figures and of texts from outside, the same in every renderer.

The functions return plain text without markup or colour, which is safe to print or to escape.
"""

from __future__ import annotations

import math
import re
import time
from collections import Counter
from collections.abc import Sequence

from textevolve.errors import plural
from textevolve.evaluation import ANSWERED_BY, Usage
from textevolve.texts.prose import join_lines

DASH = "–"
"""The text for a missing figure."""

# All control characters but line feed and tab, what turns the direction of writing around, and
# half surrogate pairs: a terminal may obey them, or be unable to print them.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def visible(text: str) -> str:
    """The text with every character that could steer a terminal written out, as in `\\x1b`."""
    return _UNSAFE.sub(_spell, text.replace("\r\n", "\n")).expandtabs(4)


def _spell(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def shorten(text: str, length: int) -> str:
    """Return a text on one line of at most `length` characters, with control characters
    replaced."""
    line = join_lines(visible(text[: 4 * length + 400]))
    return line if len(line) <= length else line[: max(length - 1, 0)].rstrip() + "…"


_ADDRESS = re.compile(r"https?://(?:[^/\s#,@]*@)?([^/\s#,]+)[^\s#,;]*(?:#([^\s,;]*\w))?")


def shorten_models(text: str) -> str:
    """Replace the address of each model in a text by its short form: `name at host`."""
    return _ADDRESS.sub(lambda found: " at ".join(filter(None, (found[2], found[1]))), text)


def clip(text: str, most: int) -> str:
    """Shorten a very long text, with a remark on how much is left out."""
    if len(text) <= most:
        return text
    return f"{text[:most]}… ({count(len(text) - most, 'more character')})"


def letter(candidate: int) -> str:
    """Return the letter of a candidate from its index: A, B, ..., Z, AA, AB, ..."""
    name = ""
    number = candidate + 1
    while number:
        number, remainder = divmod(number - 1, 26)
        name = chr(ord("A") + remainder) + name
    return name


def letters(candidates: Sequence[int]) -> str:
    """Join the letters of candidates: `A`, `A and B`, `A, B and C`."""
    names = [letter(j) for j in candidates]
    return " and ".join((", ".join(names[:-1]), names[-1])) if len(names) > 1 else "".join(names)


def number(value: float | None, digits: int = 2) -> str:
    """Format a number, or a dash for a missing one."""
    if value is None or not math.isfinite(value):
        return DASH
    return f"{value:.{digits}f}"


def percent(share: float | None, digits: int = 0) -> str:
    return DASH if share is None or not math.isfinite(share) else f"{share * 100:.{digits}f} %"


def money(cost: float | None) -> str:
    """Format a cost in US dollars, with enough digits for small sums; None is `cost unknown`."""
    if cost is None:
        return "cost unknown"
    if cost == 0 or cost >= 1:
        return f"${cost:,.2f}" if cost else "$0"
    return f"${cost:.{min(8, max(2, 1 - math.floor(math.log10(cost))))}f}"


def moment(at: float) -> str:
    """Format a Unix time to the minute, in the time zone of this machine."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))


def duration(seconds: float) -> str:
    """Format seconds as `4.2 s`, `3 min 20 s` or `2 h 05 min`."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, remainder = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {remainder:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def count(number: int, noun: str) -> str:
    """Format a number with its noun: `1 call`, `2,000 calls`, `3 memories`."""
    return f"{number:,} {noun if number == 1 else plural(noun)}"


def tokens(usage: Usage) -> str:
    """Format a number of tokens: `1,200 tokens`, or `about 1,200 tokens` if some are estimated."""
    return f"{'about ' if usage.estimated else ''}{count(usage.tokens, 'token')}"


def used(usage: Usage) -> str:
    """Format the number of calls, with their tokens and cost, and a warning of cut prompts."""
    cut = f"; {cut_prompts(usage)}" if usage.cut_prompts else ""
    return f"{count(usage.calls, 'call')}, {spent(usage)}{cut}"


def cut_prompts(usage: Usage) -> str:
    """Describe the prompts that endpoints have probably cut; empty if there are none."""
    if not usage.cut_prompts:
        return ""
    return f"{count(usage.cut_prompts, 'prompt')} probably cut by the endpoint"


def spent(usage: Usage) -> str:
    """Format the tokens of a usage by kind (prompt, cached, completion), and the cost."""
    parts = f"{usage.prompt_tokens:,} prompt"
    if usage.prompt_tokens and usage.cached_tokens:
        parts += f", {percent(usage.cached_tokens / usage.prompt_tokens)} of them cached"
    cost = f"{money(usage.cost)}{saved_by_caching(usage)}"
    return f"{tokens(usage)} ({parts}; {usage.completion_tokens:,} completion), {cost}"


_VERSION = re.compile(r"[-@:](\d{3,8}|\d{4}-\d\d-\d\d|\d\d-\d{4}|\d\d-\d\d|latest)")


def is_same_model(requested: str, answering: str) -> bool:
    """Tell whether the model that answered is the requested one. The provider before the name is
    ignored, and so is the version that an alias resolves to, such as a date."""
    name, other = (re.split("[/#]", model.casefold())[-1] for model in (requested, answering))
    alias = re.sub(r"[-:]latest$|:(free|nitro|floor|online)$", "", name)
    dated = other.startswith(alias) and _VERSION.fullmatch(other, len(alias))
    return other in (name, alias) or bool(dated)


_FAMILIES = re.compile(
    r"(?<![a-z])(?:chat)?(?P<name>gpt|claude|gemini|gemma|llama|qwen|qwq|mistral|mixtral|codestral"
    r"|deepseek|grok|phi|command|nova|kimi|glm)(?![a-z])|(?<![a-z0-9])(?P<openai>o[134])(?![a-z0-9])"
)
_OF_ONE_MAKER = {
    "gemma": "gemini",
    "qwq": "qwen",
    "mixtral": "mistral",
    "codestral": "mistral",
}


def model_family(model: str) -> str:
    """Return the family of a model by its name, such as "gpt" for "azure/gpt-4o-mini#judge" and
    "openai/o3": the maker's line of models, or else the letters with which the name begins. The
    version and what a fine-tune is called are ignored."""
    name = model.casefold().partition("#")[0]
    known = _FAMILIES.search(name)
    if known is None:
        first = re.search(r"[a-z]+", name.rpartition("/")[2])
        return first[0] if first else name
    if known["openai"]:
        return "gpt"

    return _OF_ONE_MAKER.get(known["name"], known["name"])


def other_models(usage: Usage) -> str:
    """List the models that answered instead of the requested one, and changed versions; empty if
    there are none."""
    names = {key: key.partition(ANSWERED_BY)[::2] for key in usage.models}
    versions = Counter(requested for requested, _ in names.values())
    parts: list[str] = []
    for key, (requested, answering) in names.items():
        if versions[requested] > 1 or not is_same_model(requested, answering):
            parts.append(f"{key} ({count(usage.models[key], 'call')})")

    return "; ".join(parts)


def saved_by_caching(usage: Usage) -> str:
    """Describe the dollars saved or lost by prompt caching, for a place after a cost; empty if they
    are 0, or if nothing was cached."""
    if usage.saved is None:
        return " (saved by prompt caching: unknown)" if usage.cached_tokens else ""
    if usage.saved == 0:
        return ""
    verb = "saved" if usage.saved > 0 else "lost"
    return f" ({money(abs(usage.saved))} {verb} by prompt caching)"
