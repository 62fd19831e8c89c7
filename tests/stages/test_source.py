"""Tests of pipeline.stages.source: the snapshot of the input, and its fingerprint."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pipeline.config import InputConfig, RunConfig
from pipeline.readers import InputError
from pipeline.runs import layout
from pipeline.runs.storage import Storage
from pipeline.stages import source
from pipeline.stages.source import Source

QUESTIONS: list[Any] = [
    {
        "id": f"q{i}",
        "question": f"Question {i}?",
        "golden_answers": [f"answer {i}"],
        "metadata": {"split": "dev" if i % 2 else "test", "é": i},
    }
    for i in range(7)
]
CORPUS = [
    {"id": "a", "contents": '"Title A"\nText of A.'},
    {"id": "b", "contents": "Only text of B."},
    {"id": "c", "contents": "Title C\nText of C.\nMore."},
]
CANDIDATES = [
    {"question_id": f"q{i}", "passages": [{"id": "b", "score": 2.5}, {"id": "a"}]} for i in range(7)
]

Write = Callable[[str, list[Any]], str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes rows (objects, or texts as they are) to a file in the input folder; its path."""

    def write_rows(name: str, rows: list[Any]) -> str:
        path = tmp_path / "input" / name
        path.parent.mkdir(exist_ok=True)
        lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
        path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        return str(path)

    return write_rows


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    """The root of the runs."""
    return Storage(str(tmp_path / "out"))


@pytest.fixture
def given(write: Write) -> InputConfig:
    """Questions with candidates and their corpus."""
    return InputConfig(
        questions=write("questions.jsonl", QUESTIONS),
        candidates=write("candidates.jsonl", CANDIDATES),
        corpus=write("corpus.jsonl", CORPUS),
    )


def cut(rows_per_shard: int = 3, **settings: Any) -> RunConfig:
    """How the input is cut."""
    return RunConfig(rows_per_shard=rows_per_shard, **settings)


def changed(cfg: InputConfig, **settings: Any) -> InputConfig:
    """The input with other settings."""
    return InputConfig(**(cfg.model_dump() | settings))


def stored(found: Source, storage: Storage) -> list[pa.Table]:
    """The shards on disk, in order."""
    return [storage.read_table(layout.part(found.folder, i)) for i in range(found.shards)]


def ids(found: Source, storage: Storage) -> list[str]:
    """The question ids on disk, in order."""
    return [i for table in stored(found, storage) for i in table["question_id"].to_pylist()]


def test_shards_hold_the_questions_in_the_order_of_the_file(
    given: InputConfig, storage: Storage
) -> None:
    found = source.prepare(cut(3), given, storage)
    assert (found.rows, found.dead, found.shards) == (7, 0, 3)
    tables = stored(found, storage)
    assert [len(table) for table in tables] == [3, 3, 1]
    assert [table["shard"].to_pylist() for table in tables] == [[0] * 3, [1] * 3, [2]]
    assert layout.shards_done(storage, found.folder) == {0, 1, 2}
    first = tables[0].to_pylist()[0]
    assert json.loads(first.pop("metadata")) == {"split": "test", "é": 0}
    assert first == {
        "question_id": "q0",
        "question": "Question 0?",
        "golden_answers": ["answer 0"],
        "judgements": None,
        "candidates": [
            {"passage_id": "b", "title": "", "text": "Only text of B.", "score": 2.5},
            {"passage_id": "a", "title": "Title A", "text": "Text of A.", "score": None},
        ],
        "dead": None,
        "shard": 0,
    }


def test_the_columns_are_those_that_the_plan_was_promised(
    given: InputConfig, storage: Storage
) -> None:
    log = changed(given, candidates=None, corpus=None)
    for cfg in (given, log):
        found = source.prepare(cut(), cfg, storage)
        for table in stored(found, storage):
            assert table.select(source.columns(cfg).names).schema.equals(source.columns(cfg))
    assert "candidates" not in source.columns(log).names


def test_a_snapshot_is_written_once(given: InputConfig, storage: Storage) -> None:
    found = source.prepare(cut(), given, storage)
    other = stored(found, storage)[0]  # whole, though not what the input would give again
    storage.write_table(layout.part(found.folder, 1), other)
    assert source.prepare(cut(), given, storage) == found
    assert stored(found, storage)[1].equals(other)


def test_a_snapshot_cut_short_by_a_crash_is_written_again(
    given: InputConfig, storage: Storage
) -> None:
    found = source.prepare(cut(), given, storage)
    whole = stored(found, storage)
    storage.delete(f"{found.folder}/_DONE.json")
    storage.delete(layout.part(found.folder, 2))
    assert source.prepare(cut(), given, storage) == found
    assert all(a.equals(b) for a, b in zip(stored(found, storage), whole, strict=True))


def test_the_count_equals_what_prepare_writes(given: InputConfig, storage: Storage) -> None:
    for run, cfg in (
        (cut(), given),
        (cut(2, seed=5), changed(given, sample=3)),
        (cut(100), changed(given, split="dev")),
        (cut(100), changed(given, fold=(1, 2))),
    ):
        assert source.count(run, cfg) == source.prepare(run, cfg, storage)


def test_the_fingerprint_covers_contents_filter_sample_and_cut(
    given: InputConfig, write: Write
) -> None:
    prints = {
        source.count(run, cfg).fingerprint
        for run, cfg in (
            (cut(), given),
            (cut(4), given),
            (cut(), changed(given, split="dev")),
            (cut(), changed(given, sample=3)),
            (cut(seed=1), changed(given, sample=3)),
            (cut(), changed(given, sample=4)),
            (cut(), changed(given, on_bad_row="dead_letter")),
            (cut(), changed(given, candidates=None, corpus=None)),
            (cut(), changed(given, questions=write("other.jsonl", QUESTIONS[:6]))),
            (cut(), changed(given, corpus=write("more.jsonl", [*CORPUS, {"id": 1, "text": "x"}]))),
            (cut(), changed(given, candidates=write("c.jsonl", [*CANDIDATES, ""]))),
        )
    }
    assert len(prints) == 11


def test_qrels_change_the_snapshot_and_not_the_rows_without_them(
    given: InputConfig, write: Write
) -> None:
    qrels = [write(f"{name}.tsv", [f"q1 0 {name} 1"]) for name in "ab"]
    plain, one, other = (source.count(cut(), changed(given, qrels=path)) for path in (None, *qrels))
    assert len({plain.fingerprint, one.fingerprint, other.fingerprint}) == 3
    assert plain.fingerprint == plain.unjudged == one.unjudged == other.unjudged
    assert source.count(cut(4), changed(given, qrels=qrels[0])).unjudged != one.unjudged


def test_qrels_that_choose_the_questions_change_the_rows(write: Write) -> None:
    queries = write("queries.jsonl", [{"_id": f"q{i}", "text": "Why?"} for i in range(3)])
    found = [
        source.count(
            cut(), InputConfig(format="beir", questions=queries, qrels=write(f"{q}.tsv", [q]))
        )
        for q in ("q1 0 a 1", "q2 0 a 1")
    ]
    assert found[0].rows == found[1].rows == 1
    assert found[0].unjudged != found[1].unjudged


def test_the_fingerprint_leaves_out_path_name_and_unused_seed(
    given: InputConfig, tmp_path: Path
) -> None:
    moved = shutil.copytree(tmp_path / "input", tmp_path / "elsewhere")
    there = InputConfig(
        questions=str(moved / "questions.jsonl"),
        candidates=str(moved / "candidates.jsonl"),
        corpus=str(moved / "corpus.jsonl"),
    )
    here = source.count(cut(), given).fingerprint
    assert source.count(cut(seed=1, name="other", root="x"), there).fingerprint == here


def test_a_sample_is_seeded_and_keeps_the_order_of_the_file(
    given: InputConfig, storage: Storage
) -> None:
    samples = {}
    for seed in range(8):
        found = source.prepare(cut(seed=seed), changed(given, sample=3), storage)
        samples[seed] = ids(found, storage)
        assert len(samples[seed]) == 3
        assert samples[seed] == sorted(set(samples[seed]))
    again = source.prepare(cut(4, seed=0), changed(given, sample=3), storage)
    assert ids(again, storage) == samples[0]
    assert len(set(map(tuple, samples.values()))) > 1


def test_a_larger_sample_contains_the_smaller_one(given: InputConfig, storage: Storage) -> None:
    small, large = (
        set(ids(source.prepare(cut(), changed(given, sample=size), storage), storage))
        for size in (2, 5)
    )
    assert small < large


def test_a_sample_is_of_good_lines_and_no_bad_one_is_dropped(
    given: InputConfig, storage: Storage, write: Write
) -> None:
    path = write("bad.jsonl", [*QUESTIONS[:4], *["oops"] * 20])
    cfg = changed(given, questions=path, sample=2, on_bad_row="dead_letter")
    found = source.prepare(cut(), cfg, storage)
    assert (found.rows, found.dead) == (22, 20)
    assert sum(name.startswith("q") for name in ids(found, storage)) == 2


def test_bad_lines_alone_are_no_questions(
    given: InputConfig, storage: Storage, write: Write
) -> None:
    cfg = changed(given, questions=write("bad.jsonl", ["oops"]), on_bad_row="dead_letter")
    with pytest.raises(InputError, match="holds no question, and 1 malformed lines"):
        source.prepare(cut(), cfg, storage)


def test_a_sample_larger_than_the_file_is_the_file(given: InputConfig, storage: Storage) -> None:
    found = source.prepare(cut(), changed(given, sample=100), storage)
    assert found.rows == 7


def test_the_split_keeps_its_questions(given: InputConfig, storage: Storage) -> None:
    found = source.prepare(cut(), changed(given, split="dev"), storage)
    assert ids(found, storage) == ["q1", "q3", "q5"]


def test_the_folds_share_the_questions_out(given: InputConfig, storage: Storage) -> None:
    def kept(*fold: int) -> set[str]:
        found = source.prepare(cut(), changed(given, fold=fold), storage)
        tables = [storage.read_table(layout.part(found.folder, s)) for s in range(found.shards)]
        return {name for table in tables for name in table["question_id"].to_pylist()}

    everything = source.prepare(cut(), given, storage)
    parts = [kept(1, 3), kept(2, 3), kept(3, 3)]
    assert sum(map(len, parts)) == len(set.union(*parts)) == everything.rows
    assert kept(1, 1) == set.union(*parts)


def test_a_bad_line_stops_the_run_or_becomes_a_dead_row_in_its_place(
    given: InputConfig, storage: Storage, write: Write
) -> None:
    path = write("bad.jsonl", [QUESTIONS[0], "oops", *QUESTIONS[1:3], QUESTIONS[0]])
    with pytest.raises(InputError, match=r"bad\.jsonl:2: not JSON"):
        source.prepare(cut(), changed(given, questions=path), storage)
    kept = changed(given, questions=path, on_bad_row="dead_letter")
    found = source.prepare(cut(), kept, storage)
    assert (found.rows, found.dead, found.shards) == (5, 2, 2)
    assert ids(found, storage) == ["q0", "line 2", "q1", "q2", "line 5"]
    dead = stored(found, storage)[0].to_pylist()[1]
    assert dead["dead"]["stage"] == "input"
    assert dead["dead"]["reason"].startswith(f"{path}:2: not JSON")
    assert dead["question"] is None and dead["candidates"] is None


def test_a_question_without_candidates_in_its_list_has_the_empty_list(
    given: InputConfig, storage: Storage, write: Write
) -> None:
    lists = [{"id": "q0", "candidates": []}, *CANDIDATES[1:]]
    cfg = changed(given, candidates=write("c.jsonl", lists))
    assert stored(source.prepare(cut(), cfg, storage), storage)[0]["candidates"][0].as_py() == []


def test_candidates_of_other_questions_need_no_passage(
    given: InputConfig, storage: Storage, write: Write
) -> None:
    lists = [*CANDIDATES, {"id": "q99", "candidates": [{"id": "gone"}]}]
    cfg = changed(given, candidates=write("c.jsonl", lists))
    assert source.prepare(cut(), cfg, storage).rows == 7


@pytest.mark.parametrize("act", ["count", "prepare"])
def test_what_is_missing_is_refused_by_name(
    given: InputConfig, storage: Storage, write: Write, act: str
) -> None:
    def read(cfg: InputConfig) -> Source:
        return source.count(cut(), cfg) if act == "count" else source.prepare(cut(), cfg, storage)

    def refusal(**settings: Any) -> str:
        with pytest.raises(InputError) as caught:
            read(changed(given, **settings))
        return str(caught.value)

    short = write("short.jsonl", CANDIDATES[:3])
    assert refusal(candidates=short) == f"{short}: has no line for question 'q3'"
    small = write("small.jsonl", CORPUS[1:])
    assert refusal(corpus=small) == f"{small}: has no passage 'a', named in {given.candidates}"
    assert refusal(corpus="/gone/corpus.jsonl") == "input.corpus: /gone/corpus.jsonl: no such file"
    assert refusal(questions="/gone/q.jsonl") == "input.questions: /gone/q.jsonl: no such file"
    assert refusal(candidates="/gone/c.jsonl") == "input.candidates: /gone/c.jsonl: no such file"
    assert refusal(qrels="/gone/qrels.tsv") == "input.qrels: /gone/qrels.tsv: no such file"
    empty = write("empty.jsonl", [])
    assert refusal(questions=empty, split=None) == f"{empty}: holds no question"
    assert refusal(split="train").endswith("holds no question with metadata.split 'train'")


@pytest.mark.parametrize("name", ["questions.jsonl", "candidates.jsonl", "corpus.jsonl"])
def test_an_input_that_changes_during_the_run_is_named(
    given: InputConfig, storage: Storage, tmp_path: Path, name: str
) -> None:
    found = source.prepare(cut(), given, storage)
    source.check_unchanged(found)
    path = tmp_path / "input" / name
    path.write_bytes(path.read_bytes().replace(b"q", b"Q").replace(b"T", b"t"))
    with pytest.raises(InputError, match=f"{name}: changed while the run was under way"):
        source.check_unchanged(found)
    path.unlink()
    with pytest.raises(InputError, match=f"{name}: removed while the run was under way"):
        source.check_unchanged(found)


def test_the_manifest_names_every_input_file(given: InputConfig) -> None:
    made = source.manifest(source.count(cut(), given))
    assert [file["path"] for file in made["files"]] == [
        given.questions,
        given.candidates,
        given.corpus,
    ]
    json.dumps(made)
