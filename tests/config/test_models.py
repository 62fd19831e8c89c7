"""What a generator's section says of the model."""

import pytest

from pipeline.config import GeneratorConfig


@pytest.mark.parametrize(("given", "kept"), [("org/a-real-model", "fake"), ("delay=1", "delay=1")])
def test_a_stand_in_is_never_called_by_a_model_s_name(given: str, kept: str) -> None:
    assert GeneratorConfig.model_validate({"engine": "fake", "model": given}).model == kept
    assert GeneratorConfig(engine="transformers", model="org/a-real-model").model != "fake"
