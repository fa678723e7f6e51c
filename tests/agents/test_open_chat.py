"""Chats from Python, in plain and in async code."""

import re
from pathlib import Path

import pytest

from flat_verbs import chat as open_chat
from textevolve.agents.chat import ChatAnswer
from textevolve.errors import InputError
from textevolve.llm.wire import AnswerPiece


def test_a_chat_in_plain_code(settings, resources, guide) -> None:
    with open_chat("acme/guide", user="ann", settings=settings) as chat:
        assert chat.session == ""
        assert chat.say("I live in Oslo.").text == "I hear you: I live in Oslo."
        events = list(chat.stream("And where is it?"))
        assert isinstance(events[-1], ChatAnswer)
        assert "".join(e.text for e in events if isinstance(e, AnswerPiece)) == events[-1].text
        assert [message.role for message in chat.messages] == ["user", "assistant"] * 2
    with pytest.raises(InputError, match="the chat is closed"):
        chat.say("Hello?")
    with open_chat("acme/guide", user="ann", session=chat.session, settings=settings) as again:
        assert again.say("Is it Oslo?").memories[0].text == "Ann lives in Oslo."
        assert len(again.messages) == 6


def test_the_example_of_the_page_runs(settings, resources, monkeypatch, capsys) -> None:
    page = (Path(__file__).parents[2] / "docs" / "agents.md").read_text(encoding="utf-8")
    monkeypatch.setenv("TEXTEVOLVE_MODEL", settings.model)
    (code,) = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    exec(compile(code, "docs/agents.md", "exec"), {"__name__": "docs"})
    assert capsys.readouterr().out.endswith("\n4\n")
