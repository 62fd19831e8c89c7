"""Tests of pipeline.loading: lists of sections, and files that stand beside others."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.config import EvaluateConfig, OfflineIgpConfig, PolicyFile
from pipeline.config.policy import SCORERS
from pipeline.loading import load
from tests.config_files import BASE, refusal, writer


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], str]:
    """Writes a text as a config file; its path."""
    return writer(tmp_path)


GRID = BASE.replace(
    """selection:
  threshold: 0.05
  top_m: 2
  empty_context: frame
""",
    """arms:
  top_m: [1, 5]
  empty_context: frame
  grid:
    - selector: ig
      thresholds: [0.0, 0.05]
    - {selector: qlm,
       thresholds: [low]}
""",
)


def test_a_list_of_sections_becomes_typed_objects(write: Callable[[str], str]) -> None:
    cfg = load(OfflineIgpConfig, write(GRID.replace("low", "-.inf")))
    assert cfg.arms is not None
    assert [entry.selector for entry in cfg.arms.grid] == ["ig", "qlm"]
    assert cfg.arms.grid[0].thresholds == (0.0, 0.05)
    assert cfg.arms.top_m == (1, 5)


def test_an_error_inside_a_list_of_sections_names_its_line_and_place(
    write: Callable[[str], str],
) -> None:
    path = write(GRID)
    message = refusal(path)
    assert message.startswith(f"{path}:21: arms.grid.1.thresholds.0: ")
    assert message.endswith("got 'low'")


def test_an_unknown_key_inside_a_list_of_sections_names_the_nearest_one(
    write: Callable[[str], str],
) -> None:
    path = write(GRID.replace("thresholds: [0.0", "threshold: [0.0"))
    message = refusal(path)
    assert message.startswith(
        f"{path}:19: arms.grid.0.threshold: unknown key; did you mean 'thresholds'? allowed: "
    )
    assert "selector" in message and "top_m" in message and "token_guards" not in message


def test_a_section_missing_in_a_list_names_the_entry_s_line(write: Callable[[str], str]) -> None:
    path = write("run:\n  name: x\n" + EVALUATE.replace("    input: {questions: q.jsonl}\n", ""))
    assert refusal(path, kind=EvaluateConfig) == (
        f"{path}:4: datasets.0.input: missing, and it has no default"
    )


EVALUATE = """\
datasets:
  - name: one
    input: {questions: q.jsonl}
generator: {engine: fake, model: m}
probe: {template: chat, top_k: 8, max_tokens: 4}
arms: {top_m: [1], empty_context: frame}
"""


def test_an_unknown_selector_of_a_grid_names_its_line_and_the_allowed_ones(
    write: Callable[[str], str],
) -> None:
    path = write(GRID.replace("selector: ig", "selector: bm52"))
    message = refusal(path)
    assert message.startswith(f"{path}:18: arms.grid.0.selector: ")
    assert all(f"'{name}'" in message for name in ("retriever", "ig", *SCORERS, "blend"))
    assert message.endswith("got 'bm52'")


def test_an_override_reaches_an_entry_of_a_list_by_its_place(write: Callable[[str], str]) -> None:
    path = write(GRID)
    cfg = load(OfflineIgpConfig, path, ["arms.grid.1.thresholds.0=0.5", "arms.top_m.1=3"])
    assert cfg.arms is not None
    assert (cfg.arms.grid[1].thresholds, cfg.arms.top_m) == ((0.5,), (1, 3))
    message = refusal(path, "arms.grid.1.thresholds.0=high")
    assert message.startswith("override 'arms.grid.1.thresholds.0=high': arms.grid.1.thresholds.0:")


@pytest.mark.parametrize("key", ["arms.grid.2.selector", "arms.grid.x", "arms.grid.-1.selector"])
def test_an_override_of_an_entry_that_is_not_there_names_the_allowed_places(
    write: Callable[[str], str], key: str
) -> None:
    place = key.split(".")[2]
    assert refusal(write(GRID), f"{key}=qlm") == (
        f"override '{key}=qlm': {place} is no place in the list; allowed: 0 to 1"
    )


def test_an_empty_list_has_no_place_to_override(write: Callable[[str], str]) -> None:
    path = write(GRID.replace("top_m: [1, 5]", "top_m: []"))
    message = refusal(path, "arms.top_m.0=1")
    assert message.endswith("0 is no place in the list; allowed: none, the list is empty")


def test_a_list_as_a_whole_can_be_overridden(write: Callable[[str], str]) -> None:
    cfg = load(OfflineIgpConfig, write(GRID), ["arms.grid=[{selector: coverage}]"])
    assert cfg.arms is not None and cfg.arms.grid[0].selector == "coverage"


@pytest.mark.parametrize(
    ("given", "key", "said"),
    [
        ("arms.grid=[{selector: ig, thresholds: [low]}]", "arms.grid.0.thresholds.0", "got 'low'"),
        ("arms.grid=[{selector: bm52}]", "arms.grid.0.selector", "got 'bm52'"),
        ("arms.grid=[{selector: ig, topm: [1]}]", "arms.grid.0.topm", "unknown key"),
        ("arms={top_m: [0], empty_context: frame}", "arms.top_m.0", "got 0"),
    ],
)
def test_an_error_within_an_override_of_a_list_or_section_names_the_override(
    write: Callable[[str], str], given: str, key: str, said: str
) -> None:
    message = refusal(write(GRID.replace("low", "0.1")), given)
    assert message.startswith(f"override {given!r}: {key}: ") and said in message


def test_of_a_list_s_override_and_one_of_its_entries_the_later_is_named(
    write: Callable[[str], str],
) -> None:
    whole, entry = "arms.grid=[{selector: ig}]", "arms.grid.0.thresholds=[high]"
    message = refusal(write(GRID), whole, entry)
    assert message.startswith(f"override {entry!r}: arms.grid.0.thresholds.0: ")
    message = refusal(write(GRID), entry, whole.replace("ig", "bm52"))
    assert message.startswith("override 'arms.grid=[{selector: bm52}]': arms.grid.0.selector: ")


POLICY = """\
selection:
  selector: blend
  blend: weights.json
  threshold: 0.0
  top_m: 5
  empty_context: top1
origin: {run: "out/runs/x", f1: 0.5}
"""


@pytest.mark.parametrize("place", ["folder", "/elsewhere"])
def test_a_policy_s_blend_lies_beside_the_file_unless_its_path_is_absolute(
    write: Callable[[str], str], tmp_path: Path, place: str
) -> None:
    path = write(POLICY.replace("weights.json", f"{place}/weights.json"))
    policy = load(PolicyFile, path)
    assert policy.selection.blend == str(tmp_path / place / "weights.json")
    assert policy.origin == {"run": "out/runs/x", "f1": 0.5}


def test_a_policy_s_blend_may_be_named_by_a_uri_and_lie_beside_a_policy_that_is(
    write: Callable[[str], str], tmp_path: Path
) -> None:
    away = load(PolicyFile, write(POLICY.replace("weights.json", "s3://bucket/weights.json")))
    assert away.selection.blend == "s3://bucket/weights.json"
    beside = load(PolicyFile, f"file://{write(POLICY)}")
    assert beside.selection.blend == f"file://{tmp_path}/weights.json"
    home = load(PolicyFile, write(POLICY.replace("weights.json", "~/weights.json")))
    assert home.selection.blend == os.path.expanduser("~/weights.json")


def test_a_policy_without_a_blend_is_read_as_it_is(write: Callable[[str], str]) -> None:
    plain = POLICY.replace("  selector: blend\n  blend: weights.json\n", "")
    assert load(PolicyFile, write(plain)).selection.selector == "ig"


def test_an_error_in_a_policy_file_names_its_line(write: Callable[[str], str]) -> None:
    path = write(POLICY.replace("top_m: 5", "top_m: -1"))
    assert refusal(path, kind=PolicyFile).startswith(f"{path}:5: selection.top_m: ")
    path = write(POLICY.replace("  blend: weights.json\n", ""))
    assert "selector blend and the file `blend` need each other" in refusal(path, kind=PolicyFile)
