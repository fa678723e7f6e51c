"""`textevolve chat`: a chat with an agent at the terminal, or through pipes with a message on each
line.

Ctrl-C ends the current answer; a second Ctrl-C, or one at the prompt, ends the chat.
`agents/chat.py` and `desk/chats.py` hold the chat itself.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Generator, Iterable, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict
from functools import partial
from importlib import import_module
from typing import Any

from textevolve.agents.chat import ChatAnswer, ChatEvent, HistoryShortened
from textevolve.api.opened import OpenChat
from textevolve.cli import process, say
from textevolve.cli.results import fetch_weights, print_json
from textevolve.cli.spec_options import parameters_of, read_given
from textevolve.cli.study import shape_command, telling_warnings
from textevolve.desk.chats import ChatOptions, ChatPlan, ChatRequest, open_chat_run, plan_chat
from textevolve.engine import sync
from textevolve.errors import ConflictError, InputError, TextEvolveError
from textevolve.events import CallHeld, CallRetried, Event
from textevolve.llm.wire import AnswerPiece
from textevolve.memory.recall import Memory
from textevolve.protocol.contents import FILTERED
from textevolve.report.wording import count, shorten, visible
from textevolve.settings import read_settings
from textevolve.spec import option
from textevolve.wiring import Limits

HELP = """/memories    memories recalled for the last message, with scores
/help        this
/quit        end, like the end of input
Ctrl-C ends the current answer; at the prompt it ends the chat."""


class ChatCommand(ChatOptions):
    __doc__ = """Chat with an agent that remembers.

    At a terminal it is a conversation; /help lists its commands. Through pipes each line is a
    message, and each answer is printed when it is complete.
    """

    once: str | None = option(
        None,
        "Send one message, and print only the answer; @FILE reads it from a file.",
        text="argument",
        metavar="TEXT",
    )


@telling_warnings()
def _chat(**values: Any) -> None:
    command = ChatCommand(**read_given(ChatCommand, values))
    settings = read_settings(store=values.get("store"))
    limits = Limits(values["max_cost"], values["max_tokens"], values["max_calls"])
    plan = sync.run(plan_chat(ChatRequest(options=command), settings))
    fetch_weights(plan.models, settings)
    chat = OpenChat(
        partial(
            open_chat_run,
            plan,
            settings,
            source="command line",
            limits=limits,
            listener=_report_waiting,
        )
    )
    talk = Talk(chat, plan, as_json=values["as_json"])

    try:
        if command.once is not None:
            talk.answer(chat.stream(command.once))
        elif talk.interactive:
            talk.converse()
        else:
            talk.take_lines(sys.stdin)

        talk.finish()
    except KeyboardInterrupt:
        if talk.interactive and not process.state.terminated:
            talk.finish()  # unless it comes again
        raise
    finally:
        chat.close()
        if command.once is None and chat.session:
            say(f"resume with: textevolve chat {plan.agent.full_name} --session {chat.session}")


def _report_waiting(event: Event) -> None:
    if isinstance(event, CallRetried):
        say(f"trying again in {event.wait:.1f} s: {event.reason}")
    elif isinstance(event, CallHeld):
        say(f"waiting {event.wait:.0f} s for {event.reason}")


class Talk:
    """The input and output of a chat. `interactive`: whether both are a terminal."""

    def __init__(self, chat: OpenChat, plan: ChatPlan, *, as_json: bool = False) -> None:
        self.chat = chat
        self.plan = plan
        self.as_json = as_json
        self.streams = sys.stdout.isatty() and not as_json
        self.interactive = sys.stdin.isatty() and self.streams

    def converse(self) -> None:
        """Read messages at the prompt until the user ends the chat."""
        with suppress(ImportError):  # not on every system; without it lines cannot be edited
            import_module("readline")
        user = self.plan.persona.user or "you"
        plan = self.plan
        messages = self.plan.messages
        say(f"{plan.agent.full_name}, by {plan.model}; /help lists commands, /quit ends")
        if messages:
            say(f"session {plan.session}; the last message: {shorten(messages[-1].text, 200)}")
        if messages and messages[-1].role == "user":
            say("the last message has no answer yet; send it again to get one")
        while True:
            self._report_learned()
            try:
                line = input(f"{user}> ").strip()
                if line in ("/quit", "/exit"):
                    return
                self._obey(line)
            except EOFError:
                print()
                return
            except UnicodeDecodeError:
                say("error: the message is not UTF-8")
            except ConflictError:
                raise
            except TextEvolveError as error:
                say(f"error: {error}")

    def take_lines(self, lines: Iterable[str]) -> None:
        """Answer each line as a message."""
        try:
            for line in lines:
                if line.strip():
                    self.answer(self.chat.stream(line.strip()))
        except UnicodeDecodeError as error:
            raise InputError(f"standard input is not UTF-8: {error.reason}") from error

    def answer(self, events: Generator[ChatEvent]) -> None:
        """Print an answer: at a terminal while it is generated, otherwise when it is complete."""
        with self._first_stops(), closing(events):
            for event in events:
                if isinstance(event, AnswerPiece) and self.streams:
                    self._print(
                        "\n[the connection broke; the answer starts again]\n"
                        if event.anew
                        else event.text
                    )
                elif isinstance(event, HistoryShortened):
                    say(
                        f"[the first {count(event.messages, 'message')} left out: too long for"
                        " the model's context]"
                    )
                elif isinstance(event, ChatAnswer):
                    self._end_answer(event)

    def _print(self, text: str) -> None:
        sys.stdout.write(visible(text))
        sys.stdout.flush()

    def _end_answer(self, answer: ChatAnswer) -> None:
        if self.as_json:
            print_json({"session": self.chat.session, **asdict(answer)})
        else:
            self._print("\n" if self.streams else f"{answer.text}\n")

        if answer.interrupted:
            say("[stopped]")
        elif answer.finish_reason == "length":
            say("[the answer is cut at the token limit; see --answer-tokens]")
        elif not answer.text.strip():
            say(f"[the model gave no text: {answer.finish_reason}]")
        elif answer.finish_reason == FILTERED:
            say("[the endpoint's filter cut the answer]")

    @contextmanager
    def _first_stops(self) -> Generator[None]:
        """At a terminal, make the first Ctrl-C in the `with` block stop only the current answer; a
        second one ends the chat. Through pipes Ctrl-C ends the chat at once."""
        before = signal.getsignal(signal.SIGINT)
        if not self.interactive or before in (signal.SIG_IGN, None):
            yield
            return

        def stop(_number: int, _frame: object) -> None:
            signal.signal(signal.SIGINT, before)
            self.chat.stop()

        signal.signal(signal.SIGINT, stop)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _obey(self, line: str) -> None:
        name = line.partition(" ")[0]
        if name == "/memories":
            self._show_memories(self.chat.recalled.memories)
        elif name.startswith("/"):
            say(HELP if name == "/help" else f"there is no command {name}; commands are:\n{HELP}")
        elif line:
            self.answer(self.chat.stream(line))

    def _show_memories(self, memories: Sequence[Memory]) -> None:
        if not memories:
            say("nothing was recalled for the last message")
        for number, memory in enumerate(memories, 1):
            print(f"{number}. {visible(memory.text)}")
            print(f"   {memory.source}; score {memory.score or 0:.2f}; {memory.id}")

    def _report_learned(self) -> None:
        for learned in self.chat.learned():
            if learned.error:
                say(f"[no memories were made of a turn: {learned.error}]")
            elif learned.ids:
                say(f"[memories kept: {len(learned.ids)}]")

    def finish(self) -> None:
        """Wait until the memories of all answered turns are created. If the wait is interrupted,
        the next chat creates the missing ones."""
        if self.chat.unlearned and sys.stderr.isatty():
            say("making memories; Ctrl-C leaves that to the next chat")
        self.chat.finish()
        self._report_learned()


_chat.__name__ = "chat"
_chat.__doc__ = ChatCommand.__doc__
chat = shape_command(
    _chat, parameters_of(ChatCommand), ("max_cost", "max_tokens", "max_calls", "as_json", "store")
)
