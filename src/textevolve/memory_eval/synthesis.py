"""Made users in HaluMem's shape, from templates and a seed: for tests, and to try an adapter on.

No model is needed. Every fact stands word for word in its dialogue, and no fact that is true is
ever an interference, so that comparing strings is a perfect judge of this data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from random import Random
from typing import TypeAlias

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
_RELATIONS = ("sister", "brother", "manager", "neighbour", "cousin", "best friend", "dentist")
_OUTINGS = ("visited a museum", "saw a play", "ran a race", "took a course", "bought a bicycle")

_LEADS = (
    "Something about me for later: {fact}",
    "Before I forget it: {fact}",
    "Please keep this in mind. {fact}",
    "I have news. {fact}",
)
_CHANGES = ("Things have changed: {fact}", "What I said before no longer holds. {fact}")
_ARRANGED = "You asked me to write it down: {fact}"
_THANKS = ("Thank you, that helps.", "Good to know.", "I understand.", "Thanks for telling me.")
_WRONG: Sequence[tuple[tuple[str, str], ...]] = (
    (("assistant", "Let me guess. {fact}"), ("user", "No, that is not so, and never was.")),
    (
        ("user", "Imagine this, only as an example, for it is not true: {fact}"),
        ("assistant", "I see, an example only."),
    ),
    (
        ("assistant", "Another user told me this of themselves. {fact}"),
        ("user", "That is somebody else then, not me."),
    ),
)
_CHATTER: Sequence[tuple[str, str]] = (
    ("What is {a} times {b}?", "{a} times {b} is {product}."),
    ("Is {a} larger than {b}?", "Compare them digit by digit, from the left."),
    ("Is {a} an even number?", "Look at its last digit only."),
    ("Tell me something about the number {a}.", "It comes right after {before}."),
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
    *(
        (
            "relationship",
            f"{{name}}'s {relation} is called {{value}}.",
            f"What is {{name}}'s {relation} called?",
            _FIRST,
        )
        for relation in _RELATIONS
    ),
)
"""What has one value at a time: its type, the fact, a question, and the values. The last three
values are used for interference, so they are never true; with no values it is a number, and always
has a next one."""
_NEVER_SAID = (
    "What is {name}'s blood group?",
    "Which school did {name} go to?",
    "How tall is {name}?",
    "What is {name}'s shoe size?",
    "Which languages does {name} speak?",
)
_SPARE = 3
_FACTS = 4
_CHATS = 2

_Round: TypeAlias = tuple[tuple[str, str], ...]
"""What the two said in turn: roles and texts."""


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
    `rounds`: of talk, in any order. `points`: those in them.
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
        self.rounds: list[_Round] = []

    def make_session(self, index: int) -> Session:
        rng, start = self.rng, self.start
        self.points, self.rounds = [], []
        unscored = index > 0 and rng.random() < 1 / 12
        if not unscored:
            for number in range(_FACTS):
                self._add_fact(index, number)
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

    def _add_fact(self, index: int, number: int) -> None:
        """The first updates what an earlier session said, where there was one; the others vary."""
        kind = self.rng.choice(("slot", "slot", "update", "event", "meeting"))
        if number == 0:
            kind = "slot" if index == 0 else "update"
        if kind in ("slot", "update"):
            places = [place for place in range(len(_SLOTS)) if place not in self.known]
            if kind == "update":
                places = [place for place, (*_, when) in self.known.items() if when < index]
            self.rng.shuffle(places)
            for place in places:
                if (value := self._next_value(place)) is not None:
                    self._say_slot(place, value, index)
                    return
        self._add_event(number, kind == "meeting")

    def _next_value(self, place: int) -> str | None:
        """Return a value that the slot has never had; None where it has had them all."""
        if not _SLOTS[place][-1]:
            self.number += 5 * self.rng.randint(1, 9)
            return str(self.number)
        return self.left[place].pop() if len(self.left[place]) > _SPARE else None

    def _say_slot(self, place: int, value: str, index: int) -> None:
        type, fact, *_ = _SLOTS[place]
        content = fact.format(name=self.name, value=value)
        originals = (self.known[place][0],) if place in self.known else ()
        self._keep(content, type, "primary", self.rng.choice((0.5, 0.75, 1.0)), originals)
        self.known[place] = content, value, index
        if originals:
            self.updated.add(place)
        self._tell(self.rng.choice(_CHANGES if originals else _LEADS), content)

    def _add_event(self, number: int, meeting: bool) -> None:
        """Something dated to the minute, so that it is never said twice."""
        rng = self.rng
        day = self.start.replace(hour=0, minute=0) + timedelta(minutes=480 + 5 * number)
        when = f"{day.day} {_MONTHS[day.month - 1]} {day.year} at {day:%H:%M}"
        place = rng.choice(_PLACES)
        if meeting:
            what = f"met {rng.choice(_FIRST)} {rng.choice(_LAST)}"
        else:
            what = rng.choice(_OUTINGS)
        content = f"On {when} {self.name} {what} in {place}."
        type: MemoryType = "relationship" if meeting else "event"
        if rng.random() < 0.25:
            self._keep(content, type, "system", 0.5)
            arranged = ("assistant", _ARRANGED.format(fact=content))
            self.rounds.append((arranged, ("user", "Yes, that is right.")))
        else:
            self._keep(content, type, "secondary", rng.choice((0.25, 0.5)))
            self._tell(rng.choice(_LEADS), content)

    def _add_interference(self) -> None:
        """Say something with a value that its slot never has."""
        place = self.rng.randrange(len(_SLOTS))
        type, fact, _, values = _SLOTS[place]
        if values:
            value = self.rng.choice(self.left[place][:_SPARE])
        else:
            value = str(self.number + self.rng.randint(1, 4))
        content = fact.format(name=self.name, value=value)
        self._keep(content, type, "interference", 0.5)
        wrong = self.rng.choice(_WRONG)
        self.rounds.append(tuple((role, text.format(fact=content)) for role, text in wrong))

    def _keep(
        self,
        content: str,
        type: MemoryType,
        source: MemorySource,
        importance: float,
        originals: tuple[str, ...] = (),
    ) -> None:
        place, when = len(self.points) + 1, _stamp(self.start)
        update = bool(originals)
        point = MemoryPoint(place, content, type, source, importance, update, originals, when)
        self.points.append(point)

    def _tell(self, lead: str, fact: str) -> None:
        answer = ("assistant", self.rng.choice(_THANKS))
        self.rounds.append((("user", lead.format(fact=fact)), answer))

    def _chat(self) -> _Round:
        a, b = self.rng.randint(2, 999), self.rng.randint(2, 999)
        numbers = {"a": a, "b": b, "product": a * b, "before": a - 1}
        question, answer = self.rng.choice(_CHATTER)
        return ("user", question.format(**numbers)), ("assistant", answer.format(**numbers))

    def _ask(self, index: int) -> Iterator[MemoryQuestion]:
        """Questions about what holds after the session."""
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
        facts = [self.known[place] for place in places]
        question = " ".join(_SLOTS[place][2].format(name=self.name) for place in places)
        return MemoryQuestion(
            question if len(places) == 1 else f"Two things at once: {question}",
            " and ".join(value for _, value, _ in facts),
            tuple(fact for fact, *_ in facts),
            difficulty,
            type,
        )


def _stamp(time: datetime) -> str:
    """As the benchmark writes it, whatever the locale is: Dec 15, 2025, 06:11:23."""
    return f"{_MONTHS[time.month - 1]} {time.day:02}, {time.year}, {time:%H:%M:%S}"
