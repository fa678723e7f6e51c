"""Made users in HaluMem's shape, from templates and a seed: for tests, and to try an adapter on.

No model is needed. Every fact stands word for word in its dialogue, and no fact that is true is
ever an interference, so that comparing strings is a perfect judge of this data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from random import Random

from textevolve.errors import InputError
from textevolve.memory_eval.dataset import (
    DialogueTurn,
    MemoryPoint,
    MemoryQuestion,
    MemorySource,
    MemoryType,
    Session,
    User,
    hash_line,
    user_to_line,
)

UNKNOWN = "unknown"
"""The answer to a question that nothing said answers."""

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_START = datetime(2025, 1, 6, 9)
_FIRST, _LAST, _PLACES, _DISHES, _WORK, _PLAYS, _PETS, _DISLIKES = (
    words.split()
    for words in (
        "Alex Andrea Charlie Dana Eden Jules Kai Kim Lou Luca Mika Nico Noa Robin Sam Sasha",
        "Abel Brandt Costa Duarte Engel Fontaine Greco Holm Ibsen Jansen Keller Lund Moreau",
        "Lisbon Porto Lyon Turin Ghent Bremen Malmo Tartu Krakow Graz Cork Leeds Bergen Turku",
        "ramen paella risotto goulash falafel borscht lasagne curry pierogi moussaka",
        "nurse baker welder teacher florist surveyor translator plumber pharmacist pilot",
        "cello oboe banjo trumpet harp clarinet accordion bassoon mandolin tuba",
        "Rex Luna Pixel Biscuit Nemo Olive Sultan Waffle Ziggy Mochi",
        "peanuts shellfish pollen latex mustard sesame lupins celery wasps noise",
    )
)
_LEADS = ("Before I forget it: {fact}", "Please keep this in mind. {fact}", "I have news. {fact}")
_CHANGE = "What I said before no longer holds. {fact}"
_ARRANGED = "You asked me to write it down: {fact}"
_WRONG = (
    ("Imagine this, only as an example, for it is not true: {fact}", "I see, an example only."),
    ("A friend claims it, but it was never so: {fact}", "Then I shall not believe it."),
)
_CHATTER = (
    ("What is {a} times {b}?", "{a} times {b} is {product}."),
    ("Is {a} an even number?", "Look at its last digit only."),
)
_SLOTS: Sequence[tuple[MemoryType, str, str, Sequence[str]]] = (
    ("persona", "{name} lives in {value}.", "Where does {name} live?", _PLACES),
    ("persona", "{name} works as a {value}.", "What does {name} work as?", _WORK),
    ("persona", "{name} likes {value} best.", "Which dish does {name} like best?", _DISHES),
    ("persona", "{name} plays the {value}.", "What does {name} play?", _PLAYS),
    ("persona", "{name} cannot bear {value}.", "What can {name} not bear?", _DISLIKES),
    ("persona", "{name} has saved {value} euros.", "How much has {name} saved in euros?", ()),
    ("persona", "{name} has read {value} books.", "How many books has {name} read?", ()),
    ("relationship", "{name} has a dog named {value}.", "What is {name}'s dog named?", _PETS),
    ("relationship", "{name}'s friend is {value}.", "Who is {name}'s friend?", _FIRST),
    ("relationship", "{name}'s boss is {value}.", "Who is {name}'s boss?", _LAST),
)
"""What has one value at a time: its type, the fact, a question, and the values. The last three
values are used for interference, so they are never true; with no values it is a number, and always
has a next one."""
_NEVER_SAID = ("What is {name}'s blood group?", "How tall is {name}?")
_SPARE = 3
_CHATS = 2


def synthesise(users: int, sessions: int, seed: int = 0) -> Iterator[User]:
    """Make users with as many sessions, one at a time; user n is the same however many there are,
    and begins alike however many sessions it has.

    A session has four memory points of the three types, from the second on one of them or more
    updating an earlier one; one interference point; two rounds of talk with nothing to keep; and
    questions, some across sessions and some that nothing answers. About one session in twelve is
    chatter only, of the kind that is fed and not scored.

    Raises:
        InputError: a number is out of range.
    """
    for name, value in (("users", users), ("sessions", sessions)):
        if value < 1:
            raise InputError(f"{name} must be 1 or more, not {value}")
    return (_make_user(number, sessions, seed) for number in range(1, users + 1))


def _make_user(number: int, sessions: int, seed: int) -> User:
    life = _Life(Random(f"{seed}/{number}"))
    made = tuple(life.make_session(index) for index in range(sessions))
    user = User(f"synth-{seed}-{number}", made, f"Name: {life.name}", number)
    return replace(user, sha256=hash_line(user_to_line(user).encode()))


class _Life:
    """What is true of one user so far, and the session in the making.

    `known`: by its place in `_SLOTS`, the fact of a slot, its value, and its latest session.
    `updated`: the places that had another value before. `rounds`: of talk, in any order.
    """

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.name = f"{rng.choice(_FIRST)} {rng.choice(_LAST)}"
        self.known: dict[int, tuple[str, str, int]] = {}
        self.updated: set[int] = set()
        self.left = [rng.sample(values, len(values)) for *_, values in _SLOTS]
        self.number = 1000
        self.start = _START
        self.points: list[MemoryPoint] = []
        self.rounds: list[tuple[tuple[str, str], tuple[str, str]]] = []

    def make_session(self, index: int) -> Session:
        rng, start = self.rng, self.start
        self.points, self.rounds = [], []
        unscored = index > 0 and rng.random() < 1 / 12
        if not unscored:
            self._add_slot(index, [p for p, (*_, when) in self.known.items() if when < index])
            self._add_slot(index, [p for p in range(len(_SLOTS)) if p not in self.known])
            self._add_event("event", f"visited {rng.choice(_PLACES)}")
            self._add_event("relationship", f"met {rng.choice(_FIRST)} {rng.choice(_LAST)}")
            self._add_interference()
        self.rounds += [self._chat() for _ in range(_CHATS)]
        rng.shuffle(self.rounds)
        turns = [turn for each in self.rounds for turn in each]
        times = [_stamp(start + timedelta(seconds=40 * n)) for n in range(len(turns) + 1)]
        questions = () if unscored else tuple(self._ask(index))
        self.start += timedelta(days=rng.randint(1, 9), minutes=rng.randint(0, 240))
        return Session(
            index=index,
            dialogue=tuple(DialogueTurn(*turns[n], times[n]) for n in range(len(turns))),
            points=tuple(self.points),
            questions=questions,
            start=times[0],
            end=times[-1],
            is_generated_qa=unscored,
        )

    def _add_slot(self, index: int, places: list[int]) -> None:
        """Say a new value of one of these slots, or what happened where none has another."""
        for place in self.rng.sample(places, len(places)):
            value = self._next_value(place)
            if value is None:
                continue
            type, fact, *_ = _SLOTS[place]
            content = fact.format(name=self.name, value=value)
            originals = (self.known[place][0],) if place in self.known else ()
            self.known[place] = content, value, index
            self.updated |= {place} if originals else set()
            lead = _CHANGE if originals else self.rng.choice(_LEADS)
            self._keep(content, type, "primary", (lead, "Good to know."), originals)
            return
        self._add_event("event", f"saw play {len(self.points) + 1}")

    def _next_value(self, place: int) -> str | None:
        """Return a value that the slot has never had; None where it has had them all."""
        if not _SLOTS[place][-1]:
            self.number += 5 * self.rng.randint(1, 9)
            return str(self.number)
        return self.left[place].pop() if len(self.left[place]) > _SPARE else None

    def _add_event(self, type: MemoryType, what: str) -> None:
        """Say something dated to the minute, so that it is never said twice."""
        when = self.start + timedelta(minutes=5 * len(self.points))
        stamp = f"{when.day} {_MONTHS[when.month - 1]} {when.year} at {when:%H:%M}"
        content = f"On {stamp} {self.name} {what}."
        if self.rng.random() < 0.25:
            self._keep(content, type, "system", ("Please write it down.", _ARRANGED))
        else:
            self._keep(content, type, "secondary", (self.rng.choice(_LEADS), "Thank you."))

    def _add_interference(self) -> None:
        """Say something with a value that its slot never has."""
        place = self.rng.randrange(len(_SLOTS))
        type, fact, _, values = _SLOTS[place]
        wrong = self.left[place][:_SPARE] if values else [str(self.number + self.rng.randint(1, 4))]
        content = fact.format(name=self.name, value=self.rng.choice(wrong))
        self._keep(content, type, "interference", self.rng.choice(_WRONG))

    def _keep(
        self,
        content: str,
        type: MemoryType,
        source: MemorySource,
        talk: tuple[str, str],
        originals: tuple[str, ...] = (),
    ) -> None:
        """Note a point, and the two turns, one of which says it."""
        said, answered = (text.format(fact=content) for text in talk)
        self.rounds.append((("user", said), ("assistant", answered)))
        importance = self.rng.choice((0.25, 0.5, 0.75, 1.0))
        place, when, update = len(self.points) + 1, _stamp(self.start), bool(originals)
        self.points.append(
            MemoryPoint(place, content, type, source, importance, update, originals, when)
        )

    def _chat(self) -> tuple[tuple[str, str], tuple[str, str]]:
        a, b = self.rng.randint(2, 999), self.rng.randint(2, 999)
        question, answer = (
            text.format(a=a, b=b, product=a * b) for text in self.rng.choice(_CHATTER)
        )
        return ("user", question), ("assistant", answer)

    def _ask(self, index: int) -> Iterator[MemoryQuestion]:
        """Ask what holds after the session."""
        rng, places = self.rng, list(self.known)
        plain = rng.choice(places)
        changed = rng.choice(sorted(self.updated)) if self.updated else None
        if plain != changed:  # else it would be asked twice
            yield self._question((plain,), "easy", "Basic Fact Recall")
        if changed is not None:
            yield self._question((changed,), "easy", "Dynamic Update")
        when = {place: session for place, (*_, session) in self.known.items()}
        apart = [(a, b) for a in places for b in places if when[a] < when[b]]
        if apart:
            yield self._question(rng.choice(apart), "hard", "Multi-hop Inference")
        if index % 2 == 0:
            question = rng.choice(_NEVER_SAID).format(name=self.name)
            yield MemoryQuestion(question, UNKNOWN, (), "medium", "Memory Boundary")

    def _question(self, places: Sequence[int], difficulty: str, type: str) -> MemoryQuestion:
        facts, values = [self.known[p][0] for p in places], [self.known[p][1] for p in places]
        question = " ".join(_SLOTS[place][2].format(name=self.name) for place in places)
        if len(places) > 1:
            question = f"Two things at once: {question}"
        return MemoryQuestion(question, " and ".join(values), tuple(facts), difficulty, type)


def _stamp(time: datetime) -> str:
    """As the benchmark writes it, whatever the locale is: Dec 15, 2025, 06:11:23."""
    return f"{_MONTHS[time.month - 1]} {time.day:02}, {time.year}, {time:%H:%M:%S}"
