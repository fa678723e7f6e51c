"""Templates of users, of LangChain's and in other syntaxes, as ours and back."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from textevolve.llm.chains.chat_template import (
    ChatTemplate,
    Syntax,
    read_syntax,
    take_template,
    write_text_template,
)

if TYPE_CHECKING:
    from langchain_core.prompts import ChatPromptTemplate


def read_template(template: Any, syntax: Syntax = "text") -> ChatTemplate:
    """A template of a user's, of LangChain's or in another syntax, as one of ours.

    `template`: a text, messages (each a role and a text), a PromptTemplate or ChatPromptTemplate.
    `syntax`: of texts: text (ours: `{name}`), f-string or jinja2.

    Raises:
        InputError: there is something in it that cannot be converted, such as logic; says what.
    """
    if isinstance(template, ChatTemplate):
        return template
    if type(template).__module__.startswith("langchain_core."):
        from textevolve.llm.chains.langchain_runnables import read_langchain_template

        return read_langchain_template(template)
    plain = take_template(template, ())  # the roles and texts, of which nothing is read as a slot
    return ChatTemplate(
        tuple(
            replace(one, parts=read_syntax(write_text_template(one.parts), syntax))
            for one in plain.messages
        )
    )


def to_langchain_template(template: Any, syntax: Syntax = "f-string") -> ChatPromptTemplate:
    """A template as LangChain's ChatPromptTemplate, in the syntax f-string or jinja2.
    `template`: as `read_template` takes it.

    Raises:
        InputError: the syntax cannot write it.
    """
    from textevolve.llm.chains.langchain_runnables import write_langchain_template

    return write_langchain_template(read_template(template), syntax)
