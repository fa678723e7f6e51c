"""Convert an endpoint's refusal (an HTTP status and a body) into one of our errors.

The module answers for each refusal: whose fault it is, which field or value is refused, how long to
wait, and whether it is final. Endpoints word their refusals differently, so a gateway's wrapping is
taken off first, then codes are read, and phrases last; the phrases are the tables below. What words
leave open is settled by one more try (`may_refuse_schema`). All text from an endpoint is reduced to
one printable line without the client's secrets before it is shown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from time import time
from typing import Any

from textevolve.errors import (
    AccessError,
    CapabilityError,
    ModelError,
    RejectedError,
    TooLongError,
    UnavailableError,
)
from textevolve.json_texts import as_array, as_object, is_array, is_object
from textevolve.llm.limiting import read_reset, sum_spans
from textevolve.llm.model import Request
from textevolve.llm.providers import Endpoint
from textevolve.loading import late_re
from textevolve.texts.prose import join_lines

SHOWN = 300
SCHEMA_FIELD = "response_format"
"""The field of a body with the JSON schema of the answer."""
HINTS = ("prompt_cache_key", "cache_control")
"""The fields of a request for the endpoint's prompt cache, which do not change answers."""
_STATUS = late_re("[1-5][0-9]{2}")
_READ = 1000
RETRIED = (408, 409, 424, 425, 429, 498, 499)
"""The statuses below 500 that are worth another try: time-outs, conflicts, limits, Groq's lack of
capacity (498), an upstream model's own error (424), and a gateway that gave up (499)."""

# The forms of refusals. Providers word them differently, so each pattern has been seen somewhere.

_TOO_LONG = late_re(
    r"context[ _]?(length|window|size)|(prompt|input) is too long|input token count"
    r"|reduce the length|request too large|too many (input )?tokens|too large to process",
    re.IGNORECASE,
)
_LIMIT = late_re(
    r"(?:maximum context length is|context size \(|allowed \(|context window of"
    r"|context length of|current batch size:|\s>)\s*(\d[\d,]*)"
)
_ANSWER_LIMIT = late_re(
    r"max(?:imum)?_(?:completion_|output_|new_)?tokens\W.{0,60}?"
    r"(?:too (?:large|high|big)|exceed|at most|must be|less than|not be (?:greater|more)|> ?\d)",
    re.IGNORECASE | re.DOTALL,
)
"""Words that refuse the limit of an answer's tokens, as too large for the model."""
_MOST_ANSWER = late_re(
    r"(?:at most|maximum of|up to|less than or equal to|<=|smaller than or equal to|max(?:imum)? is"
    r"|greater than)\s*[`'\"]?(\d[\d,]*)|> ?(\d[\d,]*), which is the maximum",
    re.IGNORECASE,
)
"""The most tokens of an answer, where a refusal names them."""
_SHARES = late_re(
    r"(?P<prompt>\d[\d,]*) in the (?:messages|prompt)\D+(?P<answer>\d[\d,]*) in the completion"
    r"|too large: (?P<limit>\d[\d,]*).{0,120}has (?P<input>\d[\d,]*) input tokens",
    re.IGNORECASE | re.DOTALL,
)
"""The tokens of a prompt and of its answer's limit, which do not fit together."""
_MINUTE = late_re(
    r"too large.{0,200}tokens per min(ute)?|tokens per min(ute)?.{0,200}must be reduced",
    re.IGNORECASE | re.DOTALL,
)
"""Words of a request that needs more tokens than its account has in a minute."""
_NO_CHAT = late_re(
    r"not support (chat|generat|completion)|not a chat model|is a decision model"
    r"|use (post )?/v1/(systemone|decisions)",
    re.IGNORECASE,
)
_NO_IMAGES = late_re(
    r"mmproj|not a (multi-?modal|vision)|unknown variant .?image_url|support vision"
    r"|image_url.{0,20} (is )?(only|not) (supported|allowed)"
    r"|\bimages?( inputs?| contents?)?( is| are)? (not (supported|enabled|allowed)|unsupported)"
    r"|(not|n't) support (any )?(images?( inputs?)?\b|multi-?modal)(?! (format|type))"
    r"|support image input|at most 0 image|required for image input"
    r"|content.{0,20} must be a string",
    re.IGNORECASE,
)
_UNSUPPORTED = late_re(
    r"support|unknown|unrecogni[sz]ed|unexpected|not permitted|not allowed|extra|unavailable"
    r"|deprecated|may only be set",
    re.IGNORECASE,
)
_SCHEMA_WORDS = r"response_format|text\.format|json.?schema|structured.?output|guided|grammar"
_SCHEMA = late_re(_SCHEMA_WORDS, re.IGNORECASE)
_SPEAKS_OF_SCHEMA = late_re(f"{_SCHEMA_WORDS}|schema|constraint", re.IGNORECASE)
_PARAMETERS = late_re(f"{_SCHEMA_WORDS}|schema|constraint|requested parameters", re.IGNORECASE)
_FAILED_GENERATION = late_re(r"json_validate_failed|failed_generation")
"""Groq's words for a text that did not follow the schema this time."""
_CONTENT = late_re(
    r"flagged|moderation|usage (guidelines|polic)|content (management )?polic|content[_ ]filter"
    r"|violat(es|ed|ing) .{0,40}(guidelines|polic|terms)|safety (check|system|polic)"
    r"|responsibleai|data_inspection_failed|inappropriate content|prohibited_content",
    re.IGNORECASE,
)
"""Words that refuse one text for what it says."""

NO_MODEL = "no such model"
_PERMANENT: tuple[tuple[re.Pattern[str], str, str], ...] = (
    (
        late_re(r"no healthy deployments|invalid model name|not a valid model|model_not_found"),
        NO_MODEL,
        "check the model's name",
    ),
    (
        late_re(r"no connected db|api_key_invalid|invalid_api_key|api key not valid"),
        "the endpoint refuses the key",
        "check the key",
    ),
    (
        late_re(
            r"^402|insufficient[_ ]?(quota|balance|credit|fund)|balance is insufficient"
            r"|budget_exceeded|budget has been exceeded|credit balance is too low"
            r"|exceeded[_ ](your[_ ])?current[_ ]quota|billing_(hard_limit|not_active)"
            r"|requires billing|spending limit|you will regain access"
            r"|(used all|any|out of) (available )?credits|credits? (is |are )?(depleted|exhausted)"
            r"|(monthly|included) credits|account.{0,60}(suspended|overdue|deactivated|in arrears)"
            r"|arrearage|accountoverdue|recharge|\b1113\b|余额不足|欠费|充值"
        ),
        "the account has no credit left",
        "raise its budget, then resume the run",
    ),
)
"""The refusals that cannot be resolved by repeating the call, even if their status is one that is
usually worth another try: the pattern of their words and codes, the meaning, and what to do. The
empty accounts are those of OpenAI, Anthropic, xAI, DeepSeek, Moonshot, Zhipu, DashScope,
SiliconFlow, Volcengine, Fireworks, Hugging Face, Google and LiteLLM."""
_UPSTREAM = late_re(r"litellm\.\w+Error|\w+Exception -|^\w+ error: ")
"""The pattern of a prefix that gateways put before the error of the provider behind them."""
_WAIT = late_re(
    r"(?:try again|retry) (?:in|after) ((?:\d+(?:\.\d+)?\s?(?:ms|s|m(?!illi)|h)[a-z]*\s?)+)",
    re.IGNORECASE,
)
_WAIT_FIELDS = ("retryDelay", "retry_after", "retryAfter", "retry_after_seconds", "Retry-After")
"""The fields of a body that name the time to wait, such as Google's `RetryInfo`."""
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
        wait: The seconds to wait that the body names; None if it names none.
        is_plain: Whether the body is a text or a page, as those of proxies are, and no JSON.
    """

    message: str
    code: str = ""
    param: str = ""
    limit: int | None = None
    wait: float | None = None
    is_plain: bool = False


def one_line(text: str, secrets: Collection[str] = ()) -> str:
    """Return a text without secrets, as one printable line of at most 300 characters."""
    for secret in secrets:
        text = text.replace(secret, "[key]")
    line = join_lines("".join(c if c.isprintable() else " " for c in text[:100_000]))
    return line if len(line) <= SHOWN else line[: SHOWN - 1] + "…"


def read_refusal(body: bytes) -> Refusal:
    """Read the parts of an error's body in any of the usual formats."""
    text = body.decode("utf-8", "replace")
    parsed = _parse(text)
    if is_array(parsed) and parsed:
        parsed = parsed[0]
    if not is_object(parsed):
        return Refusal(text, is_plain=parsed is None)

    return error_object(parsed.get("error") or parsed.get("detail") or parsed)


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


NESTED = 4
"""The most gateways whose errors are taken off, one around the other."""


def error_object(error: Any, depth: int = NESTED) -> Refusal:
    """Read an error. If a gateway's error contains the provider's, the provider's message counts,
    and the gateway's fields complete it."""
    if is_array(error):
        return _read_details(error)
    if not is_object(error):
        return Refusal(error if isinstance(error, str) else json.dumps(error))
    names = ("code", "type", "status", "error_type")
    code = " ".join(str(error[k]) for k in names if error.get(k))
    limit = error.get("n_ctx")
    refusal = Refusal(
        message=str(error.get("message") or error.get("detail") or json.dumps(error)),
        code=code,
        param=str(error.get("param") or ""),
        limit=limit if isinstance(limit, int) else None,
        wait=_find_wait(error),
    )
    inner = _find_inner(error) if depth else None
    if inner is None:
        return refusal

    nested = error_object(inner, depth - 1)
    return Refusal(
        message=nested.message,
        code=f"{code} {nested.code}".strip(),
        param=nested.param or refusal.param,
        limit=nested.limit or refusal.limit,
        wait=refusal.wait if nested.wait is None else nested.wait,
    )


def _find_inner(fields: Mapping[str, Any]) -> Any:
    """Return the provider's error within a gateway's; None if there is none."""
    raw = as_object(fields.get("metadata")).get("raw")
    places = (raw, fields.get("error"), *as_array(fields.get("errors"))[:1], fields.get("message"))

    for place in places:
        value = _parse(place) if isinstance(place, str) else place
        if is_array(value):
            value = next(iter(value), None)
        inner = as_object(value)
        if inner:
            return inner.get("error") or inner.get("detail") or inner

    # A text counts where gateways put the provider's words and nothing else.
    return raw if isinstance(raw, str) and raw.strip() else None


def _read_details(details: Sequence[Any]) -> Refusal:
    """Read the list of a validator: each item has the place (`loc`) of a wrong field."""
    places = [as_array(as_object(detail).get("loc")) for detail in details]
    fields = [name for place in places for name in place if name not in ("body", "query")]
    return Refusal(json.dumps(details), param=str(fields[0]) if fields else "")


def _find_wait(fields: Mapping[str, Any]) -> float | None:
    """Return the seconds to wait that an error or one of its details names."""
    metadata = as_object(fields.get("metadata"))
    details = list(map(as_object, as_array(fields.get("details"))))
    for part in (fields, metadata, as_object(metadata.get("headers")), *details):
        for name in _WAIT_FIELDS:
            wait = read_reset(str(part.get(name, "")), time())
            if wait is not None:
                return wait

    return None


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
    """Return whether the prompt is too long for the model's context."""
    words = refusal.message[:_READ]
    if _refuses_answer_limit(status, words) or _MINUTE.search(words):
        return False
    if status == 413:
        return True
    codes = ("context_length_exceeded", "exceed_context_size", "max_tokens_exceeded")
    has_code = any(code in refusal.code for code in codes)
    return status in (400, 422, 500) and (has_code or bool(_TOO_LONG.search(words)))


def _refuses_answer_limit(status: int, words: str) -> bool:
    """Return whether the limit of the answer is refused, and not the prompt: of the two, the larger
    one is to be changed."""
    if status not in (400, 413, 422):
        return False
    shares = _SHARES.search(words)
    if shares is not None:
        prompt, answer = (_count(shares[a] or shares[b]) for a, b in _PAIRS)
        return answer > prompt
    return bool(_ANSWER_LIMIT.search(words)) and not re.search("context (limit|length)", words)


_PAIRS = (("prompt", "input"), ("answer", "limit"))


def _count(text: str) -> int:
    return int(text.replace(",", ""))


def most_answer_tokens(status: int, refusal: Refusal) -> int | None:
    """Return the most tokens of an answer that an endpoint allows, if it refused a larger limit and
    names them; otherwise None."""
    words = refusal.message[:_READ]
    if not _refuses_answer_limit(status, words) or _SHARES.search(words):
        return None
    match = _MOST_ANSWER.search(words)
    return _count(match[1] or match[2]) or None if match else None


def is_failed_generation(refusal: Refusal) -> bool:
    """Return whether the model's text did not follow the schema this time, so that another try may
    succeed, with the schema."""
    return bool(_FAILED_GENERATION.search(f"{refusal.code} {refusal.message[:_READ]}"))


def may_refuse_schema(status: int, refusal: Refusal) -> bool:
    """Return whether a request with a schema is to be tried once without it. Endpoints word the
    refusal of a schema in too many ways to know them; so the second answer decides, unless the
    words have another meaning."""
    words = refusal.message[:_READ]
    if is_too_long(status, refusal) or _refuses_answer_limit(status, words):
        return False
    if _CONTENT.search(words) or _CONTENT.search(refusal.code) or _is_permanent(status, refusal):
        return False
    if status == 404:
        return bool(_PARAMETERS.search(words))
    return status in (400, 415, 422, 501) or (
        status >= 500 and bool(_SPEAKS_OF_SCHEMA.search(words))
    )


def refused_field(status: int, refusal: Refusal, sent: Collection[str]) -> str | None:
    """Return the field of the request that the endpoint does not accept; None if the refusal has
    another reason, such as the value of a limit."""
    message = refusal.message[:_READ]
    refused = status in (400, 422, 501) or (status == 500 and "unexpected keyword" in message)
    if not refused or is_too_long(status, refusal) or _refuses_answer_limit(status, message):
        return None
    asks_logprobs = "logprobs" in sent or "top_logprobs" in sent
    if asks_logprobs and ("logprobs" in refusal.param or "logprobs" in message):
        return "logprobs"
    if SCHEMA_FIELD in sent and (refusal.param.startswith(SCHEMA_FIELD) or _SCHEMA.search(message)):
        return SCHEMA_FIELD
    if not _UNSUPPORTED.search(message + refusal.code):
        return None
    fields = ("max_tokens", "max_completion_tokens", "temperature", "seed")
    for field in (*fields, "stream_options", "stream", *HINTS):
        mentioned = re.search(rf"\b{field}(ing)?\b", message, re.IGNORECASE)
        if field in sent and (refusal.param == field or mentioned):
            return field

    return None


def _is_permanent(status: int, refusal: Refusal, waits: bool = False) -> tuple[str, str] | None:
    """Return the meaning of a refusal that no other try resolves, and what to do; None if it is
    none. `waits`: it names a time to wait."""
    if status == 401:
        return None
    # Words of validators (422) are ignored, as they repeat the request. A 429 with a waiting time
    # is a limit.
    plain = status in (400, 402, 403, 404, 412) or (status == 429 and not waits)
    words = refusal.message[:SHOWN] if plain else ""
    signs = f"{status} {refusal.code} {words}".lower()
    for pattern, meaning, hint in _PERMANENT:
        if pattern.search(signs):
            return meaning, hint

    return None


def failure(
    name: str,
    status: int,
    refusal: Refusal,
    *,
    wait: float | None = None,
    secrets: Collection[str] = (),
    images: bool = False,
    answered: bool = False,
) -> ModelError:
    """Convert a refusal into an error; `name` is the model's. `images`: the request had images.
    `answered`: the endpoint has answered this client before, so that its model and key are good."""

    def denied(meaning: str, hint: str) -> AccessError:
        return AccessError(f"{name}: {meaning} ({status}): {message}; {hint}")

    message = one_line(refusal.message, secrets) or "no reason given"
    words = refusal.message[:_READ]
    if images and status in _SAYS_NO_IMAGES and _NO_IMAGES.search(words):
        return no_images(name, message)
    if _refuses_answer_limit(status, words):
        return RejectedError(
            f"{name}: the limit of the answer's tokens does not fit ({status}): {message};"
            " lower --max-output-tokens"
        )
    if _MINUTE.search(words) and status in (400, 413, 429):
        return RejectedError(
            f"{name}: the call needs more tokens than the account has in a minute ({status}):"
            f" {message}; lower --max-output-tokens, shorten the input, or raise the account's"
            " limit"
        )
    if status == 413 and not _TOO_LONG.search(words):  # a size in bytes, as proxies limit it
        return TooLongError(
            f"{name}: the endpoint, or a proxy before it, takes no request of this size"
            f" ({status}): {message}; shorten the input or the candidates, or make images smaller"
        )
    if is_too_long(status, refusal):
        return TooLongError(_too_long(name, refusal, message))

    wait = refusal.wait if wait is None else wait
    if wait is None and (wait_match := _WAIT.search(words)):
        wait = sum_spans(wait_match[1].lower().replace(" ", ""))  # only the words name it
    if permanent := _is_permanent(status, refusal, wait is not None):
        return denied(*permanent)
    if is_failed_generation(refusal) or (status == 403 and wait is not None):
        # A text that did not follow its schema may follow it next time; a 403 with a time to wait
        # is a limit.
        return UnavailableError(
            f"{name}: {status}: {message}", status=429 if wait else status, retry_after=wait
        )
    if status in RETRIED or (status >= 500 and status != 501):
        return UnavailableError(f"{name}: {status}: {message}", status=status, retry_after=wait)
    if status == 401 and _UPSTREAM.search(words):
        return denied(
            "the provider behind it refuses its key",
            "your own key is valid; the operator of the gateway has to correct its key for the"
            " provider",
        )

    if status == 401:
        return denied("the endpoint refuses the key", "check the key")
    if status == 403 and (answered or _CONTENT.search(f"{refusal.code} {words}")):
        return RejectedError(f"{name}: the provider refuses this text ({status}): {message}")
    if status == 403:
        error = denied("no right to use this model", "check the account")
        error.of_text = True
        return error
    if status in (400, 404, 405, 501) and _NO_CHAT.search(words):
        return decides_only(name, message)
    if status in (404, 405) and not answered:
        return denied(f"{NO_MODEL} or address", "check the model's name and the endpoint's address")

    return RejectedError(f"{name}: the endpoint rejects the request ({status}): {message}")


def _too_long(name: str, refusal: Refusal, message: str) -> str:
    limit = refusal.limit
    if limit is None and (match := _LIMIT.search(refusal.message[:_READ])):
        limit = _count(match[1])
    context_name = f"the model's context of {limit} tokens" if limit else "the model's context"
    return (
        f"{name}: the prompt does not fit into {context_name} ({message}); shorten the input or the"
        " candidates, or take a model with a longer context"
    )


def decides_only(name: str, message: str) -> CapabilityError:
    return CapabilityError(
        f"{name}: this is a decision model, it does not chat ({message}); use it as a decider, and"
        " name a chat model to write texts"
    )


def no_images(name: str, message: str) -> CapabilityError:
    return CapabilityError(
        f"{name}: this model takes no images ({message}); name a model that does, or judge without"
        " the images"
    )


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
    return CapabilityError(
        f"{name}: this model embeds texts, it does not chat; name it as the embedder, and name a"
        " chat model to write or judge texts"
    )


def without_logprobs(name: str, message: str) -> CapabilityError:
    return CapabilityError(f"{name}: {NO_LOGPROBS} ({message}); take a model that gives them")
