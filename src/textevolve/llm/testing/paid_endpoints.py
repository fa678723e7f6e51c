"""Scripts that behave as paid endpoints do: a limit of requests with its headers, a prompt cache.

async with ScriptedServer(WindowLimit(20, 1.0)) as server: ...
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Literal

from textevolve.llm.testing.answers import Answer

BLOCK = 512
"""Characters that a prompt cache finds again without marks: 128 tokens."""


class WindowLimit:
    """A script that lets `limit` requests through in each window of `seconds`, answers 429 to
    others, and tells where the limit stands in the headers, as OpenAI's.

    `fills`: "at once" gives all of it back when the window ends, "steadily" a part at a time.
    `tells`: False is an endpoint without such headers. `asks_to_wait`: the 429 has a Retry-After.
    `answered` and `refused` count.
    """

    def __init__(
        self,
        limit: int,
        seconds: float,
        *,
        fills: Literal["at once", "steadily"] = "at once",
        tells: bool = True,
        asks_to_wait: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limit, self.seconds, self.fills = limit, seconds, fills
        self.tells, self.asks_to_wait = tells, asks_to_wait
        self.answered = self.refused = 0
        self._clock = clock
        self._left, self._at = float(limit), clock()

    def __call__(self, _body: Mapping[str, Any], _number: int) -> Answer:
        now = self._clock()
        passed = now - self._at
        if self.fills == "steadily":
            self._left = min(self.limit, self._left + passed * self.limit / self.seconds)
            self._at = now
        elif passed >= self.seconds:
            self._left, self._at = float(self.limit), now
        let = self._left >= 1
        self._left -= let
        headers = self._headers(now) if self.tells else {}
        if let:
            self.answered += 1
            return Answer(headers=headers)
        self.refused += 1
        if self.asks_to_wait:
            headers |= {"retry-after-ms": f"{1000 * self._next(now):.0f}"}
        error = {"message": "Rate limit reached", "type": "requests", "code": "rate_limit_exceeded"}
        return Answer(status=429, body=json.dumps({"error": error}).encode(), headers=headers)

    def _next(self, now: float) -> float:
        each = self.seconds / self.limit
        return (1 - self._left) * each if self.fills == "steadily" else self._whole(now)

    def _whole(self, now: float) -> float:
        missing = (self.limit - self._left) * self.seconds / self.limit
        return missing if self.fills == "steadily" else max(0.0, self._at + self.seconds - now)

    def _headers(self, now: float) -> dict[str, str]:
        return {
            "x-ratelimit-limit-requests": str(self.limit),
            "x-ratelimit-remaining-requests": str(int(self._left)),
            "x-ratelimit-reset-requests": f"{1000 * self._whole(now):.0f}ms",
        }


class PrefixCache:
    """A script with a prompt cache that says in the usage what it read and wrote.

    `marks`: only what a `cache_control` stands behind is kept, and found again if it was kept no
    more than 20 parts earlier, as Anthropic's. Else each of `hosts` keeps all whole blocks of 128
    tokens that it was sent, and a request goes to the host of its `prompt_cache_key`, or else to
    the next in turn. A prompt of fewer than `least` tokens is not kept; a token are four
    characters. `reads`, `writes` and `prompts` are sums of tokens.
    """

    def __init__(self, *, marks: bool = False, hosts: int = 1, least: int = 0) -> None:
        self.marks, self.least = marks, least
        self.reads = self.writes = self.prompts = 0
        self._hosts: list[set[tuple[bytes, int]]] = [set() for _ in range(hosts)]
        self._homes: dict[str, int] = {}

    def __call__(self, body: Mapping[str, Any], number: int) -> Answer:
        parts = _parts(body.get("messages") or ())
        if not self.marks:
            parts = _blocks("".join(text for text, _ in parts))
        begins = _beginnings([text for text, _ in parts])
        ends = [n for n, (_, marked) in enumerate(parts) if marked]
        kept = self._hosts[self._home(body.get("prompt_cache_key"), number)]
        back = 20 if self.marks else 1
        reachable = {n for end in ends for n in range(max(0, end - back + 1), end + 1)}
        read = max((begins[n][1] for n in reachable if begins[n] in kept), default=0)
        new = [begins[n] for n in ends if begins[n][1] >= self.least]
        kept.update(new)
        written = max(0, max((tokens for _, tokens in new), default=0) - read)
        prompt = begins[-1][1] if begins else 0
        self.prompts, self.reads = self.prompts + prompt, self.reads + read
        self.writes += written
        details = {"cached_tokens": read} | ({"cache_write_tokens": written} if self.marks else {})
        usage = {"prompt_tokens": prompt, "completion_tokens": 50, "total_tokens": prompt + 50}
        return Answer(usage=usage | {"prompt_tokens_details": details})

    def _home(self, key: str | None, number: int) -> int:
        if key is None:
            return number % len(self._hosts)
        return self._homes.setdefault(key, len(self._homes) % len(self._hosts))


def _parts(messages: Sequence[Mapping[str, Any]]) -> list[tuple[str, bool]]:
    """The texts of a request, and behind which a mark stands."""
    found: list[tuple[str, bool]] = []
    for message in messages:
        content: Any = message.get("content") or ""
        if isinstance(content, str):
            found.append((content, False))
        else:
            found += [(part.get("text", ""), "cache_control" in part) for part in content]
    return found


def _blocks(text: str) -> list[tuple[str, bool]]:
    """All of it in blocks, of which the whole ones can be kept."""
    cut = [text[start : start + BLOCK] for start in range(0, len(text), BLOCK)]
    return [(block, len(block) == BLOCK) for block in cut]


def _beginnings(texts: Sequence[str]) -> list[tuple[bytes, int]]:
    """For each place between texts what stands before it, as a hash, and its tokens."""
    digest, characters, found = blake2b(digest_size=16), 0, list[tuple[bytes, int]]()
    for text in texts:
        digest.update(text.encode("utf-8", "surrogatepass"))
        characters += len(text)
        found.append((digest.digest(), characters // 4))
    return found
