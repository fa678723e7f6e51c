"""Prompts that a program reads by name while it runs, so that others can be tried instead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from textevolve.engine import sync
from textevolve.errors import InputError
from textevolve.llm.chains.chain import Chain, run_within
from textevolve.llm.chains.chat_template import (
    ChatTemplate,
    Slot,
    TemplateMessage,
    read_text_template,
)
from textevolve.llm.chains.scope import current_trial, note_use
from textevolve.llm.chains.steps import ask


class PromptSet(Mapping[str, str]):
    """Prompts by name: `PromptSet(draft="Write about {topic}.", check="...")`.

    A mapping from names to texts. While `calibrate` tries other texts, it gives those. Its methods
    fill a template in; `ask` asks a model, too: that of the run, or else that of the settings.

    Raises:
        InputError: a text is blank or no text.
    """

    def __init__(self, texts: Mapping[str, str] | None = None, /, **named: str) -> None:
        self._texts = {**(texts or {}), **named}
        for name, text in self._texts.items():
            if not isinstance(text, str) or not text.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
                raise InputError(f"the prompt '{name}' must be a text that is not blank")

    def __getitem__(self, name: str) -> str:
        own, trying = self._texts[name], current_trial.get()
        return own if trying is None else trying.texts.get(name, own)

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)

    def fill(self, name: str, values: Mapping[str, Any] | None = None, /, **named: Any) -> str:
        """The text with the values in the place of its placeholders, which are those of the text
        that it began with; all other braces are text.

        Raises:
            InputError: there is no such prompt, or a value is missing.
        """
        if name not in self._texts:
            raise InputError(f"there is no prompt '{name}'; there are: {', '.join(self._texts)}")
        own = read_text_template(self._texts[name])
        slots = {part.name for part in own if isinstance(part, Slot)}
        message = TemplateMessage("user", read_text_template(self[name], slots))
        return ChatTemplate((message,)).fill({**(values or {}), **named})[0].text

    async def ask(
        self,
        name: str,
        values: Mapping[str, Any] | None = None,
        /,
        *,
        model: str | None = None,
        temperature: float | None = 0.0,
        max_tokens: int | None = None,
        **named: Any,
    ) -> str:
        """The answer of a model to the prompt, filled in. The call is journaled, limited and
        counted as all others. `model`: a model's spec, where it is not that of the run.

        Raises:
            InputError: as `fill`. AnswerError, BudgetError, ModelError: as the model.
        """
        options: dict[str, Any] = {"temperature": temperature, "max_tokens": max_tokens}
        step = ask("answer", "{prompt}", name=name, model=model, **options)
        chain = Chain(name, step, inputs=["prompt"])
        given = {"prompt": self.fill(name, values, **named)}
        found = await run_within(chain, given)
        return str((await chain.acall(**given) if found is None else found)["answer"])

    def ask_sync(
        self, name: str, values: Mapping[str, Any] | None = None, /, **options: Any
    ) -> str:
        """`ask`, waited for, for programs that are no async functions."""
        return sync.run(self.ask(name, values, **options))

    def note(self, name: str, prompt: str, output: str) -> None:
        """For programs that ask models by themselves: what the prompt was filled in to, and the
        answer. It is shown to whoever writes better prompts."""
        note_use(name, prompt, output)
