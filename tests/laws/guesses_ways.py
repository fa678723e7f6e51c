"""The published ways in which servers send the verdict of a model.

Each way takes what a model thinks and returns the pieces of an answer: `CHOICES` of given words,
`OBJECTS` of JSON, and `TEXTS`. A way that is `readable` holds the verdict where any reader finds
it; the others may be read or refused, but never be read as another verdict.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from laws.guesses_world import (
    Pieces,
    Shares,
    Verdict,
    form_of,
    likely,
    say,
    spread,
    token,
    tokens_of,
    turned,
    write,
)
from textevolve.llm.testing import Answer


@dataclass(frozen=True)
class Way:
    """A published way of answering.

    Attributes:
        speak: Return the pieces of an answer that says the shares, or the text.
        readable: Whether the verdict must be read. Otherwise it may be missing, with its reason.
    """

    speak: Callable[[Any], Pieces]
    readable: bool = False


THOUGHT = ("Okay", ",", " let", " me", " look", ".")


def plain_choice(shares: Shares) -> Pieces:
    """Return the pieces of the plain answer: one token with its alternatives."""
    return say(likely(shares), spread(shares))


def _after(words: Sequence[str], shares: Shares, mass: float = 0.02) -> list[Pieces]:
    """Return the tokens of words, the first with the wrong verdict among its alternatives, and then
    the token of the verdict."""
    first_text, *others_texts = words
    trap = token(first_text, [(first_text, 1 - mass), *turned(shares, mass)])
    return [trap, *(token(word) for word in others_texts), token(likely(shares), spread(shares))]


def _think_listed(field: str) -> Callable[[Shares], Pieces]:
    def speak(shares: Shares) -> Pieces:
        tokens = _after([*THOUGHT, "</think>", "\n\n"], shares)
        return {"content": likely(shares), field: "".join(THOUGHT), "tokens": tokens}

    return speak


def _words_before(*words: str, readable: bool = False, after: str = "") -> Way:
    def speak(shares: Shares) -> Pieces:
        tokens = _after(words, shares)
        if after:
            tokens.append(token(after))
        content = "".join(words) + likely(shares) + after
        return {"content": content, "tokens": tokens}

    return Way(speak, readable)


def _alone(word: str, mass: float, **pieces: Any) -> Way:
    """Return the way of a model whose only token is no verdict, with the wrong one among the
    alternatives."""

    def speak(shares: Shares) -> Pieces:
        whole = say(word, [(word, 1 - mass), *turned(shares, mass)])
        return {**whole, "finish_reason": "length", **pieces}

    return Way(speak)


def _spell(*forms: str) -> Way:
    """Return the way of a model that splits the share of each word over several spellings; `{}` is
    the word."""

    def speak(shares: Shares) -> Pieces:
        listed: list[tuple[str, float]] = []
        for place, form in enumerate(forms):
            part = 0.6**place * (0.4 if place < len(forms) - 1 else 1.0)
            spelling = form.format
            listed += [(spelling(word), part * share) for word, share in spread(shares)]
        listed.sort(key=lambda pair: -pair[1])
        word = forms[0].format(likely(shares))
        return say(word, listed)

    return Way(speak, readable=True)


def _change(change: Callable[[str], str], *, readable: bool = False) -> Way:
    def speak(shares: Shares) -> Pieces:
        listed = [(change(word), share) for word, share in spread(shares)]
        return say(change(likely(shares)), listed)

    return Way(speak, readable)


def _double(shares: Shares) -> Pieces:
    """Return what a server sends that writes "No" and " No" as one text: the unlikely words stand
    there twice, with half of their share each."""
    word = likely(shares)
    listed: list[tuple[str, float]] = []
    for label, share in spread(shares):
        parts = 1 if label == word else 2
        listed += [(label, share / parts) for _ in range(parts)]
    return say(word, listed)


def _double_likely(shares: Shares) -> Pieces:
    """Return what such a server sends where the second token of the likely word is a rare one."""
    word = likely(shares)
    listed = [(label, share * (0.98 if label == word else 1)) for label, share in spread(shares)]
    return say(word, [*listed, (word, 0.02 * dict(spread(shares))[word])])


def _list_first(count: int) -> Callable[[Shares], Pieces]:
    def speak(shares: Shares) -> Pieces:
        return say(likely(shares), spread(shares)[:count])

    return speak


def _sample_unlikely(shares: Shares) -> Pieces:
    """Return what a server sends that samples: the word of the text is not the most likely one."""
    word = min(shares, key=shares.__getitem__)
    return say(word, spread(shares))


def _with_tokens(**fields: Any) -> Callable[[Shares], Pieces]:
    def speak(shares: Shares) -> Pieces:
        full_token = token(likely(shares), spread(shares))
        return {"content": likely(shares), "tokens": [{**full_token, **fields}]}

    return speak


def _with_logprobs(logprobs: Any) -> Callable[[Shares], Pieces]:
    def speak(shares: Shares) -> Pieces:
        return {"content": likely(shares), "logprobs": logprobs}

    return speak


def _with_alternative(**entry: Any) -> Callable[[Shares], Pieces]:
    def speak(shares: Shares) -> Pieces:
        full_token = token(likely(shares), spread(shares))
        full_token["top_logprobs"].append(entry)
        return {"content": likely(shares), "tokens": [full_token]}

    return speak


def _alter_alternatives(alter: Callable[[Pieces], Pieces]) -> Callable[[Shares], Pieces]:
    def speak(shares: Shares) -> Pieces:
        full_token = token(likely(shares), spread(shares))
        full_token["top_logprobs"] = [alter(entry) for entry in full_token["top_logprobs"]]
        return {"content": likely(shares), "tokens": [alter(full_token)]}

    return speak


def _legacy_logprobs(shares: Shares) -> Pieces:
    word = likely(shares)
    listed = {label: math.log(share) for label, share in spread(shares)}
    logprobs = {"tokens": [word], "token_logprobs": [listed[word]], "top_logprobs": [listed]}
    return {"content": word, "logprobs": logprobs}


def _prefix_mixture(shares: Shares) -> Pieces:
    """Return what a model says that mostly begins its likely word with its first letter alone."""
    word = likely(shares)
    listed = [(word[0], 0.96 * shares[word]), (word, 0.02 * shares[word])]
    listed += [(label, share) for label, share in spread(shares) if label != word]
    return {"content": word, "tokens": [token(word[0], listed), token(word[1:] or ".")]}


def _pieces(change: Callable[[Pieces], Pieces]) -> Callable[[Shares], Pieces]:
    return lambda shares: change(plain_choice(shares))


CHOICES: Mapping[str, Way] = {
    # Thinking.
    "thinking in reasoning_content": Way(
        _pieces(lambda plain: {**plain, "reasoning_content": "Okay, let me look."}), readable=True
    ),
    "thinking in reasoning": Way(
        _pieces(lambda plain: {**plain, "reasoning": "Okay, let me look."}), readable=True
    ),
    "thinking's tokens listed, reasoning_content": Way(_think_listed("reasoning_content")),
    "thinking's tokens listed, reasoning": Way(_think_listed("reasoning")),
    "thinking in the text": _words_before(
        "<think>", "\n", *THOUGHT, "</think>", "\n\n", readable=True
    ),
    "an empty thought in the text": _words_before("<think>", "\n\n", "</think>", "\n\n"),
    "thinking that names the verdicts": _words_before(
        "<think>", "Yes", " or", " No", "?", "</think>", "\n\n"
    ),
    "a closing tag alone": _words_before(*THOUGHT, "\n", "</think>", "\n\n"),
    "an opening tag alone": _alone("<think>", 0.0001),
    "a thought's first word alone": _alone("Okay", 0.003, content="", reasoning_content="Okay"),
    "a channel before the answer": _words_before("<|channel|>", "final", "<|message|>"),
    # A first token that is none.
    "a line break first": _words_before("\n"),
    "a line break alone": _alone("\n", 0.03),
    "a space alone": _alone(" ", 0.03),
    "a byte order mark first": _words_before("\ufeff"),
    "bold": _words_before("**", after="**"),
    "in quotes": _words_before('"', after='"'),
    "in brackets": _words_before("(", after=")"),
    "in a box": _words_before("\\", "boxed", "{", after="}"),
    "Answer: first": _words_before("Answer", ":", " "),
    "a quoted question first": _words_before("You", " ask", ":", " Yes", " or", " No", "?", " "),
    "both verdicts first": _words_before("Yes", " or", " No", "?", " "),
    "another word with the mass": _alone("Hard", 0.0005, finish_reason="stop"),
    "a refusal's first word": _alone("I", 0.02),
    # Spellings.
    "a full stop in the token": _spell("{}.", "{}"),
    "a space in the token": _spell(" {}", "{}"),
    "three spellings": _spell("{}", " {}", "{}\n"),
    "quotes in the token": _spell('"{}"', "{}"),
    "bold in the token": _spell("**{}**", "{}"),
    "capitals": _change(str.upper, readable=True),
    "full-width letters": _change(lambda w: "".join(chr(ord(c) + 0xFEE0) for c in w)),
    "the mark of a tokenizer": _change(lambda word: f"▁{word}"),
    "the mark of a byte-level tokenizer": _change(lambda word: f"Ġ{word}"),
    "numbers of tokens in place of texts": _change(lambda word: f"token_id:{ord(word[0])}"),
    "a first letter for each word": Way(
        lambda shares: say(likely(shares)[:1], [(w[:1], s) for w, s in spread(shares)])
    ),
    "a first letter that has most of the mass": Way(_prefix_mixture),
    # Alternatives.
    "two tokens of one text": Way(_double, readable=True),
    "a small second token of one text": Way(_double_likely, readable=True),
    "the chosen token listed twice": Way(
        lambda shares: say(likely(shares), [*spread(shares), spread(shares)[0]]), readable=True
    ),
    "alternatives in another order": Way(
        lambda shares: say(likely(shares), spread(shares)[::-1]), readable=True
    ),
    "a sampled word": Way(_sample_unlikely, readable=True),
    "one alternative": Way(_list_first(1)),
    "no alternatives": Way(_with_tokens(top_logprobs=[])),
    "alternatives that are null": Way(_with_tokens(top_logprobs=None)),
    "no log-probabilities": Way(_with_logprobs("absent")),
    "log-probabilities that are null": Way(_with_logprobs(None)),
    "log-probabilities without tokens": Way(_with_logprobs({"content": []})),
    "log-probabilities of the older form": Way(_legacy_logprobs),
    "an alternative of -9999": Way(
        _with_alternative(token="Perhaps", logprob=-9999.0), readable=True
    ),
    "an alternative of minus infinity": Way(
        _with_alternative(token="Perhaps", logprob=-math.inf), readable=True
    ),
    "an alternative of null": Way(_with_alternative(token="Perhaps", logprob=None), readable=True),
    "bytes that are null": Way(
        _alter_alternatives(lambda entry: {**entry, "bytes": None}), readable=True
    ),
    "log-probabilities as text": Way(
        _alter_alternatives(lambda entry: {**entry, "logprob": str(entry["logprob"])})
    ),
    "log-probabilities of 0": Way(_alter_alternatives(lambda entry: {**entry, "logprob": 0.0})),
    "log-probabilities that are NaN": Way(
        _alter_alternatives(lambda entry: {**entry, "logprob": math.nan})
    ),
    "probabilities as log-probabilities": Way(
        _alter_alternatives(lambda entry: {**entry, "logprob": math.exp(entry["logprob"])})
    ),
    # Forms of a body.
    "content in parts": Way(
        _pieces(lambda plain: {**plain, "content": [{"type": "text", "text": plain["content"]}]}),
        readable=True,
    ),
    "streamed unasked": Way(_pieces(lambda plain: {**plain, "streamed": True})),
    "finish_reason null": Way(
        _pieces(lambda plain: {**plain, "finish_reason": None}), readable=True
    ),
}
"""The ways of answering a question with given words."""


# Ways to say an object --------------------------------------------------------------------------


def plain_text(text: str) -> Pieces:
    """Return the pieces of the plain answer."""
    return {"content": text, "tokens": tokens_of(text)}


def _spoil(value: Any) -> Any:
    """Return a draft of an object: the same form with other numbers, truths and words."""
    if isinstance(value, dict):
        return {name: _spoil(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_spoil(part) for part in value]
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return 1 if value != 1 else 0
    return value if len(str(value)) < 15 else f"Draft of {value}"


def _draft(text: str) -> str:
    try:
        return json.dumps(_spoil(json.loads(text)))
    except ValueError:
        return "A draft."


def _recast(change: Callable[[Any], Any], *, readable: bool = False) -> Way:
    """Return the way of a model that changes the form of its object; other texts stay."""

    def speak(text: str) -> Pieces:
        try:
            value = json.loads(text)
        except ValueError:
            return plain_text(text)
        return plain_text(json.dumps(change(value)))

    return Way(speak, readable)


def _write_as(form: Callable[[str], str], *, readable: bool = False) -> Way:
    return Way(lambda text: plain_text(form(text)), readable)


def _map_values(change: Callable[[Any], Any], kind: type) -> Callable[[Any], Any]:
    """Return a function that changes each value of exactly this type in an object."""

    def apply(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: apply(part) for name, part in value.items()}
        if isinstance(value, list):
            return [apply(part) for part in value]
        return change(value) if type(value) is kind else value

    return apply


def _map_numbers(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return _map_values(change, int)


CHOSEN = {"Correct", "Hallucination", "Omission", "replace", "true", "continues", "fact"}
"""The words that objects of studies choose from a list."""


def _shout(text: str) -> str:
    return text.upper() if text in CHOSEN else text


def _stop(text: str) -> str:
    return f"{text}." if text in CHOSEN else text


def _map_names(change: Callable[[str], str]) -> Callable[[Any], Any]:
    def apply(value: Any) -> Any:
        if isinstance(value, dict):
            return {change(name): apply(part) for name, part in value.items()}
        return [apply(part) for part in value] if isinstance(value, list) else value

    return apply


def _reverse(value: Any) -> Any:
    return dict(reversed(value.items())) if isinstance(value, dict) else value


def _call(text: str) -> Pieces:
    function = {"name": "answer", "arguments": text}
    call = {"id": "call_1", "type": "function", "function": function}
    return {"content": None, "tool_calls": [call], "finish_reason": "tool_calls", "tokens": []}


def _listed_before(text: str) -> Pieces:
    tokens = [*tokens_of("I give it 1 of 10."), token("</think>"), *tokens_of(text)]
    return {"content": text, "reasoning_content": "I give it 1 of 10.", "tokens": tokens}


def _split_numbers(text: str) -> Pieces:
    """Return an answer with each number of two digits in two tokens; the first one has the
    alternatives of the whole."""
    tokens: list[Pieces] = []
    for full_token in tokens_of(text):
        if len(full_token["token"]) != 2 or not full_token["token"].isdecimal():
            tokens.append(full_token)
            continue
        first, second = full_token["token"]
        others = [
            (entry["token"], math.exp(entry["logprob"])) for entry in full_token["top_logprobs"]
        ]
        tokens += [token(first, [(first, 0.7), *others[1:]]), token(second, [(second, 1.0)])]
    return {"content": text, "tokens": tokens}


NUMERALS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")

OBJECTS: Mapping[str, Way] = {
    "thinking in reasoning_content": Way(
        lambda text: {**plain_text(text), "reasoning_content": _draft(text)}, readable=True
    ),
    "thinking in reasoning": Way(
        lambda text: {**plain_text(text), "reasoning": _draft(text)}, readable=True
    ),
    "thinking's tokens listed, reasoning_content": Way(_listed_before),
    "thinking in the text": _write_as(
        lambda text: f"<think>\nFirst: {_draft(text)}\n</think>\n\n{text}", readable=True
    ),
    "a closing tag alone": _write_as(lambda text: f"First: {_draft(text)}\n</think>\n\n{text}"),
    "thinking in brackets": _write_as(lambda text: f"[THINK]{_draft(text)}[/THINK]{text}"),
    "channels": _write_as(
        lambda text: (
            f"<|channel|>analysis<|message|>{_draft(text)}<|end|><|start|>assistant"
            f"<|channel|>final<|message|>{text}"
        )
    ),
    "in a fence": _write_as(lambda text: f"```json\n{text}\n```", readable=True),
    "in a fence without a language": _write_as(lambda text: f"```\n{text}\n```", readable=True),
    "in prose": _write_as(lambda text: f"Here it is:\n\n{text}\n\nAnything else?", readable=True),
    "the word json first": _write_as(lambda text: f"json\n{text}", readable=True),
    "a byte order mark first": _write_as(lambda text: f"\ufeff{text}", readable=True),
    "between tags": _write_as(lambda text: f"<answer>{text}</answer>", readable=True),
    "twice the same": _write_as(lambda text: f"{text}\n\n{text}", readable=True),
    "a draft, then the object": _write_as(lambda text: f"{_draft(text)}\n\nFinal: {text}"),
    "the object, then another": _write_as(lambda text: f"{text}\n\nOr: {_draft(text)}"),
    "a schema, then the object": _write_as(
        lambda text: f'{{"type": "object", "properties": {{}}}}\n{text}'
    ),
    "trailing commas": _write_as(lambda text: text.replace("}", ",}")),
    "comments": _write_as(lambda text: text.replace("{", "{ // as asked\n", 1)),
    "single quotes": _write_as(lambda text: text.replace("'", "’").replace('"', "'")),
    "typographic quotes": _write_as(lambda text: text.replace('"', "“")),
    "names in another order": _recast(_reverse, readable=True),
    "names in capitals": _recast(_map_names(str.upper)),
    "names with underscores": _recast(_map_names(lambda name: name.replace(" ", "_").lower())),
    "numbers as text": _recast(_map_numbers(str)),
    "numbers with a point": _recast(_map_numbers(float), readable=True),
    "numbers out of ten": _recast(_map_numbers(lambda number: f"{number}/10")),
    "numbers out of ten in words": _recast(_map_numbers(lambda number: f"{number} out of 10")),
    "numbers in words": _recast(
        _map_numbers(lambda number: NUMERALS[number] if 0 <= number <= 10 else number)
    ),
    "numbers in a list": _recast(_map_numbers(lambda number: [number])),
    "numbers in an object": _recast(_map_numbers(lambda number: {"value": number})),
    "numbers with a remark": _recast(
        _map_numbers(lambda number: f"{number} of 10, not {_spoil(number)}")
    ),
    "truths as text": _recast(_map_values(lambda value: str(value).lower(), bool)),
    "truths as numbers": _recast(_map_values(int, bool)),
    "choices in capitals": _recast(_map_values(_shout, str)),
    "choices with a full stop": _recast(_map_values(_stop, str)),
    "in a list": _recast(lambda value: [value]),
    "in an object": _recast(lambda value: {"answer": value}),
    "as a text within JSON": _recast(json.dumps),
    "in a call's arguments": Way(_call),
    "in reasoning_content, content empty": Way(
        lambda text: {"content": "", "reasoning_content": text, "tokens": []}
    ),
    "content in parts": Way(
        lambda text: {**plain_text(text), "content": [{"type": "text", "text": text}]},
        readable=True,
    ),
    "content in two parts": Way(
        lambda text: {
            **plain_text(text),
            "content": [{"type": "text", "text": text[:9]}, {"type": "text", "text": text[9:]}],
        },
        readable=True,
    ),
    "streamed unasked": Way(lambda text: {**plain_text(text), "streamed": True}),
    "numbers in two tokens": Way(_split_numbers, readable=True),
}
"""The ways of answering a prompt that asks for an object."""


# Ways to say a text -----------------------------------------------------------------------------

DRAFT = "The draft says 7."


def _think_part(text: str) -> Pieces:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": DRAFT}]}
    return {"content": [thinking, {"type": "text", "text": text}]}


TEXTS: Mapping[str, Way] = {
    "thinking in reasoning_content": Way(
        lambda text: {**plain_text(text), "reasoning_content": DRAFT}, readable=True
    ),
    "thinking in reasoning": Way(
        lambda text: {**plain_text(text), "reasoning": DRAFT}, readable=True
    ),
    "thinking in the text": _write_as(
        lambda text: f"<think>\n{DRAFT}\n</think>\n\n{text}", readable=True
    ),
    "an empty thought in the text": _write_as(
        lambda text: f"<think>\n\n</think>\n\n{text}", readable=True
    ),
    "thinking between other tags": _write_as(
        lambda text: f"<thinking>{DRAFT}</thinking>\n{text}", readable=True
    ),
    "a closing tag alone": _write_as(lambda text: f"{DRAFT}\n</think>\n\n{text}"),
    "thinking in brackets": _write_as(lambda text: f"[THINK]{DRAFT}[/THINK]{text}"),
    "channels": _write_as(
        lambda text: (
            f"<|channel|>analysis<|message|>{DRAFT}<|end|><|start|>assistant"
            f"<|channel|>final<|message|>{text}"
        )
    ),
    "a thought in parts": Way(_think_part, readable=True),
    "content in parts": Way(
        lambda text: {"content": [{"type": "text", "text": text}]}, readable=True
    ),
    "streamed unasked": Way(lambda text: {**plain_text(text), "streamed": True}),
}
"""The ways of answering a prompt that asks for a text."""

WAYS: Mapping[str, Mapping[str, Way]] = {"choice": CHOICES, "object": OBJECTS, "text": TEXTS}
PLAIN: Mapping[str, Callable[[Any], Pieces]] = {
    "choice": plain_choice,
    "object": plain_text,
    "text": plain_text,
}


SCRIPT_ERRORS: list[str] = []
"""What went wrong in scripts, which run in the server's thread: no cell may take it for a missing
verdict."""


def speaker(know: Callable[[Mapping[str, Any]], Verdict | None], form: str = "", way: str = ""):
    """Return the script of a model that says what it knows: requests of one form are answered in
    one way, all others plainly."""

    def script(body: Mapping[str, Any], _number: int) -> Answer | None:
        try:
            return answer(body)
        except Exception as error:
            SCRIPT_ERRORS.append(repr(error))
            raise

    def answer(body: Mapping[str, Any]) -> Answer | None:
        verdict = None if body.get("grammar") else know(body)
        if verdict is None:
            return None
        own_form = form_of(body)
        speak = WAYS[form][way].speak if own_form == form else PLAIN[own_form]
        return write(speak(verdict.text if verdict.shares is None else verdict.shares), body)

    return script
