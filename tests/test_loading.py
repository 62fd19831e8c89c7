"""Tests of pipeline.loading: YAML, overrides, and errors that name place, key and remedy."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ValidationError

from pipeline.config import (
    BuildIndexConfig,
    CalibrateConfig,
    EvaluateConfig,
    ExportConfig,
    Frozen,
    OfflineIgpConfig,
    SweepConfig,
)
from pipeline.loading import help_text, load
from tests.config_files import BASE, refusal, writer


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], str]:
    """Writes a text as a config file; its path."""
    return writer(tmp_path)


def test_a_file_becomes_a_typed_object_with_defaults(write: Callable[[str], str]) -> None:
    cfg = load(OfflineIgpConfig, write(BASE))
    assert cfg.run.name == "base"
    assert cfg.selection is not None and cfg.selection.threshold == 0.05
    assert cfg.answer.max_tokens == 32


def test_overrides_win_over_the_file_and_are_read_as_yaml(write: Callable[[str], str]) -> None:
    path = write(BASE)
    cfg = load(
        OfflineIgpConfig,
        path,
        ["run.name=x", "probe.trace=true", "input.split=null"],
    )
    assert cfg.run.name == "x"
    assert cfg.probe.trace is True
    assert cfg.input.split is None


def test_the_value_of_an_override_may_hold_an_equals_sign(write: Callable[[str], str]) -> None:
    assert load(OfflineIgpConfig, write(BASE), ["input.split=a=b"]).input.split == "a=b"


def test_an_override_makes_a_section_that_the_file_lacks(write: Callable[[str], str]) -> None:
    cfg = load(OfflineIgpConfig, write(BASE), ["cluster.generator.size=3"])
    assert cfg.cluster.generator.size == 3
    assert cfg.cluster.generator.num_cpus == 0.5


def test_the_last_of_two_overrides_wins(write: Callable[[str], str]) -> None:
    assert load(OfflineIgpConfig, write(BASE), ["run.seed=1", "run.seed=2"]).run.seed == 2


def test_loaded_objects_are_frozen(write: Callable[[str], str]) -> None:
    cfg = load(OfflineIgpConfig, write(BASE))
    assert cfg.selection is not None
    with pytest.raises(ValidationError, match="frozen"):
        cfg.selection.top_m = 3  # type: ignore[misc]
    with pytest.raises(ValidationError, match="frozen"):
        cfg.answer = cfg.answer  # type: ignore[misc]


def test_an_unknown_key_names_its_line_the_nearest_key_and_all_allowed_ones(
    write: Callable[[str], str],
) -> None:
    path = write(BASE.replace("top_m: 2", "topm: 2"))
    assert refusal(path) == (
        f"{path}:16: selection.topm: unknown key; did you mean 'top_m'? "
        "allowed: extract, rerank, truncate, selector, guard_rule, blend, ig_top_k, ig_max_tokens, "
        "duplicate_penalty, pass_rate, nu0_limit, on_refusal, refusal_nu0, fallback, order_by, "
        "veto, threshold, top_m, token_guard, empty_context"
    )


def test_an_unknown_section_names_the_sections(write: Callable[[str], str]) -> None:
    path = write(BASE.replace("selection:", "selecton:"))
    message = refusal(path)
    assert message.startswith(f"{path}:14: selecton: unknown key; did you mean 'selection'?")
    assert message.endswith(
        "allowed: run, generator, probe, scorers, listwise, clues, answer, evaluation, cluster, "
        "input, retriever, selection, policy, arms"
    )


def test_an_unknown_key_unlike_any_other_gets_no_guess(write: Callable[[str], str]) -> None:
    message = refusal(write(BASE + "  qqqqqq: 1\n"))
    assert "did you mean" not in message
    assert "selection.qqqqqq: unknown key; allowed: extract, rerank, " in message


def test_an_unknown_key_of_an_override_names_the_override(write: Callable[[str], str]) -> None:
    message = refusal(write(BASE), "probe.topk=9")
    assert message.startswith("override 'probe.topk=9': probe.topk: unknown key; did you mean")


def test_a_wrong_type_names_line_key_and_value(write: Callable[[str], str]) -> None:
    path = write(BASE.replace("top_k: 8", "top_k: many"))
    message = refusal(path)
    assert message.startswith(f"{path}:12: probe.top_k: ")
    assert "integer" in message and message.endswith("got 'many'")


def test_a_value_that_is_not_allowed_names_the_allowed_ones(write: Callable[[str], str]) -> None:
    message = refusal(write(BASE), "selection.empty_context=none")
    assert message.startswith("override 'selection.empty_context=none': selection.empty_context:")
    assert all(rule in message for rule in ("frame", "closed_book", "top1", "abstain", "'none'"))


def test_a_number_out_of_range_names_the_range(write: Callable[[str], str]) -> None:
    assert "greater than or equal to 2, got 1" in refusal(write(BASE), "probe.top_k=1")


def test_a_missing_key_names_the_line_of_its_section(write: Callable[[str], str]) -> None:
    path = write(BASE.replace("  top_k: 8\n", ""))
    assert refusal(path) == f"{path}:10: probe.top_k: missing, and it has no default"


def test_a_missing_section_names_the_file(write: Callable[[str], str]) -> None:
    path = write("corpus: c.jsonl\n")
    message = refusal(path, kind=BuildIndexConfig)
    assert message == f"{path}: index: missing, and it has no default"


def test_a_rule_over_several_keys_names_the_file(write: Callable[[str], str]) -> None:
    path = write(BASE)
    assert refusal(path, "retriever=null") == (
        f"{path}: set retriever.index, or give input.candidates and input.corpus"
    )


def test_a_rule_that_names_a_key_first_names_its_line_or_its_override(
    write: Callable[[str], str],
) -> None:
    text = BASE.replace("max_tokens: 4", "max_tokens: 4\n  free_rule_threshold: 0.1")
    path = write(text)
    said = "selection.threshold 0.05 is below probe.free_rule_threshold 0.1: "
    assert refusal(path).startswith(f"{path}:16: {said}")
    override = "selection.threshold=0.05"
    assert refusal(path, override).startswith(f"override {override!r}: {said}")


def test_a_key_that_stands_twice_is_refused_with_its_line(write: Callable[[str], str]) -> None:
    path = write(BASE + "  top_m: 3\n")
    assert refusal(path) == f"{path}:18: selection.top_m stands twice"


def test_a_key_that_is_a_list_is_refused_with_its_line(write: Callable[[str], str]) -> None:
    path = write("run:\n  [a, b]: 1\n")
    message = refusal(path)
    assert message.startswith(f"{path}:2: ")
    assert "key" in message


def test_a_file_that_is_not_yaml_is_refused_with_the_place(write: Callable[[str], str]) -> None:
    message = refusal(write("run: [1, 2\nprobe: {\n"))
    assert "not YAML" in message and "line 2" in message


def test_a_file_that_is_not_utf_8_is_refused_with_the_byte(tmp_path: Path) -> None:
    path = tmp_path / "latin.yaml"
    path.write_bytes(b"run:\n  name: caf\xe9\n")
    assert refusal(str(path)) == f"{path}: not UTF-8 at byte 16"


def test_a_list_is_not_a_config(write: Callable[[str], str]) -> None:
    path = write("- run\n")
    assert refusal(path) == f"{path}: expected a mapping of sections, got list"


def test_an_empty_file_misses_its_first_required_key(write: Callable[[str], str]) -> None:
    assert "missing, and it has no default" in refusal(write("# nothing yet\n"))


def test_a_missing_file_lists_the_ones_that_are_there(tmp_path: Path) -> None:
    for name in ("b.yaml", "a.yaml", "notes.txt"):
        (tmp_path / name).write_text("", encoding="utf-8")
    assert refusal(str(tmp_path / "c.yaml")) == (
        f"{tmp_path}/c.yaml: no such config file (in {tmp_path}: a.yaml, b.yaml)"
    )
    assert refusal(str(tmp_path / "no" / "c.yaml")).endswith("none)")


@pytest.mark.parametrize("override", ["run.name", "=x", ""])
def test_an_override_without_key_or_equals_sign_is_refused(
    write: Callable[[str], str], override: str
) -> None:
    message = refusal(write(BASE), override)
    assert message == f"override {override!r}: expected key=value, for example run.name=x"


def test_an_override_into_a_value_is_refused(write: Callable[[str], str]) -> None:
    message = refusal(write(BASE), "run.name.first=x")
    assert message == "override 'run.name.first=x': name is not a section"


def test_an_override_that_is_not_yaml_is_refused(write: Callable[[str], str]) -> None:
    message = refusal(write(BASE), "run.name=[1")
    assert message == "override 'run.name=[1': '[1' is not a YAML value"


def test_a_day_that_no_month_has_is_refused_with_its_key(write: Callable[[str], str]) -> None:
    said = "'2026-02-30' is not a YAML value: day is out of range for month"
    assert refusal(write(BASE), "run.name=2026-02-30") == (
        f"override 'run.name=2026-02-30': {said}"
    )
    path = write(BASE.replace("name: base", "name: 2026-02-30"))
    assert refusal(path) == f"{path}:2: run.name: {said}"


@pytest.mark.parametrize("text", ["-.inf", '"-inf"', "-inf"])
def test_a_threshold_of_minus_infinity_can_be_written_in_yaml_or_as_text(
    write: Callable[[str], str], text: str
) -> None:
    cfg = load(OfflineIgpConfig, write(BASE), [f"selection.threshold={text}"])
    assert cfg.selection is not None and cfg.selection.threshold == float("-inf")


@pytest.mark.parametrize("text", [".nan", "nan", "low"])
def test_a_threshold_that_is_no_number_is_refused(write: Callable[[str], str], text: str) -> None:
    message = refusal(write(BASE), f"selection.threshold={text}")
    assert f"override 'selection.threshold={text}': selection.threshold: " in message


def test_a_config_file_may_be_named_by_a_uri(write: Callable[[str], str], tmp_path: Path) -> None:
    there = f"file://{write(BASE)}"
    assert load(OfflineIgpConfig, there, ["run.name=x"]).run.name == "x"
    absent = refusal(f"file://{tmp_path}/other.yaml")
    assert absent == (
        f"file://{tmp_path}/other.yaml: no such config file (in file://{tmp_path}: job.yaml)"
    )
    unknown = refusal("nosuch://bucket/job.yaml")
    assert unknown.startswith("nosuch://bucket/job.yaml: cannot be read: ")


def dotted_keys(kind: type[Frozen]) -> list[str]:
    """Every leaf key, read from the JSON schema and so not by the code under test."""
    schema = kind.model_json_schema()

    def walk(node: dict[str, object], prefix: str) -> list[str]:
        properties = node.get("properties")
        assert isinstance(properties, dict)
        keys: list[str] = []
        for name, value in properties.items():
            options = [value, *value.get("anyOf", []), *value.get("allOf", [])]
            section = next((option["$ref"] for option in options if "$ref" in option), None)
            if section is not None:
                keys += walk(schema["$defs"][section.rpartition("/")[2]], f"{prefix}{name}.")
                continue
            keys.append(prefix + name)
            listed = next((o["items"]["$ref"] for o in options if "$ref" in o.get("items", {})), "")
            if listed:
                keys += walk(schema["$defs"][listed.rpartition("/")[2]], f"{prefix}{name}.N.")
        return keys

    return walk(schema, "")


@pytest.mark.parametrize(
    "kind",
    [
        *(OfflineIgpConfig, BuildIndexConfig, EvaluateConfig, SweepConfig, CalibrateConfig),
        ExportConfig,
    ],
)
def test_the_help_lists_every_key_with_a_meaning(kind: type[Frozen]) -> None:
    lines = help_text(kind).splitlines()
    shown = [line.split(":")[0].strip() for line in lines[::2]]
    assert shown == dotted_keys(kind)
    assert all(line.strip() for line in lines[1::2])


def test_a_section_given_in_part_keeps_its_other_defaults(write: Callable[[str], str]) -> None:
    whole = load(OfflineIgpConfig, write(BASE)).cluster.retriever
    part = load(OfflineIgpConfig, write(BASE), ["cluster.retriever.size=2"]).cluster.retriever
    assert part == whole.model_copy(update={"size": 2})


def test_the_help_shows_type_and_default_or_that_a_key_is_required() -> None:
    text = help_text(OfflineIgpConfig)
    assert "probe.top_k: int  (required)" in text
    assert "answer.max_tokens: int  (default 32)" in text
    assert "input.split: str | null  (default None)" in text
    assert "input.corpus: str | null  (default None)" in text
    assert "cluster.retriever.num_cpus: float  (default 0.25)" in text
    assert "arms.top_m: [int, ...]  (required where arms is given)" in text
    assert "retriever.of.N.embedder.model: str  (required where retriever.of.N.embedder is" in text
    assert "input.questions: str  (required)" in text
    assert "arms.token_guards: [int | null, ...]  (default (None,))" in text
    assert "selection.pass_rate: [float, float] | null  (default None)" in text
    assert "arms.grid: [GridEntry, ...]  (default ())" in text
    assert "arms.grid.N.thresholds: [float, ...]  (default (-inf,))" in text
    assert "retriever.of.N.engine: Literal['bm25', 'dense']  (default 'bm25')" in text
    assert "function" not in text and "pydantic" not in text
