"""A server behind an OpenAI-compatible API, and what can be asked of it."""

from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from pipeline.config.base import Frozen


def _base_url(url: str) -> str:
    """Without the slash at its end; ValueError unless it is an address and nothing more.

    A user, password or query in it could be a secret, and the manifest keeps it.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be http://host/v1 or https://host/v1")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError("must hold no user, password or query: the key's variable is api_key_env")
    return url.rstrip("/")


class EndpointConfig(Frozen):
    """Where the server is, how it is asked, and how often again."""

    base_url: Annotated[str, AfterValidator(_base_url)] = Field(
        description="address of the API, with its version: http://host:8000/v1"
    )
    model: str | None = Field(
        None, min_length=1, description="the model's name at the server; null: generator.model"
    )
    api_key_env: str | None = Field(
        None,
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*$",
        description="environment variable that holds the key; null: the server asks for none",
    )
    identity: str | None = Field(
        None,
        min_length=1,
        description="stands for base_url in fingerprints, so that a server may move, and another "
        "model behind the same address starts anew",
    )
    extensions: Literal["none", "vllm"] = Field(
        "none", description="vllm: end tokens, token ids and grammars as vLLM's server takes them"
    )
    concurrency: int = Field(16, ge=1, description="requests under way at once, of each actor")
    timeout_seconds: float = Field(120.0, gt=0, description="of one try, its wait in a queue too")
    retries: int = Field(
        8, ge=0, description="tries after the first: 429, 5xx, timeouts, bad replies"
    )
    backoff_seconds: float = Field(
        1.0,
        ge=0,
        description="before the first retry; doubled each time, less up to half by lot",
    )
    max_wait_seconds: float = Field(
        60.0, ge=0, description="longest wait before a retry, whatever Retry-After asks for"
    )
