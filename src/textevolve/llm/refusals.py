"""Convert an endpoint's refusal (an HTTP status and a body) into one of our errors.

Endpoints word their refusals differently, so codes are read first and phrases second. All text from
an endpoint is reduced to one printable line without the client's secrets before it is shown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from time import time
from typing import Any, cast

from textevolve.errors import (
    AccessError,
    CapabilityError,
    ModelError,
    RejectedError,
    TooLongError,
    UnavailableError,
)
from textevolve.llm.limiting import read_reset, sum_spans
from textevolve.llm.model import Request
from textevolve.llm.providers import Endpoint

SHOWN = 300
SCHEMA_FIELD = "response_format"
"""The field of a body with the JSON schema of the answer."""
HINTS = ("prompt_cache_key", "cache_control")
"""The fields of a request for the endpoint's prompt cache, which do not change answers."""
_STATUS = re.compile("[1-5][0-9]{2}")
_READ = 1000
_TOO_LONG = re.compile(
    r"context[ _]?(length|window|size)|(prompt|input) is too long|input token count"
    r"|reduce the length|request too large|too many (input )?tokens|too large to process",
    re.IGNORECASE,
)
_LIMIT = re.compile(
    r"(?:maximum context length is|context size \(|allowed \(|context window of"
    r"|context length of|current batch size:|>)\s*(\d[\d,]*)"
)
_NO_CHAT = re.compile(
    r"not support (chat|generat|completion)|not a chat model|is a decision model"
    r"|use (post )?/v1/(systemone|decisions)",
    re.IGNORECASE,
)
_NO_IMAGES = re.compile(
    r"mmproj|not a (multi-?modal|vision)|unknown variant .?image_url|support vision"
    r"|image_url.{0,20} (is )?(only|not) (supported|allowed)"
    r"|\bimages?( inputs?| contents?)?( is| are)? (not (supported|enabled|allowed)|unsupported)"
    r"|(not|n't) support (any )?(images?( inputs?)?\b|multi-?modal)(?! (format|type))"
    r"|support image input|at most 0 image|required for image input"
    r"|content.{0,20} must be a string",
    re.IGNORECASE,
)
_UNSUPPORTED = re.compile(
    r"support|unknown|unrecogni[sz]ed|unexpected|not permitted|not allowed|extra|unavailable",
    re.IGNORECASE,
)
_SCHEMA = re.compile(
    r"response_format|text\.format|json.?schema|structured.?output|guided|grammar", re.IGNORECASE
)


NO_MODEL = "no such model"
_PERMANENT: tuple[tuple[re.Pattern[str], str, str], ...] = (
    (
        re.compile(r"no healthy deployments|invalid model name|not a valid model|model_not_found"),
        NO_MODEL,
        "check the model's name",
    ),
    (
        re.compile(r"no connected db|api_key_invalid|invalid_api_key|api key not valid"),
        "the endpoint refuses the key",
        "check the key",
    ),
    (
        re.compile(
            r"^402|insufficient_quota|budget_exceeded|budget has been exceeded"
            r"|credit balance is too low|exceeded your current quota"
        ),
        "the account has no credit left",
        "raise its budget, then resume the run",
    ),
)
"""The refusals that cannot be resolved by repeating the call, even if their status is one that is
usually worth another try: the pattern of their words and codes, the meaning, and what to do."""
_UPSTREAM = re.compile(r"litellm\.\w+Error|\w+Exception -|^\w+ error: ")
"""The pattern of a prefix that gateways put before the error of the provider behind them."""
_WAIT = re.compile(
    r"(?:try again|retry) (?:in|after) ((?:\d+(?:\.\d+)?\s?(?:ms|s|m(?!illi)|h)[a-z]*\s?)+)",
    re.IGNORECASE,
)
NO_LOGPROBS = "the endpoint gives no log-probabilities"

_SAYS_NO_IMAGES = (400, 404, 415, 422, 500, 501)
"""The statuses with which endpoints refuse images. llama.cpp's server without a projector answers
with a 500, which would otherwise be tried again."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The parts of an endpoint's refusal.

    Attributes:
        message: The endpoint's message.
        code: The code of the error; empty if there is none.
        param: The field of the request that is refused; empty if none is named.
        limit: The model's context in tokens; None if the refusal does not name it.
    """

    message: str
    code: str = ""
    param: str = ""
    limit: int | None = None


def one_line(text: str, secrets: Collection[str] = ()) -> str:
    """Return a text without secrets, as one printable line of at most 300 characters."""
    for secret in secrets:
        text = text.replace(secret, "[key]")
    line = " ".join("".join(c if c.isprintable() else " " for c in text[:100_000]).split())
    return line if len(line) <= SHOWN else line[: SHOWN - 1] + "…"


def read_refusal(body: bytes) -> Refusal:
    """Read the parts of an error's body in any of the usual formats."""
    text = body.decode("utf-8", "replace")
    try:
        parsed: Any = json.loads(text)
    except (ValueError, RecursionError):
        return Refusal(text)

    if isinstance(parsed, list) and parsed:
        parsed = cast("list[Any]", parsed)[0]
    if not isinstance(parsed, dict):
        return Refusal(text)
    outer = cast("dict[str, Any]", parsed)

    return error_object(outer.get("error") or outer.get("detail") or outer)


def error_object(error: Any) -> Refusal:
    if not isinstance(error, dict):
        return Refusal(error if isinstance(error, str) else json.dumps(error))
    fields = cast("dict[str, Any]", error)
    names = ("code", "type", "status", "error_type")
    code = " ".join(str(fields[k]) for k in names if fields.get(k))
    limit = fields.get("n_ctx")

    return Refusal(
        message=str(fields.get("message") or fields.get("detail") or json.dumps(fields)),
        code=code,
        param=str(fields.get("param") or ""),
        limit=limit if isinstance(limit, int) else None,
    )


def status_of(refusal: Refusal, default: int) -> int:
    """Return the HTTP status that a refusal in an answer with status 200 names, otherwise
    `default`."""
    return next((int(c) for c in refusal.code.split() if _STATUS.fullmatch(c)), default)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that the endpoint asks to wait, from a number, a date, or milliseconds;
    None if it does not ask. LiteLLM's proxy adds a prefix to the names of headers that it passes
    on."""
    milliseconds, date_text = (
        headers.get(name) or headers.get(f"llm_provider-{name}")
        for name in ("retry-after-ms", "retry-after")
    )
    wait = read_reset(milliseconds or "", 0.0)

    return read_reset(date_text or "", time()) if wait is None else wait / 1000


def is_too_long(status: int, refusal: Refusal) -> bool:
    if status == 413:
        return True
    codes = ("context_length_exceeded", "exceed_context_size", "max_tokens_exceeded")
    has_code = any(code in refusal.code for code in codes)
    return status in (400, 422, 500) and (
        has_code or bool(_TOO_LONG.search(refusal.message[:_READ]))
    )


def refused_field(status: int, refusal: Refusal, sent: Collection[str]) -> str | None:
    """Return the field of the request that the endpoint does not accept; None if the refusal has
    another reason."""
    message = refusal.message[:_READ]
    refused = status in (400, 422, 501) or (status == 500 and "unexpected keyword" in message)
    if not refused or is_too_long(status, refusal):
        return None
    asks_logprobs = "logprobs" in sent or "top_logprobs" in sent
    if asks_logprobs and ("logprobs" in refusal.param or "logprobs" in message):
        return "logprobs"
    if SCHEMA_FIELD in sent and (refusal.param.startswith(SCHEMA_FIELD) or _SCHEMA.search(message)):
        return SCHEMA_FIELD
    if not _UNSUPPORTED.search(message + refusal.code):
        return None
    fields = ("max_tokens", "temperature", "seed", "stream_options", "stream")
    for field in (*fields, *HINTS):
        mentioned = re.search(rf"\b{field}(ing)?\b", message, re.IGNORECASE)
        if field in sent and (refusal.param == field or mentioned):
            return field

    return None


def failure(
    name: str,
    status: int,
    refusal: Refusal,
    *,
    wait: float | None = None,
    secrets: Collection[str] = (),
    images: bool = False,
) -> ModelError:
    """Convert a refusal into an error; `name` is the model's. `images`: the request had images."""

    def denied(meaning: str, hint: str) -> AccessError:
        return AccessError(f"{name}: {meaning} ({status}): {message}; {hint}")

    message = one_line(refusal.message, secrets) or "no reason given"
    words = refusal.message[:_READ]
    if images and status in _SAYS_NO_IMAGES and _NO_IMAGES.search(words):
        return no_images(name, message)
    if is_too_long(status, refusal):
        return TooLongError(_too_long(name, refusal, message))
    if wait is None and (wait_match := _WAIT.search(words)):
        wait = sum_spans(wait_match[1].lower().replace(" ", ""))  # only the words name it
    # Words of validators (422) are ignored, as they repeat the request. A 429 with a waiting time
    # is a limit.
    plain = status in (400, 402, 403, 404) or (status == 429 and wait is None)
    signs = f"{status} {refusal.code} {words[:SHOWN] if plain else ''}".lower()
    for pattern, meaning, hint in _PERMANENT if status != 401 else ():
        if pattern.search(signs):
            return denied(meaning, hint)
    if status in (408, 409, 425, 429) or (status >= 500 and status != 501):
        return UnavailableError(f"{name}: {status}: {message}", status=status, retry_after=wait)
    if status == 401 and _UPSTREAM.search(words):
        return denied(
            "the provider behind it refuses its key",
            "your own key is valid; the operator of the gateway has to correct its key for the"
            " provider",
        )

    if status == 401:
        return denied("the endpoint refuses the key", "check the key")
    if status == 403 and not re.search("flagged|moderation", words):
        return denied("no right to use this model", "check the account")
    if status in (400, 404, 405, 501) and _NO_CHAT.search(words):
        return decides_only(name, message)
    if status in (404, 405) or 300 <= status < 400:
        return denied(f"{NO_MODEL} or address", "check the model's name and the endpoint's address")

    return RejectedError(f"{name}: the endpoint rejects the request ({status}): {message}")


def _too_long(name: str, refusal: Refusal, message: str) -> str:
    limit = refusal.limit
    if limit is None and (match := _LIMIT.search(refusal.message[:_READ])):
        limit = int(match.group(1).replace(",", ""))
    context_name = f"the model's context of {limit} tokens" if limit else "the model's context"
    hint = "shorten the input or the candidates, or take a model with a longer context"
    return f"{name}: the prompt does not fit into {context_name} ({message}); {hint}"


def decides_only(name: str, message: str) -> CapabilityError:
    hint = "use it as a decider, and name a chat model to write texts"
    return CapabilityError(
        f"{name}: this is a decision model, it does not chat ({message}); {hint}"
    )


def no_images(name: str, message: str) -> CapabilityError:
    hint = "name a model that does, or judge without the images"
    return CapabilityError(f"{name}: this model takes no images ({message}); {hint}")


def check_request_fits(endpoint: Endpoint, request: Request) -> None:
    """Check that a model can answer a request of this kind: text, decisions or an embedding.

    Raises:
        CapabilityError: the model cannot answer requests of this kind.
    """
    if request.embeds:
        if endpoint.embeds is False:
            raise CapabilityError(
                f"{endpoint.spec}: this model gives no embeddings; name one that does,"
                " such as local/minilm or openai/text-embedding-3-small"
            )
    elif endpoint.embeds:
        raise embeds_only(endpoint.spec)
    elif not endpoint.chats and request.questions is None:
        raise decides_only(endpoint.spec, "it answers typed questions alone")


def embeds_only(name: str) -> CapabilityError:
    hint = "name it as the embedder, and name a chat model to write or judge texts"
    return CapabilityError(f"{name}: this model embeds texts, it does not chat; {hint}")


def without_logprobs(name: str, message: str) -> CapabilityError:
    return CapabilityError(f"{name}: {NO_LOGPROBS} ({message}); take a model that gives them")
