"""Memory systems by name: the baselines, and the user's own, whatever they return."""

import asyncio
import re
import threading
from pathlib import Path

import pytest

from textevolve.errors import AnswerError, InputError, UnavailableError
from textevolve.memory_eval.dataset import DialogueTurn
from textevolve.memory_eval.finding import open_system
from textevolve.memory_eval.systems import Adapted, Capabilities, read_memories

pytestmark = pytest.mark.usefixtures("home")

TURNS = [
    DialogueTurn("user", "I moved to Lyon.", "Jan 06, 2025, 09:00:00"),
    DialogueTurn("assistant", "Good to know."),
]


class Async:
    """Everything async, and every flag said."""

    name = "mine 1.0"
    capabilities = Capabilities(answers=True, durable=True)
    closed = False

    async def add(self, dialogue, user):
        return [f"{user} said {turn.content}" for turn in dialogue]

    async def search(self, query, user, limit):
        return [f"{query} {n}" for n in range(limit + 5)]

    async def answer(self, question, memories):
        return f"{question} {len(memories)}"

    async def aclose(self):
        type(self).closed = True


class Plain:
    """No async method, and only what has to be there."""

    def __init__(self):
        self.threads = set()

    def add(self, dialogue, user):
        self.threads.add(threading.get_ident())
        return [turn.content for turn in dialogue]


def make_trouble():
    raise RuntimeError("no database\nat all")


READY = Plain()


async def test_a_system_of_the_users_own():
    system = open_system(f"{__name__}:Async")
    assert system.name == "mine 1.0"
    assert system.capabilities == Capabilities(answers=True, durable=True)
    assert await system.add(TURNS, "u") == ("u said I moved to Lyon.", "u said Good to know.")
    assert await system.search("q", "u", 2) == ("q 0", "q 1")
    assert await system.answer("Where?", ("a", "b")) == "Where? 2"
    await system.aclose()
    assert Async.closed


@pytest.mark.parametrize("attribute", ["Plain", "READY"])
async def test_plain_methods_run_in_one_thread_beside_ours(attribute):
    system = open_system(f"{__name__}:{attribute}")
    assert system.name == f"{__name__}:{attribute}"
    assert system.capabilities == Capabilities(searches=False)
    adding = [system.add(TURNS[:1], str(n)) for n in range(20)]
    assert await asyncio.gather(*adding) == [("I moved to Lyon.",)] * 20
    assert isinstance(system, Adapted)
    threads = system._methods["add"].__self__.threads
    assert len(threads) == 1
    assert threading.get_ident() not in threads
    await system.aclose()


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("contxt", "no memory system 'contxt'; did you mean 'context'?"),
        (f"{__name__}:make_trouble", "RuntimeError: no database at all"),
        ("http://user:secret@host", "has a user name or password; remove it"),
    ],
)
def test_what_names_no_system_says_so_in_a_line(spec, said):
    with pytest.raises(InputError) as caught:
        open_system(spec)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "texts"),
    [
        ([], ()),
        (["a", " ", ""], ("a",)),
        ({"results": [{"memory": "a"}, {"text": "b"}]}, ("a", "b")),
        (["half \ud83d"], ("half \ufffd",)),
    ],
)
def test_memories_in_the_forms_they_come_in(given, texts):
    assert read_memories(given, "it") == texts


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (None, "gave nothing, not a list of texts"),
        ("a text", "gave a str, not a list of texts"),
        (["a", 7], "number 2 of its list is an int, not a text"),
    ],
)
async def test_what_is_no_list_of_memories_is_a_failure_and_never_none(given, said):
    class Odd:
        async def add(self, dialogue, user):
            return given

        def search(self, query, user, limit):
            return given

        def answer(self, question, memories):
            return given

    system = Adapted(Odd(), "odd", 10)
    with pytest.raises(AnswerError, match="odd: add: ") as caught:
        await system.add(TURNS, "u")
    assert said in str(caught.value)
    with pytest.raises(AnswerError, match="odd: search: "):
        await system.search("q", "u", 3)
    if not isinstance(given, str):
        with pytest.raises(AnswerError, match="odd: answer: gave "):
            await system.answer("q", ())
    await system.aclose()


@pytest.mark.parametrize(
    "error", [ValueError("no"), SystemExit("bye"), asyncio.CancelledError("its own")]
)
async def test_what_a_system_raises_ends_its_operation_alone(error):
    class Raising:
        def add(self, dialogue, user):
            raise error

    class AsyncRaising:
        async def add(self, dialogue, user):
            raise error

    answer = r"no|SystemExit: bye|CancelledError: its own"
    for own in (Raising(), AsyncRaising()):
        system = Adapted(own, "raising", 10)
        with pytest.raises((ValueError, AnswerError, RuntimeError), match=answer):
            await system.add(TURNS, "u")
        await system.aclose()


async def test_a_system_that_never_answers_is_given_up():
    class Slow:
        async def add(self, dialogue, user):
            await asyncio.sleep(3600)

    system = Adapted(Slow(), "slow", 0.01)
    with pytest.raises(UnavailableError, match=r"slow: add: no answer in 0\.01 s"):
        await system.add(TURNS, "u")
    await system.aclose()


@pytest.mark.parametrize("wrong", [{"capabilities": {"flies": True}}, {"add": None}])
def test_a_system_that_contradicts_itself_is_refused(wrong):
    new_wrong = type("Wrong", (), {"add": lambda self, dialogue, user: [], **wrong})()
    with pytest.raises(InputError, match="wrong: "):
        Adapted(new_wrong, "wrong", 10)


async def test_the_system_in_the_docs_is_one(tmp_path):
    page = Path(__file__).parents[2] / "docs" / "memory-eval.md"
    code, *_ = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    (tmp_path / "notes.py").write_text(code)
    system = open_system(f"{tmp_path}/notes.py:Notes")
    assert await system.add(TURNS, "u") == ("I moved to Lyon.",)
    assert await system.search("moved where", "u", 5) == ("I moved to Lyon.",)
    await system.aclose()
