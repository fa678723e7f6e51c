"""Generate users in the format of HaluMem from templates and a seed, to test and to try out
adapters of memory systems.

No model is needed. Every fact stands word for word in its dialogue, and an interference (a false
statement that must not be stored) is never true of the user, so comparing strings judges this data
without error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from random import Random

from textevolve.memory_eval.dataset import (
    UNKNOWN,
    DialogueTurn,
    MemoryPoint,
    MemoryQuestion,
    MemorySource,
    MemoryType,
    Session,
    User,
)

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
_TELLERS: Sequence[tuple[MemorySource, str, str]] = (
    ("secondary", "user", "assistant"),
    ("system", "assistant", "user"),
)
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
    ("What is {a} times {b}?", "A calculator says it fastest."),
    ("Is {a} larger than {b}?", "Compare them digit by digit, from the left."),
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
"""The facts that have one value at a time, such as the user's home: the memory type, the sentence,
a question, and the values. The last three unused values of a user are kept for interference, so
they are never true. A slot without values holds a growing number."""
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
"""Numbers: values of a slot that are kept for interference, facts of a session, and rounds of small
talk."""


def synthesise(users: int, sessions: int, seed: int = 0) -> Iterator[User]:
    """Yield users with so many sessions each, one at a time. User n does not depend on the number
    of users, and its first sessions do not depend on the number of sessions.

    A session has four memory points, of which up to two update earlier ones from the second session
    on; one interference point; two rounds of small talk; and questions, some about several sessions
    and some without an answer. About one session in twelve is only small talk, which is fed to the
    system but not scored.
    """

    return (_make_user(number, sessions, seed) for number in range(1, users + 1))


def _make_user(number: int, sessions: int, seed: int) -> User:
    life = _Life(Random(f"{seed}/{number}"))
    return User(f"synth-{seed}-{number}", tuple(map(life.make_session, range(sessions))))


class _Life:
    """The current facts of one user, and the session under construction.

    `facts`: by the index in `_SLOTS`, the sentence, its value, and its latest session. `unused`: by
    the same index, the values that the user has never had. `rounds`: the rounds of talk of the
    session, in any order. `points`: the memory points in them.
    """

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.name = f"{rng.choice(_FIRST)} {rng.choice(_LAST)}"
        self.facts: dict[int, tuple[str, str, int]] = {}
        self.unused = [rng.sample(values, len(values)) for *_, values in _SLOTS]
        self.number = 1000
        self.start = _START
        self.points: list[MemoryPoint] = []
        self.rounds: list[tuple[tuple[str, str], ...]] = []

    def make_session(self, index: int) -> Session:
        rng = self.rng
        self.points = []
        self.rounds = []
        unscored = index > 0 and rng.random() < 1 / 12
        old = [n for n in self.facts if not _SLOTS[n][-1] or len(self.unused[n]) > _SPARE]
        new = [place for place in range(len(_SLOTS)) if place not in self.facts]
        updated = [] if unscored else rng.sample(old, min(2, len(old)))

        if not unscored:
            for place in [*updated, *rng.sample(new, min(2, len(new)))]:
                self._add_slot(place, index)
            for number in range(_FACTS - len(self.points)):
                self._add_event(number)
            self._add_interference()

        for _ in range(_CHATS):
            numbers = {"a": rng.randint(2, 999), "b": rng.randint(2, 999)}
            question, answer = (text.format(**numbers) for text in rng.choice(_CHATTER))
            self.rounds.append((("user", question), ("assistant", answer)))

        rng.shuffle(self.rounds)
        turns = [turn for each in self.rounds for turn in each]
        moments = [self.start + timedelta(seconds=40 * n) for n in range(len(turns))]
        times = [  # as the benchmark writes them, in any locale: Dec 15, 2025, 06:11:23
            f"{_MONTHS[time.month - 1]} {time.day:02}, {time.year}, {time:%H:%M:%S}"
            for time in moments
        ]
        self.start += timedelta(days=rng.randint(1, 9))

        return Session(
            index=index,
            dialogue=tuple(
                DialogueTurn(*turn, time) for turn, time in zip(turns, times, strict=True)
            ),
            points=tuple(self.points),
            questions=() if unscored else tuple(self._ask(index, updated)),
            is_generated_qa=unscored,
        )

    def _add_slot(self, place: int, index: int) -> None:
        """Add a round with a value that the slot has never had."""
        type, fact, _, values = _SLOTS[place]
        self.number += 5 * self.rng.randint(1, 9)
        value = self.unused[place].pop() if values else str(self.number)
        content = fact.format(name=self.name, value=value)
        originals = (self.facts[place][0],) if place in self.facts else ()
        self._keep(content, type, "primary", self.rng.choice((0.5, 0.75, 1.0)), originals)
        self.facts[place] = content, value, index
        lead = self.rng.choice(_CHANGES if originals else _LEADS)
        answer = ("assistant", self.rng.choice(_THANKS))
        self.rounds.append((("user", lead.format(fact=content)), answer))

    def _add_event(self, number: int) -> None:
        """Add a round in which the user or the assistant mentions an event, with its date and
        minute, so that it never occurs twice."""
        day = self.start + timedelta(minutes=5 * number)
        when = f"{day.day} {_MONTHS[day.month - 1]} {day.year} at {day:%H:%M}"
        event = f"{self.rng.choice(_OUTINGS)} in {self.rng.choice(_PLACES)}"
        content = f"On {when} {self.name} {event}."
        source, role, other = self.rng.choice(_TELLERS)
        self._keep(content, "event", source, 0.5)
        self.rounds.append(((role, f"To write it down: {content}"), (other, "That is right.")))

    def _add_interference(self) -> None:
        """Add a round with a value that its slot never has."""
        place = self.rng.randrange(len(_SLOTS))
        type, fact, _, values = _SLOTS[place]
        never = self.unused[place][:_SPARE] if values else [str(self.number + 1)]
        content = fact.format(name=self.name, value=self.rng.choice(never))
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
        place = len(self.points) + 1
        update = bool(originals)
        self.points.append(MemoryPoint(place, content, type, source, importance, update, originals))

    def _ask(self, index: int, updated: Sequence[int]) -> Iterator[MemoryQuestion]:
        """Yield questions about the facts that hold after the session and, after every second
        session, one that no statement answers."""
        rng = self.rng
        plain = rng.choice([place for place in self.facts if place not in updated[:1]])
        yield self._question((plain,), "easy", "Basic Fact Recall")
        if updated:
            yield self._question((updated[0],), "easy", "Dynamic Update")
        if index:
            yield self._question(rng.sample(sorted(self.facts), 2), "hard", "Multi-hop Inference")
        if index % 2 == 0:
            question = rng.choice(_NEVER_SAID).format(name=self.name)
            yield MemoryQuestion(question, UNKNOWN, (), "medium", "Memory Boundary")

    def _question(self, places: Sequence[int], difficulty: str, type: str) -> MemoryQuestion:
        facts = [self.facts[place] for place in places]
        question = " ".join(_SLOTS[place][2].format(name=self.name) for place in places)
        if len(places) > 1:
            question = f"Two things at once: {question}"

        return MemoryQuestion(
            question,
            " and ".join(value for _, value, _ in facts),
            tuple(fact for fact, *_ in facts),
            difficulty,
            type,
        )
