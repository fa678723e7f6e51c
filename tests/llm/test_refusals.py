"""The words of real endpoints, and what they mean here."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from textevolve.errors import AccessError, ModelError, RejectedError, TooLongError, UnavailableError
from textevolve.llm.refusals import SHOWN, failure, one_line, read_refusal, refused_field

ALL = ("model", "messages", "response_format", "temperature", "max_tokens", "seed", "logprobs")


def said(message: str, **more: object) -> bytes:
    return json.dumps({"error": {"message": message, **more}}).encode()


@pytest.mark.parametrize(
    ("status", "body", "limit"),
    [
        (400, said("This model's maximum context length is 8192 tokens. However, ..."), 8192),
        (400, said("x", type="exceed_context_size_error", n_ctx=4096), 4096),
        (400, said("prompt is too long: 213462 tokens > 200000 maximum"), 200000),
        (
            400,
            said("The input token count (99) exceeds the maximum number of tokens allowed (50)."),
            50,
        ),
        (413, b"Payload Too Large", None),
        (422, b'{"detail":"Input is too long for this model"}', None),
    ],
)
def test_a_prompt_too_long(status: int, body: bytes, limit: int | None) -> None:
    error = failure("m", status, read_refusal(body))
    assert isinstance(error, TooLongError)
    assert (f"of {limit} tokens" in str(error)) == (limit is not None)
    assert "shorten" in str(error)


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (403, said("Your input was flagged by moderation"), RejectedError),
        (403, said("Project has no access"), AccessError),
        (422, b'{"detail":[{"loc":["body"],"msg":"bad"}]}', RejectedError),
        (501, said("not implemented"), RejectedError),
        (529, said("Overloaded"), UnavailableError),
        (400, said("max_tokens is too large: 99999"), RejectedError),
        (500, said("the request exceeds the available context size"), TooLongError),
    ],
)
def test_what_a_status_means(status: int, body: bytes, kind: type[ModelError]) -> None:
    assert type(failure("m", status, read_refusal(body))) is kind


@pytest.mark.parametrize(
    ("message", "more", "field"),
    [
        ("Invalid parameter: 'response_format' of type 'json_schema'", {}, "response_format"),
        ("Bad value", {"param": "response_format.json_schema"}, "response_format"),
        ("failed to parse grammar", {}, "response_format"),
        ("This model does not support the 'logprobs' parameter.", {}, "logprobs"),
        (
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
            "'max_completion_tokens' instead.",
            {"param": "max_tokens"},
            "max_tokens",
        ),
        ("Unsupported value", {"param": "temperature", "code": "unsupported_value"}, "temperature"),
        ("Extra inputs are not permitted: seed", {}, "seed"),
        ("temperature must be at most 1", {"param": "temperature"}, None),
        ("The prompt is unsupported because of its seedy content", {}, None),
        ("maximum context length is 10 tokens, response_format included", {}, None),
    ],
)
def test_a_field_that_is_refused(message: str, more: dict[str, str], field: str | None) -> None:
    refusal = read_refusal(said(message, **more))
    assert refused_field(400, refusal, ALL) == field
    assert refused_field(500, refusal, ALL) is None
    assert refused_field(400, refusal, ("model", "messages")) is None


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["error", "message", "detail", "code", "type", "param"]), inner
            )
        ),
        max_leaves=8,
    )
)
def test_any_json_can_be_read(value: object) -> None:
    refusal = read_refusal(json.dumps(value).encode())
    assert isinstance(refusal.message, str)
    assert refusal.limit is None or isinstance(refusal.limit, int)


@given(st.text(max_size=600), st.text(min_size=8, max_size=20, alphabet="abcdefgh-_/+0123"))
def test_a_line_holds_no_secret(text: str, secret: str) -> None:
    line = one_line(f"{text}{secret}{text}", (secret,))
    assert secret not in line
    assert line.isprintable()
    assert len(line) <= SHOWN
