"""A poison row: whatever it does, every other row is that of an undisturbed run."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.engines.base import Rollout
from pipeline.engines.fake import FakeGenerator
from pipeline.engines.table import GENERATORS
from tests.faults import small

pytestmark = pytest.mark.usefixtures("here")


class Mute(FakeGenerator):
    """Gives no token back for a prompt that holds the poison."""

    async def rollout(self, prompt_ids: Sequence[int], **limits: Any) -> Rollout:
        if self.tokenizer.ids(small.poison())[0] in prompt_ids:
            nothing = np.zeros(0, np.float32)
            return Rollout((), nothing, nothing, None)
        return await super().rollout(prompt_ids, **limits)


def over_long(folder: Path) -> dict[str, object]:
    line = json.loads(small.LINES[small.POISON])
    line["question"] = " ".join([line["question"]] * 500)
    small.write_questions(
        folder, [*small.LINES[: small.POISON], json.dumps(line), *small.LINES[small.POISON + 1 :]]
    )
    return {}


def refused(folder: Path) -> dict[str, object]:
    (folder / "flag").touch()
    return {"generator__model": f"refuse_while={folder / 'flag'}:{small.poison()}"}


def mute(folder: Path) -> dict[str, object]:
    return {}


REASONS = {
    "refused": (refused, "the fake engine was told to refuse"),
    "over-long": (over_long, "exceed the window of 2048 tokens"),
    "mute": (mute, "no usable uncertainty"),
}


@pytest.mark.parametrize("kind", REASONS)
def test_a_row_that_cannot_be_served_dies_alone(
    kind: str, tmp_path: Path, undisturbed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare, reason = REASONS[kind]
    if kind == "mute":
        monkeypatch.setitem(GENERATORS, "fake", Mute)
    assert small.drive(tmp_path, **prepare(tmp_path)) == 1
    others = [row for i, row in enumerate(undisturbed) if i != small.POISON]
    assert small.rows(tmp_path / "out") == others
    (letter,) = small.letters(tmp_path / "out")
    assert letter["question_id"] == small.IDS[small.POISON]
    assert letter["stage"] == "probe"
    assert reason in letter["reason"]


def test_a_row_that_raises_ends_the_run_by_its_name_and_a_repaired_run_goes_on(
    tmp_path: Path, undisturbed: list[str]
) -> None:
    with pytest.raises(RuntimeError, match="told to raise") as caught:
        small.drive(tmp_path, generator__model=f"raise_at={small.poison()}")
    question = json.loads(small.LINES[small.POISON])["question"]
    assert caught.value.__notes__ == [f"at question {question!r}, rollout without evidence"]
    kept = small.stamps(tmp_path / "out")
    assert {path.name for path in kept if "probe-" in str(path)} == {"part-000000.parquet"}
    assert list((tmp_path / "out").rglob("lease.json")) == []
    assert small.drive(tmp_path) == 0
    assert small.rows(tmp_path / "out") == undisturbed
    assert kept.items() <= small.stamps(tmp_path / "out").items()
