"""Environment of a spawned agent: every client library finds the gateway, and no other way to a model."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from tfgrpo.tasks.gateway.session import RolloutSession

_VENDORS: Final = (
    "AI21|ALEPH_ALPHA|ANTHROPIC|ANYSCALE|AZURE|AZURE_AI|AZURE_OPENAI|BASETEN|CEREBRAS|CLAUDE|CLAUDE_CODE|CODEX|CODESTRAL|CO|"
    "COHERE|CURSOR|DASHSCOPE|DATABRICKS|DEEPINFRA|DEEPSEEK|FIREWORKS|FIREWORKS_AI|FRIENDLI|GEMINI|GITHUB_MODELS|GOOGLE|"
    "GOOGLE_GENERATIVE_AI|GROQ|HF|HUGGINGFACE|HUGGINGFACEHUB|HYPERBOLIC|LAMBDA|LITELLM|MINIMAX|MISTRAL|MOONSHOT|NEBIUS|"
    "NOVITA|NVIDIA|NVIDIA_NIM|OLLAMA|OPENAI|OPENROUTER|PALM|PERPLEXITY|PERPLEXITYAI|REPLICATE|SAMBANOVA|TOGETHER|"
    "TOGETHERAI|TOGETHER_AI|VERTEX|VERTEXAI|VOLCENGINE|VOYAGE|WATSONX|XAI|ZAI|ZHIPUAI"
)
_UNSET: Final = re.compile(
    rf"(?:{_VENDORS})_(?:API_)?(?:KEY|TOKEN|AUTH_TOKEN|OAUTH_TOKEN|AD_TOKEN|API_BASE|BASE_URL|ENDPOINT|HUB_TOKEN|"
    r"API_TOKEN|CUSTOM_HEADERS|HOST|ORG_ID|ORGANIZATION|PROJECT_ID|USE_BEDROCK|USE_VERTEX|USE_FOUNDRY)"
    r"|AWS_BEARER_TOKEN_BEDROCK|GOOGLE_APPLICATION_CREDENTIALS|TFGRPO_.*|OTEL_.*"
)


def agent_environment(session: RolloutSession, base: Mapping[str, str]) -> dict[str, str]:
    """Return ``base`` for an agent: with the gateway's addresses and key, without keys of vendors and settings of ours.

    Variables that hold the run's own key are left out whatever they are called.
    """
    left_out = {chosen.api_key.removeprefix("env:") for chosen in session.runtime.context.models.roles.values()}
    kept = {
        name: value
        for name, value in base.items()
        if name not in left_out and not _UNSET.fullmatch(name.upper()) and session.runtime.scrub(value) == value
    }
    # Every name of an address: with OPENAI_API_BASE alone the openai SDK calls its vendor. Of Anthropic's credentials one:
    # the key and the token may not be set together. The Agents SDK would send its traces to the vendor, and Claude Code
    # its events; the same variable saves it the call for a title. Codex prefers this key to a login of its user's.
    v1, root, key = session.base_url, session.root_url, session.api_key
    without_proxy = ",".join(filter(None, (kept.get("NO_PROXY") or kept.get("no_proxy"), "127.0.0.1,localhost")))
    return {
        **kept,
        "OPENAI_BASE_URL": v1,
        "OPENAI_API_BASE": v1,
        "OPENAI_API_KEY": key,
        "OPENAI_AGENTS_DISABLE_TRACING": "1",
        "CODEX_API_KEY": key,
        "ANTHROPIC_BASE_URL": root,
        "ANTHROPIC_API_BASE": root,
        "ANTHROPIC_API_KEY": key,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "AZURE_OPENAI_ENDPOINT": root,
        "AZURE_OPENAI_API_KEY": key,
        "OPENROUTER_API_BASE": v1,
        "OPENROUTER_API_KEY": key,
        "OLLAMA_BASE_URL": v1,
        "NO_PROXY": without_proxy,
        "no_proxy": without_proxy,
    }
