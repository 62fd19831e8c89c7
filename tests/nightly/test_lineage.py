"""What lineages say of code, and of what differs between two nights."""

import copy
import subprocess
from pathlib import Path

from pipeline.nightly.lineage import PACKAGE, changes, code, sources
from tests.nightly.conftest import Made


def test_what_differs_is_told_by_name_and_both_values(three: Made) -> None:
    before = three.results[0].manifest
    now = copy.deepcopy(before)
    now["config"]["generator"]["model"] = "other"
    now["config"]["generator"]["runtime"]["threads"] = 99
    now["config"]["run"]["root"] = "/elsewhere"
    now["packages"]["polars"] = "0.0"
    now["source"]["files"][0]["sha256"] = "f" * 64
    now["stages"][1]["depends_on"]["engine"] = "e2"
    del now["config"]["answer"]["template"]
    file, stage = before["source"]["files"][0], before["stages"][1]
    assert set(changes(before, now)) == {
        "config.generator.model: fake -> other",
        f"packages.polars: {before['packages']['polars']} -> 0.0",
        f"input {file['path']}: {file['sha256'][:16]} -> {'f' * 16}",
        f"stage {stage['stage']}.engine: {stage['depends_on'].get('engine', 'absent')} -> e2",
        "config.answer.template: chat -> absent",
    }
    assert changes(before, before) == []


def test_sources_are_known_by_their_names_and_contents(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    (tmp_path / "a.pyc").write_text("one")
    first = sources(tmp_path)
    (tmp_path / "a.pyc").write_text("two")
    assert sources(tmp_path) == first
    (tmp_path / "a.py").write_text("x = 2\n")
    second = sources(tmp_path)
    (tmp_path / "a.py").rename(tmp_path / "b.py")
    assert len({first, second, sources(tmp_path)}) == 3


def test_commit_and_image_are_what_the_environment_says() -> None:
    told = code({"WINNOW_COMMIT": "abc", "WINNOW_IMAGE": "winnow@sha256:0"})
    assert (told["commit"], told["image"]) == ("abc", "winnow@sha256:0")


def test_a_checkout_knows_its_commit_by_itself() -> None:
    found = code({})["commit"]
    asked = subprocess.run(
        ["git", "-C", str(PACKAGE), "cat-file", "-t", found or ""],
        capture_output=True,
        text=True,
        check=False,
    )
    inside = (PACKAGE.parent / ".git").exists()
    assert (asked.stdout.strip() == "commit") == inside
    assert (found is not None) == inside
