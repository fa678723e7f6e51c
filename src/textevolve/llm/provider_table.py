"""The providers that are known by name: their addresses, and what is known of their endpoints.

One entry for each; the settings extend and override them. What an entry may say is `Provider`'s.
"""

from __future__ import annotations

from collections.abc import Mapping

from textevolve.llm.catalogue import PROVIDER as LOCAL
from textevolve.settings import Provider

# The addresses are those of the providers' own pages on OpenAI compatibility (read in 2026), the
# ports those that the servers listen on when nothing else is said. Where nothing is said of
# decisions, it depends on the model or the server's version, and the endpoint is asked. Those
# without `prompt_cache` find recurring beginnings of prompts by themselves, or cache none
# (docs/prompt-caching.md).
# Default models are those that the providers' pages named on 24 November 2026:
# developers.openai.com/api/docs/deprecations has gpt-6-luna in the place of the small GPT-4 models
# (gpt-5-mini is shut down on 11 December 2026), ai.google.dev/gemini-api/docs/deprecations has
# gemini-3.5-flash-lite in that of gemini-2.5-flash (1 December), api-docs.deepseek.com names
# deepseek-flash (deepseek-chat was withdrawn on 24 July). genai-prices 0.2.3 has prices of all.
# Discounts of batch jobs are those that the providers' pages say of all models (read in 2026).
PROVIDERS: Mapping[str, Provider] = {
    "openai": Provider(
        base_url="https://api.openai.com/v1",
        key_env="OPENAI_API_KEY",
        default_model="gpt-6-luna",
        max_tokens_field="max_completion_tokens",
        decisions="decisions",
        deciders=("gpt-6-luna",),
        prompt_cache="key",
        batch_discount=0.5,
    ),
    "anthropic": Provider(
        base_url="https://api.anthropic.com/v1",
        key_env="ANTHROPIC_API_KEY",
        decisions="none",
        batches="none",
    ),
    "gemini": Provider(
        base_url="https://generativelanguage.googleapis.com/v1beta/openai",
        key_env="GEMINI_API_KEY",
        default_model="gemini-3.5-flash-lite",
        decisions="none",
        batches="none",
    ),
    "mistral": Provider(
        base_url="https://api.mistral.ai/v1",
        key_env="MISTRAL_API_KEY",
        default_model="mistral-small-latest",
        decisions="none",
        prompt_cache="key",
        batches="mistral",
        batch_discount=0.5,
    ),
    "deepseek": Provider(
        base_url="https://api.deepseek.com/v1",
        key_env="DEEPSEEK_API_KEY",
        default_model="deepseek-flash",
        decisions="none",
        batches="none",
    ),
    "groq": Provider(
        base_url="https://api.groq.com/openai/v1", key_env="GROQ_API_KEY", decisions="none"
    ),
    "openrouter": Provider(
        base_url="https://openrouter.ai/api/v1",
        key_env="OPENROUTER_API_KEY",
        reports_cost=True,
        prompt_cache="breakpoints",
        cache_hinted=("anthropic/", "google/gemini", "qwen/"),
        batches="none",
    ),
    "together": Provider(
        base_url="https://api.together.ai/v1",
        key_env="TOGETHER_API_KEY",
        decisions="none",
        batches="together",
    ),
    "fireworks": Provider(
        base_url="https://api.fireworks.ai/inference/v1",
        key_env="FIREWORKS_API_KEY",
        prompt_cache="key",
        batches="none",
    ),
    "xai": Provider(
        base_url="https://api.x.ai/v1", key_env="XAI_API_KEY", decisions="none", batches="none"
    ),
    "cerebras": Provider(
        base_url="https://api.cerebras.ai/v1",
        key_env="CEREBRAS_API_KEY",
        decisions="none",
        batch_discount=0.5,
    ),
    "typesafe": Provider(
        base_url="https://api.typesafe.ai/v1",
        key_env="TYPESAFE_API_KEY",
        default_model="jev-latest",
        decisions="systemone",
        chats=False,
        context=32_000,
    ),
    "upstage": Provider(
        base_url="https://api.upstage.ai/v1",
        key_env="UPSTAGE_API_KEY",
        decisions="systemone",
        deciders=("solar-decide",),
        context=524_288,
    ),
    "digitalocean": Provider(
        base_url="https://inference.do-ai.run/v1", key_env="MODEL_ACCESS_KEY", batches="none"
    ),
    "ollama": Provider(base_url="http://127.0.0.1:11434/v1", keyless=True, batches="none"),
    "sglang": Provider(
        base_url="http://127.0.0.1:30000/v1", key_env="SGLANG_API_KEY", keyless=True
    ),
    "vllm": Provider(base_url="http://127.0.0.1:8000/v1", key_env="VLLM_API_KEY", keyless=True),
    "llamacpp": Provider(
        base_url="http://127.0.0.1:8080/v1", key_env="LLAMA_API_KEY", keyless=True, batches="none"
    ),
    "lmstudio": Provider(base_url="http://127.0.0.1:1234/v1", keyless=True, batches="none"),
    LOCAL: Provider(base_url="", default_model="qwen2.5-coder-1.5b", keyless=True, batches="none"),
}
