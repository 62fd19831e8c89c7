"""Bad input to the main job: one line that names what, where and what is allowed; exit code 2."""

import json
from pathlib import Path

import pytest

from pipeline import driver
from pipeline.config import OfflineIgpConfig
from tests.jobs.runs import DEMO, overrides


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The message of a run that must end with exit code 2 and no traceback."""
    code = driver.main("", OfflineIgpConfig, driver.run, arguments)
    streams = capsys.readouterr()
    assert code == driver.USAGE
    assert "Traceback" not in streams.err
    (line,) = streams.err.strip().splitlines()
    message: str = json.loads(line)["message"]
    assert "\n" not in message
    return message


def questions(folder: Path, *lines: bytes) -> Path:
    path = folder / "questions.jsonl"
    path.write_bytes(b"\n".join(lines) + b"\n")
    return path


GOOD = b'{"id": "a", "question": "Why?", "golden_answers": ["so"]}'


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("probe.topk=5", ["probe.topk", "unknown key", "did you mean 'top_k'", "max_tokens"]),
        ("selection.threshold=high", ["selection.threshold", "valid number", "'high'"]),
        ("selection.empty_context=none", ["selection.empty_context", "'frame'", "'top1'"]),
        ("generator.engine=llama", ["generator.engine", "'vllm'", "'transformers'", "'fake'"]),
        ("run.name=a/b", ["run.name", "'a/b'"]),
        ("probe.top_k=1", ["probe.top_k", "greater than or equal to 2", "1"]),
        ("top_k", ["'top_k'", "expected key=value"]),
        ("input.questions=/nowhere/q.jsonl", ["/nowhere/q.jsonl", "no such file"]),
        ("input.split=nothing", ["holds no question", "metadata.split 'nothing'"]),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(
    override: str, parts: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    message = refused([str(DEMO), *overrides(tmp_path), override], capsys)
    for part in parts:
        assert part in message


@pytest.mark.parametrize(
    ("lines", "parts"),
    [
        ([GOOD, b'{"id": "b", "question": " "}'], [":2:", "question must be a text", "' '"]),
        ([GOOD, GOOD], [":2:", "id 'a' stands already in line 1"]),
        ([GOOD, b'{"id": "b", "question": "\xff"}'], [":2:", "not UTF-8"]),
        ([GOOD, b'{"id": "b", "question": '], [":2:", "not JSON", "column"]),
        ([GOOD, b'["b"]'], [":2:", "expected an object, got list"]),
        ([b'{"id": "a", "question": "Why?", "golden_answers": "so"}'], [":1:", "list of texts"]),
    ],
)
def test_a_line_that_cannot_be_used_is_named_with_its_number(
    lines: list[bytes], parts: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = questions(tmp_path, *lines)
    message = refused([str(DEMO), *overrides(tmp_path, input__questions=path)], capsys)
    assert str(path) in message
    for part in parts:
        assert part in message


@pytest.mark.parametrize(
    ("model", "part"),
    [
        ("/nowhere/model", "the folder does not exist"),
        ("no-such-organisation/no-such-model", "Hugging Face hub"),
    ],
)
def test_a_model_that_does_not_exist_is_named(
    model: str,
    part: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    changed = overrides(tmp_path, generator__engine="vllm", generator__model=model)
    message = refused([str(DEMO), *changed], capsys)
    assert model in message
    assert part in message


def test_a_missing_index_is_named_with_the_way_to_build_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed = overrides(tmp_path, input__candidates="null", retriever__index=tmp_path / "none")
    message = refused([str(DEMO), *changed], capsys)
    assert "no index there" in message
    assert "jobs/build_index.py" in message


def test_a_config_file_that_does_not_exist_is_named_with_those_that_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    message = refused([str(DEMO.with_name("dmeo.yaml"))], capsys)
    assert "dmeo.yaml" in message
    assert "demo.yaml" in message


def test_nothing_is_written_for_a_dry_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [str(DEMO), *overrides(tmp_path), "--dry-run"]
    assert driver.main("", OfflineIgpConfig, driver.run, arguments) == driver.DONE
    shown = capsys.readouterr().out
    for part in ("questions", "50", "probes", "final prompts", "pools", "10 of 10 shards to do"):
        assert part in shown
    assert not (tmp_path / "out").exists()


def test_help_lists_every_key(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        driver.main("", OfflineIgpConfig, driver.run, ["--help"])
    assert stopped.value.code == 0
    shown = capsys.readouterr().out
    for section, model in OfflineIgpConfig.model_fields.items():
        assert model is not None
        assert f"  {section}." in shown
    assert "selection.threshold: float  (required where selection is given)" in shown
