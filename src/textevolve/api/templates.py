"""Templates of users and of LangChain's, as ours and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from textevolve.llm.chains.chat_template import ChatTemplate, take_template

if TYPE_CHECKING:
    from langchain_core.prompts import ChatPromptTemplate


def read_template(template: Any) -> ChatTemplate:
    """A template of a user's or of LangChain's as one of ours.

    `template`: a text (`{name}` is a slot), messages (each a role and a text), a PromptTemplate or
    ChatPromptTemplate with f-strings.

    Raises:
        InputError: there is something in it that cannot be converted, such as logic; says what.
    """
    if type(template).__module__.startswith("langchain_core."):
        from textevolve.llm.chains.langchain_runnables import read_langchain_template

        return read_langchain_template(template)
    return take_template(template)


def to_langchain_template(template: Any) -> ChatPromptTemplate:
    """A template as LangChain's ChatPromptTemplate. `template`: as `read_template` takes it.

    Raises:
        InputError: an f-string cannot write it.
    """
    from textevolve.llm.chains.langchain_runnables import write_langchain_template

    return write_langchain_template(read_template(template))
