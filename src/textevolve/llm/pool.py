"""Several endpoints of one model: which of them is asked, and what happens when one fails.

A pool stands where a limited client stands, below the retries. Each call tries every member at most
once. Members that fail are left out for a while, then one call tries them again. Not here: limits
of a member (`limiting`), opening (`opening`), and what a pool may consist of (`providers`).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from textevolve.errors import AccessError, FatalModelError, ModelError, UnavailableError
from textevolve.events import CallRetried, Listener, silence
from textevolve.llm.limiting import Limited
from textevolve.llm.model import Request, Response
from textevolve.llm.prompt_cache import prefix_key

FAILURES = 3
"""Failures in a row after which a member is left out; one where it refuses the key or the model."""
FIRST_PAUSE, LONGEST_PAUSE = 5.0, 300.0
"""Seconds for which it is left out, twice as long each time, and at most."""
HOMES = 8192
"""Beginnings of prompts of which is known which member has them."""


class Member:
    """One endpoint of a pool, with what is known of its health."""

    def __init__(self, model: Limited, weight: float = 1.0) -> None:
        self.model, self.weight = model, weight
        self.failed: ModelError | None = None
        self.probe: asyncio.Future[None] | None = None
        self.turn = 0.0
        self._failures = 0
        self._pause = FIRST_PAUSE
        self._until: float | None = None

    @property
    def name(self) -> str:
        return self.model.name

    @property
    def down(self) -> bool:
        """Whether it is left out, or is being tried again."""
        return self._until is not None

    def pause_left(self, now: float) -> float:
        """Seconds for which it is still left out."""
        return 0.0 if self._until is None else max(0.0, self._until - now)

    def may_be_asked(self, now: float) -> bool:
        return self._until is None or (self.probe is None and now >= self._until)

    @property
    def is_full(self) -> bool:
        return self.model.load >= int(self.model.limit)

    def succeed(self) -> None:
        self._failures, self._pause = 0, FIRST_PAUSE
        self._until, self.failed = None, None

    def fail(self, error: ModelError, now: float, probed: bool) -> bool:
        """Whether the member is left out from now on."""
        self.failed = error
        if isinstance(error, UnavailableError) and error.status == 429:
            if probed:
                self.succeed()  # it is there
            return False
        self._failures += 1
        opens = self._failures >= FAILURES or isinstance(error, FatalModelError)
        if probed or (self._until is None and opens):
            self._until = now + self._pause
            self._pause = min(LONGEST_PAUSE, 2 * self._pause)
            return True
        return False

    def say(self, now: float) -> str:
        """Why it does not answer."""
        left = f", left out for {self.pause_left(now):.0f} s" if self.down else ""
        return f"{self.failed or self.name + ' is being tried'}{left}"


class Pool:
    """A model behind several endpoints, each with its own limits.

    A call goes to the member that has fewest calls for its weight. Calls whose prompts begin alike
    stay with one member while it is healthy, for its prefix cache. Where a member fails, the next
    is asked within the same call; where it is limited (429), it is passed over until the time that
    it named. `Response.member` says who answered.
    """

    def __init__(self, name: str, members: Sequence[Member], listener: Listener = silence) -> None:
        self.name = name
        self.members = tuple(members)
        self._listener = listener
        self._homes: OrderedDict[str, Member] = OrderedDict()
        self._turn = 0.0

    async def __call__(self, request: Request, /) -> Response:
        """
        Raises:
            RejectedError, AnswerError: of the member that was asked; others would do the same.
            UnavailableError: no member answers; AccessError: none can.
        """
        tried: dict[Member, ModelError] = {}
        key = prefix_key(request)
        loop = asyncio.get_running_loop()
        while True:
            member = self._choose(key, tried, loop.time())
            if member is None:
                if await self._wait_for_probe(tried):
                    continue
                raise self._all_down(tried, loop.time())
            probe = self._begin_probe(member, loop)
            try:
                response = await member.model(request)
            except (UnavailableError, FatalModelError) as error:
                tried[member] = error
                left_out = member.fail(error, loop.time(), probe is not None)
                self._tell(member, error, left_out, len(tried))
            else:
                member.succeed()
                made = sum(error.attempts for error in tried.values()) + response.attempts
                return replace(response, member=member.name, attempts=made)
            finally:
                if probe is not None:
                    member.probe = None
                    probe.set_result(None)

    def _begin_probe(
        self, member: Member, loop: asyncio.AbstractEventLoop
    ) -> asyncio.Future[None] | None:
        if member.down:
            member.probe = loop.create_future()
        return member.probe if member.down else None

    async def _wait_for_probe(self, tried: Mapping[Member, ModelError]) -> bool:
        """Waits for what comes of members that other calls try again; False where there are
        none."""
        probes = [one.probe for one in self.members if one.probe is not None and one not in tried]
        if probes:
            await asyncio.wait(probes, return_when=asyncio.FIRST_COMPLETED)
        return bool(probes)

    def _choose(
        self, key: str | None, tried: dict[Member, ModelError], now: float
    ) -> Member | None:
        ready = [one for one in self.members if one not in tried and one.may_be_asked(now)]
        held = {one: one.model.held()[0] for one in ready}
        free = [one for one in ready if not held[one]]
        if not ready or (tried and not free):
            return None
        home = self._homes.get(key) if key is not None else None
        if home is not None and home in free and not home.down:
            chosen = home
        elif free:
            chosen = min(free, key=self._rank)
        else:
            chosen = min(ready, key=lambda one: held[one])
        self._take_turn(chosen)
        if key is not None:
            self._homes[key] = chosen
            self._homes.move_to_end(key)
            if len(self._homes) > HOMES:
                self._homes.popitem(last=False)
        return chosen

    def _rank(self, member: Member) -> tuple[bool, float, float]:
        """Those with room first, then the least busy for its weight, then whose turn it is."""
        turn = max(member.turn, self._turn)
        return member.is_full, member.model.load / member.weight, turn

    def _take_turn(self, member: Member) -> None:
        """Among members that are equally busy turns follow the weights; who was away for a while
        does not catch up on what it missed."""
        self._turn = max(member.turn, self._turn)
        member.turn = self._turn + 1.0 / member.weight

    def _tell(self, member: Member, error: ModelError, left_out: bool, attempt: int) -> None:
        pause = member.pause_left(asyncio.get_running_loop().time())
        more = f"; it is left out for {pause:.0f} s" if left_out else ""
        self._listener(CallRetried(self.name, f"{error}{more}", attempt, 0.0))

    def _all_down(self, tried: Mapping[Member, ModelError], now: float) -> ModelError:
        said = "; ".join(one.say(now) for one in self.members)
        message = f"{self.name}: none of its {len(self.members)} members answers: {said}"
        error: ModelError
        if all(isinstance(one.failed, FatalModelError) for one in self.members):
            error = AccessError(message)
        else:
            errors = [one for one in tried.values() if isinstance(one, UnavailableError)]
            limited = bool(errors) and all(one.status == 429 for one in errors)
            wait = min(self._wait_of(one, now) for one in self.members)
            unconnected = [getattr(one.failed, "address", "") for one in self.members]
            error = UnavailableError(
                message,
                status=429 if limited else None,
                retry_after=wait or None,
                address=", ".join(unconnected) if all(unconnected) else "",
            )
        error.attempts = max(1, sum(one.attempts for one in tried.values()))
        return error

    def _wait_of(self, member: Member, now: float) -> float:
        return member.pause_left(now) or member.model.held()[0]
