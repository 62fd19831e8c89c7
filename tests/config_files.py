"""What tests of config files share: a small one, and the message with which one is refused."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.config import Frozen, OfflineIgpConfig
from pipeline.loading import ConfigError, load

# Line numbers below count from the first line of this text.
BASE = """\
run:
  name: base
input:
  questions: q.jsonl
retriever:
  index: idx
generator:
  engine: fake
  model: m
probe:
  template: chat
  top_k: 8
  max_tokens: 4
selection:
  threshold: 0.05
  top_m: 2
  empty_context: frame
"""


def writer(folder: Path) -> Callable[[str], str]:
    """Writes a text as a config file of a folder; its path."""

    def write_text(text: str) -> str:
        path = folder / "job.yaml"
        path.write_text(text, encoding="utf-8")
        return str(path)

    return write_text


def refusal(path: str, *overrides: str, kind: type[Frozen] = OfflineIgpConfig) -> str:
    """The message with which a config is refused: always a single line."""
    with pytest.raises(ConfigError) as caught:
        load(kind, path, overrides)
    message = str(caught.value)
    assert "\n" not in message
    return message
