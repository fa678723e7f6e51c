"""Every error that TextEvolve raises on purpose.

    TextEvolveError
    ├── InputError            a text, file or parameter of the caller cannot be used
    │   ├── NotFoundError     nothing of this name exists
    │   └── TakenError        the name is in use already
    ├── SettingsError         configuration, a key or a model's name is wrong or missing
    │   └── UnallowedFileError  a settings file sends texts or keys to places not allowed
    ├── ModelError            a call to a model gave no usable answer
    │   ├── CallError         only this call failed: another one may succeed
    │   │   ├── UnavailableError  408, 409, 429, 5xx, timeout, reset: worth another try
    │   │   ├── RejectedError     the endpoint refuses this one request
    │   │   │   └── TooLongError  the prompt does not fit into the model's context
    │   │   └── AnswerError       an answer came, but cannot be used
    │   └── FatalModelError   no further call can succeed: the run stops
    │       ├── AccessError       401, 403, 404: wrong key, no right, no such model
    │       └── CapabilityError   the endpoint lacks a feature that is needed: log-probabilities
    ├── UnjudgedError         a test asserts a quality of a text that could not be judged
    ├── BudgetError           the run's limit of money, tokens or calls is reached
    ├── ClusterError          the machines that share a run keep failing
    └── StoreError            the journal cannot be read or written, or is in use
        ├── StoreAwayError    the database cannot be reached or used; names its address
        ├── MismatchError     a run cannot be resumed: its specification or its inputs have changed
        ├── BusyError         another process is running the run, or has taken it over
        └── ConflictError     another client has changed the record in the meantime

A message is one line that says what was wrong, where, and what to do. No message carries a key.
"""

from __future__ import annotations

from collections.abc import Callable


class TextEvolveError(Exception):
    """The base class of all errors that TextEvolve raises on purpose."""


class InputError(TextEvolveError):
    pass


class NotFoundError(InputError):
    pass


class TakenError(InputError):
    pass


class SettingsError(TextEvolveError):
    pass


class UnallowedFileError(SettingsError):
    """The settings file of the working folder sends texts, keys or variables to places that its
    user has not allowed. `allow`: a function that allows the file as it is now."""

    def __init__(self, message: str, allow: Callable[[], None] = lambda: None) -> None:
        super().__init__(message)
        self.allow = allow


class ModelError(TextEvolveError):
    """A failed call to a model. `attempts` is the number of attempts, with the first one."""

    attempts: int = 1


class CallError(ModelError):
    pass


class UnavailableError(CallError):
    """A call that failed for now, so that another attempt may succeed. `status`: the HTTP status if
    there was one. `retry_after`: seconds that the server asks to wait. `address`: the host and port
    if the connection itself failed."""

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        retry_after: float | None = None,
        address: str = "",
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after
        self.address = address


class RejectedError(CallError):
    pass


class TooLongError(RejectedError):
    pass


class AnswerError(CallError):
    pass


class FatalModelError(ModelError):
    pass


class AccessError(FatalModelError):
    """A refusal of the key, the address or the model. `of_text`: it may as well be about the text
    of one call, which is so if the model answers others."""

    of_text: bool = False


class CapabilityError(FatalModelError):
    pass


class UnjudgedError(TextEvolveError):
    pass


class BudgetError(TextEvolveError):
    pass


class ClusterError(TextEvolveError):
    pass


class StoreError(TextEvolveError):
    pass


class StoreAwayError(StoreError):
    pass


class MismatchError(StoreError):
    pass


class BusyError(StoreError):
    pass


class ConflictError(StoreError):
    pass


def plural(noun: str) -> str:
    """Return the plural of an English noun: `calls`, `memories`."""
    return f"{noun.removesuffix('y')}ies" if noun.endswith("y") else f"{noun}s"


def describe_error(error: BaseException) -> str:
    """Return the type and the message of an error, for errors of foreign code."""
    return f"{type(error).__name__}: {error}"


def shorten_error(error: object) -> str:
    """Return the beginning of an error's message, on one line."""
    return " ".join(str(error).split())[:300]


def public_message(error: Exception) -> str:
    """Return the message of an error for clients of a server: the error's own message, or, for a
    `StoreAwayError`, one that does not name the address of the store."""
    away = isinstance(error, StoreAwayError)
    return "the store cannot be used now; try again later" if away else str(error)
