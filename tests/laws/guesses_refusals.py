"""The published wordings in which endpoints refuse a field, a value or one row.

A refusal is a status and a body. Each has been seen at a provider or a gateway; the words about
names, accounts and addresses are left out.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from textevolve.llm.testing import Answer

Nest = Callable[[str, str], Answer]
"""A gateway's form: a function of the provider's message and the field that it names."""


def refuse(status: int, body: Any) -> Answer:
    """Return a refusal; a text is sent as it stands."""
    sent = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)
    return Answer(status=status, body=sent.encode())


def openai_error(message: str, **fields: Any) -> Mapping[str, Any]:
    """Return the body of an error in OpenAI's form."""
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": None}
    return {"error": {**error, **fields}}


def _gemini(message: str) -> Sequence[Mapping[str, Any]]:
    return [{"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}}]


_ANTHROPIC = {"type": "invalid_request_error", "message": "output_format: Extra inputs are refused"}
_LITELLM = "litellm.BadRequestError: AnthropicException - "
_NO_FORMAT = "This response_format type is unavailable now"

SCHEMA_REFUSALS: Mapping[str, Answer] = {
    "OpenAI": refuse(
        400,
        openai_error(
            "Invalid parameter: 'response_format' of type 'json_schema' is not supported",
            param="response_format",
        ),
    ),
    "OpenAI, an invalid schema": refuse(
        400,
        openai_error(
            "Invalid schema for response_format 'answer': In context=(), 'required' must be given",
            param="response_format",
            code="invalid_json_schema",
        ),
    ),
    "Azure, an older version": refuse(
        400,
        {"error": {"code": "BadRequest", "message": "json_schema needs api version 2024-08-01"}},
    ),
    "Gemini, too many states": refuse(
        400,
        _gemini(
            "The specified schema produces a constraint that has too many states for serving."
            " Typical causes are schemas with lots of text or long array length limits"
        ),
    ),
    "Gemini, an unknown name": refuse(
        400,
        _gemini(
            'Invalid JSON payload received. Unknown name "additionalProperties" at'
            " 'generation_config.response_schema': Cannot find field."
        ),
    ),
    "Gemini, too deep": refuse(
        400, _gemini("A schema in GenerationConfig in the request exceeds the maximum depth")
    ),
    "Anthropic by LiteLLM": refuse(
        400,
        openai_error(_LITELLM + json.dumps({"type": "error", "error": _ANTHROPIC}), code="400"),
    ),
    "Bedrock": refuse(
        400,
        {"message": "The model doesn't support the outputConfig.textFormat field. Remove it."},
    ),
    "Fireworks": refuse(
        400, openai_error("Cannot compile constraint: 'maximum' is not implemented for integers")
    ),
    "Mistral": refuse(
        422,
        {"object": "error", "message": {"detail": [{"loc": ["body", "response_format", "type"]}]}},
    ),
    "DeepSeek": refuse(400, openai_error(_NO_FORMAT, code="invalid_request_error")),
    "vLLM": refuse(
        400,
        {"object": "error", "message": "The provided JSON schema has features that xgrammar lacks"},
    ),
    "SGLang": refuse(
        500,
        {"object": "error", "message": "Failed to compile the grammar", "code": 500},
    ),
    "SGLang, without a word for it": refuse(
        500,
        {"object": "error", "message": "Failed to compile constraint: maxItems", "code": 500},
    ),
    "TGI": refuse(422, {"error": "Input validation error: grammar is not supported"}),
    "a validator": refuse(
        422,
        {
            "detail": [
                {
                    "type": "extra_forbidden",
                    "loc": ["body", "response_format"],
                    "msg": "Extra inputs are not permitted",
                }
            ]
        },
    ),
    "OpenRouter": refuse(
        404,
        {
            "error": {
                "message": "No endpoints found that can handle the requested parameters.",
                "code": 404,
            }
        },
    ),
    "not implemented": refuse(501, openai_error("Structured outputs are not implemented here")),
    "in German": refuse(
        400, openai_error("Das Antwortformat wird von diesem Modell nicht unterstützt.")
    ),
    "in Chinese": refuse(
        400, {"error": {"code": "1210", "message": "API 调用参数有误，请检查文档"}}
    ),
    "a bare number": refuse(400, {"error": {"code": "1214", "message": "Bad Request"}}),
    "without a body": refuse(400, ""),
}
"""The refusals of a schema, by who sends them."""


def _raw(message: str, field: str) -> Answer:
    raw = json.dumps(openai_error(message, param=field, code="unsupported_parameter"))
    error = {"message": "Provider returned error", "code": 400}
    return refuse(400, {"error": {**error, "metadata": {"raw": raw, "provider_name": "Some"}}})


def _raw_object(message: str, field: str) -> Answer:
    error = {"message": "Provider returned error", "code": 400}
    return refuse(400, {"error": {**error, "metadata": {"raw": openai_error(message)}}})


def _text_in_message(message: str, field: str) -> Answer:
    inner = json.dumps(openai_error(message, param=field))
    return refuse(400, {"error": {"message": inner, "type": "upstream_error", "code": 400}})


NESTS: Mapping[str, Nest] = {
    "as OpenAI does": lambda message, field: refuse(400, openai_error(message, param=field)),
    "without the field's name": lambda message, field: refuse(400, openai_error(message)),
    "the error as a text": lambda message, field: refuse(400, {"error": message}),
    "a detail alone": lambda message, field: refuse(400, {"detail": message}),
    "a message alone": lambda message, field: refuse(400, {"message": message}),
    "in a list": lambda message, field: refuse(400, [openai_error(message)]),
    "plain text": lambda message, field: refuse(400, message),
    "within a 200": lambda message, field: refuse(
        200, {"error": {"message": message, "code": 400, "param": field}}
    ),
    "a list of details": lambda message, field: refuse(
        422, {"detail": [{"loc": ["body", field], "msg": message, "type": "value_error"}]}
    ),
    "the provider's text in metadata": _raw,
    "the provider's object in metadata": _raw_object,
    "JSON in the message": _text_in_message,
    "within an error of the gateway": lambda message, field: refuse(
        400, {"error": {"error": {"message": message, "param": field}, "status": 400}}
    ),
    "a list of errors": lambda message, field: refuse(
        400, {"success": False, "errors": [{"code": 5006, "message": message}], "result": None}
    ),
}
"""The forms in which gateways pass on a refusal."""

FIELD_REFUSALS: Mapping[str, str] = {
    "temperature": "Unsupported value: 'temperature' does not support 0 with this model. Only the"
    " default (1) value is supported.",
    "seed": "Unsupported parameter: 'seed' is not supported with this model.",
    "max_tokens": "Unsupported parameter: 'max_tokens' is not supported with this model. Use"
    " 'max_completion_tokens' instead.",
    "response_format": "Unsupported parameter: 'response_format' is not supported with this model.",
}
"""The refusal of each field that may be left out, in a provider's words."""

_POLICY = "Content violates usage guidelines"
_FILTER = "The response was filtered due to the prompt triggering the content management policy"
_BLOCKED = (
    "<html><head><title>403 Forbidden</title></head><body>You have been blocked</body></html>"
)

ROW_REFUSALS: Mapping[str, Answer] = {
    "403 by a safety check": refuse(403, {"code": "No permission", "error": _POLICY}),
    "403 by a firewall": refuse(403, _BLOCKED),
    "403 by a moderation": refuse(403, openai_error("Your input was flagged", code=403)),
    "400 by a content filter": refuse(400, openai_error(_FILTER, code="content_filter")),
    "404 after good answers": refuse(404, openai_error("Not Found")),
    "422 about one text": refuse(422, {"detail": "The text has characters that are not allowed"}),
    "451": refuse(451, openai_error("Unavailable in your region for this content")),
}
"""The refusals of one row, whose other rows are answered."""

FAILED_GENERATIONS: Mapping[str, Answer] = {
    "another schema": refuse(
        400,
        openai_error(
            "Generated JSON does not match the expected schema. Please adjust your prompt. See"
            " 'failed_generation' for more details. Error: jsonschema: '/a' does not validate",
            code="json_validate_failed",
            failed_generation="{}",
        ),
    ),
    "no JSON": refuse(
        400,
        openai_error(
            "Failed to generate JSON. Please adjust your prompt. See 'failed_generation'.",
            code="json_validate_failed",
            failed_generation="I cannot",
        ),
    ),
}
"""Refusals that say that the model's text was wrong this time, not that schemas are refused."""
