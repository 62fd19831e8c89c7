"""Tests of pipeline.stages.inputs, through source.prepare: every format from file to snapshot."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq
import pytest

from pipeline import writers
from pipeline.config import InputConfig, RunConfig
from pipeline.readers import InputError
from pipeline.runs import layout
from pipeline.runs.storage import Storage
from pipeline.stages import source

PASSAGES = [
    {"passage_id": "a", "title": "Ada", "text": "Ada wrote it.", "score": 2.0},
    {"passage_id": "b", "title": "", "text": "Babbage built it.", "score": 1.0},
]
BARE = [{**passage, "score": None} for passage in PASSAGES]
CORPUS = [{"id": p["passage_id"], "contents": f"{p['title']}\n{p['text']}"} for p in PASSAGES]
QUESTIONS: list[dict[str, Any]] = [
    {"id": "q0", "question": "Who wrote it?", "golden_answers": ["Ada"]},
    {"id": "q1", "question": "Who built it?", "golden_answers": ["Babbage"]},
]
POOLS: list[dict[str, Any]] = [
    {
        "id": "q0",
        "candidates": [
            {"id": "a", "type": "correct", "answer": "Ada"},
            {"id": "b", "type": "misinfo", "answer": "Babbage"},
        ],
    },
    {"id": "q1", "candidates": [{"id": "b"}]},
]
QRELS = "query-id\tcorpus-id\tscore\nq0\ta\t2\nq0\tc\t0\nq9\ta\t1\n"

Put = Callable[[str, Any], str]


@pytest.fixture
def put(tmp_path: Path) -> Put:
    """Writes a text, a JSON value (.json) or JSON Lines to a file of the input; its path."""

    def write(name: str, value: Any) -> str:
        path = tmp_path / "input" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(value, str):
            text = value
        elif name.endswith(".json"):
            text = json.dumps(value)
        else:
            text = "".join(json.dumps(row) + "\n" for row in value)
        path.write_text(text, encoding="utf-8")
        return str(path)

    return write


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    """The root of the runs."""
    return Storage(str(tmp_path / "out"))


def rows(storage: Storage, rows_per_shard: int = 1000, **settings: Any) -> list[dict[str, Any]]:
    """The rows of the snapshot that these settings give, after the checks of its columns."""
    run, cfg = RunConfig(rows_per_shard=rows_per_shard), InputConfig(**settings)
    found = source.prepare(run, cfg, storage)
    assert source.count(run, cfg) == found
    tables = [storage.read_table(layout.part(found.folder, i)) for i in range(found.shards)]
    for table in tables:
        assert table.select(source.columns(cfg).names).schema.equals(source.columns(cfg))
    return [row for table in tables for row in table.to_pylist()]


def told(passage_id: str, **known: Any) -> dict[str, Any]:
    """A judgement of which no more than this is known."""
    return {"passage_id": passage_id, "relevance": None, "label": None, "answer": None, **known}


def test_grades_and_labels_of_a_passage_become_one_judgement(storage: Storage, put: Put) -> None:
    first, second = rows(
        storage,
        questions=put("q.jsonl", QUESTIONS),
        candidates=put("c.jsonl", POOLS),
        corpus=put("p.jsonl", CORPUS),
        qrels=put("qrels.tsv", QRELS),
    )
    assert first["judgements"] == [
        told("a", relevance=2, label="correct", answer="Ada"),
        told("b", label="misinfo", answer="Babbage"),
        told("c", relevance=0),
    ]
    assert second["judgements"] is None
    assert first["candidates"] == BARE


def test_a_cut_keeps_the_first_candidates_and_every_judgement(storage: Storage, put: Put) -> None:
    settings: dict[str, Any] = {
        "questions": put("q.jsonl", QUESTIONS),
        "candidates": put("c.jsonl", POOLS),
        "corpus": put("p.jsonl", CORPUS),
    }
    first, second = rows(storage, max_candidates=1, **settings)
    assert [c["passage_id"] for c in first["candidates"]] == ["a"]
    assert [c["passage_id"] for c in second["candidates"]] == ["b"]
    assert [j["passage_id"] for j in first["judgements"]] == ["a", "b"]


def pools(put: Put, ids: str) -> dict[str, Any]:
    """An input of twenty questions with the same candidates, one for each letter, in this order."""
    questions = [{"id": f"q{i}", "question": "Which?"} for i in range(20)]
    listed = [{"id": letter, "score": 1.0} for letter in ids]
    return {
        "questions": put("many.jsonl", questions),
        "candidates": put(
            f"{ids}.jsonl", [{"id": f"q{i}", "candidates": listed} for i in range(20)]
        ),
        "corpus": put("letters.jsonl", [{"id": letter, "text": letter} for letter in ids]),
    }


def orders(found: list[dict[str, Any]]) -> list[str]:
    """The passage ids of each row's candidates."""
    return ["".join(c["passage_id"] for c in row["candidates"]) for row in found]


def test_a_shuffle_is_by_question_and_passage_and_keeps_nothing_of_the_file_s_order(
    storage: Storage, put: Put
) -> None:
    found = orders(rows(storage, order="random", **pools(put, "abcde")))
    assert {"".join(sorted(order)) for order in found} == {"abcde"}
    assert len(set(found)) > 10
    assert {order[0] for order in found} == set("abcde")
    assert orders(rows(storage, order="random", **pools(put, "edcba"))) == found
    other = source.prepare(
        RunConfig(seed=1), InputConfig(order="random", **pools(put, "abcde")), storage
    )
    table = storage.read_table(layout.part(other.folder, 0))
    assert orders(table.to_pylist()) != found


def test_a_shuffle_comes_before_the_cut(storage: Storage, put: Put) -> None:
    given = pools(put, "abcde")
    whole = orders(rows(storage, order="random", **given))
    cut = rows(storage, order="random", max_candidates=2, **given)
    assert orders(cut) == [order[:2] for order in whole]
    assert {c["text"] == c["passage_id"] for row in cut for c in row["candidates"]} == {True}


def test_embedded_candidates_are_shuffled_too(storage: Storage, put: Put) -> None:
    ctxs = [{"id": letter, "text": letter} for letter in "abcde"]
    entries = [{"question": f"Which {i}?", "answers": [], "ctxs": ctxs} for i in range(20)]
    path = put("out.json", entries)
    found = orders(rows(storage, format="dpr", questions=path, order="random", max_candidates=1))
    assert set(found) == set("abcde")


def test_a_pool_to_be_ranked_stays_whole_and_as_it_was_given(storage: Storage, put: Put) -> None:
    found = rows(storage, order="retriever", max_candidates=1, **pools(put, "cab"))
    for row in found:
        assert "candidates" not in row
        assert [passage["passage_id"] for passage in row["pool"]] == ["c", "a", "b"]
        assert [passage["text"] for passage in row["pool"]] == ["c", "a", "b"]


def test_the_order_is_of_the_fingerprint_and_the_cut_of_a_pool_is_not(put: Put) -> None:
    given = pools(put, "abc")

    def fingerprint(seed: int = 0, **settings: Any) -> str:
        return source.count(RunConfig(seed=seed), InputConfig(**given, **settings)).fingerprint

    random: dict[str, Any] = {"order": "random"}
    pool: dict[str, Any] = {"order": "retriever"}
    assert len({fingerprint(), fingerprint(**random), fingerprint(**pool)}) == 3
    assert fingerprint(1, **random) != fingerprint(**random)
    assert fingerprint(1, **pool) == fingerprint(**pool) == fingerprint(max_candidates=1, **pool)
    assert fingerprint(max_candidates=1, **random) != fingerprint(**random)


def test_passages_that_are_cut_need_no_text(storage: Storage, put: Put) -> None:
    settings: dict[str, Any] = {
        "questions": put("q.jsonl", QUESTIONS[:1]),
        "candidates": put("c.jsonl", POOLS),
        "corpus": put("p.jsonl", CORPUS[:1]),
    }
    with pytest.raises(InputError, match=r"p\.jsonl: has no passage 'b', named in .*c\.jsonl"):
        rows(storage, **settings)
    assert len(rows(storage, max_candidates=1, **settings)) == 1


def test_qrels_alone_give_judgements_of_either_form(storage: Storage, put: Put) -> None:
    questions = put("q.jsonl", QUESTIONS)
    for name, text in (("q.tsv", QRELS), ("q.trec", "q0 0 a 2\nq0 0 c 0\n")):
        first, second = rows(storage, questions=questions, qrels=put(name, text))
        assert first["judgements"] == [told("a", relevance=2), told("c", relevance=0)]
        assert second["judgements"] is None and "candidates" not in second


def test_qrels_of_other_questions_are_refused(storage: Storage, put: Put) -> None:
    qrels = put("other.trec", "x 0 a 1\n")
    with pytest.raises(InputError, match=r"other\.trec: judges no question of .*q\.jsonl"):
        rows(storage, questions=put("q.jsonl", QUESTIONS), qrels=qrels)


def test_beir_keeps_the_judged_queries_with_a_trec_run_for_candidates(
    storage: Storage, put: Put
) -> None:
    queries = [{"_id": q["id"], "text": q["question"]} for q in QUESTIONS]
    folder = str(Path(put("set/queries.jsonl", queries)).parent)
    corpus = [{"_id": p["passage_id"], "title": p["title"], "text": p["text"]} for p in PASSAGES]
    run = put("bm25.run", "q0 Q0 b 2 1.0 t\nq0 Q0 a 1 2.0 t\n")
    (row,) = rows(
        storage,
        format="beir",
        questions=folder,
        corpus=put("set/corpus.jsonl", corpus),
        qrels=put("set/qrels/test.tsv", QRELS),
        candidates=run,
    )
    assert (row["question_id"], row["golden_answers"]) == ("q0", [])
    assert row["candidates"] == PASSAGES
    every = rows(storage, format="beir", questions=folder)
    assert [row["question_id"] for row in every] == ["q0", "q1"]


def test_a_run_without_passages_for_a_question_says_so_in_its_side_list(
    storage: Storage, put: Put
) -> None:
    settings: dict[str, Any] = {
        "questions": put("q.jsonl", QUESTIONS),
        "corpus": put("p.jsonl", CORPUS),
        "candidates": put("a.run", "q0 Q0 a 1 2.0 t\n"),
    }
    with pytest.raises(InputError, match=r"a\.run: has no line for question 'q1'"):
        rows(storage, **settings)
    put("a.run.empty", "q1\n")
    assert rows(storage, **settings)[1]["candidates"] == []


def dpr_entries() -> list[dict[str, Any]]:
    """The questions with all passages, as a retriever's output."""
    ctxs = [{"id": p.pop("passage_id"), **p} for p in map(dict, PASSAGES)]
    return [
        {"id": q["id"], "question": q["question"], "answers": q["golden_answers"], "ctxs": ctxs}
        for q in QUESTIONS
    ]


@pytest.mark.parametrize("name", ["out.json", "out.jsonl"])
def test_a_retriever_s_output_needs_no_corpus(storage: Storage, put: Put, name: str) -> None:
    path = put(name, dpr_entries())
    found = rows(storage, format="dpr", questions=path, qrels=put("q.tsv", QRELS))
    assert [row["candidates"] for row in found] == [PASSAGES, PASSAGES]
    assert [row["golden_answers"] for row in found] == [["Ada"], ["Babbage"]]
    assert found[0]["judgements"] == [told("a", relevance=2), told("c", relevance=0)]
    cut = rows(storage, format="dpr", questions=path, max_candidates=1)
    assert [row["candidates"] for row in cut] == [PASSAGES[:1], PASSAGES[:1]]


def test_a_bad_entry_of_an_array_becomes_a_dead_row_known_by_its_number(
    storage: Storage, put: Put
) -> None:
    good = dpr_entries()
    path = put("out.json", [good[0], {"question": "no passages"}, good[1]])
    with pytest.raises(InputError, match=r"out\.json:1: entry 2: ctxs must be a list of objects"):
        rows(storage, format="dpr", questions=path)
    found = rows(storage, format="dpr", questions=path, on_bad_row="dead_letter")
    assert [row["question_id"] for row in found] == ["q0", "entry 2", "q1"]
    assert found[1]["dead"]["stage"] == "input" and found[1]["candidates"] is None


def test_alce_brings_documents_and_keeps_its_pairs_in_the_metadata(
    storage: Storage, put: Put
) -> None:
    docs = [{"title": p["title"], "text": p["text"]} for p in PASSAGES]
    pairs = [{"question": "Who?", "short_answers": ["Ada"]}]
    entry = {"sample_id": 5, "question": "Who wrote it?", "docs": docs, "qa_pairs": pairs}
    (row,) = rows(storage, format="alce", questions=put("asqa.json", [entry]))
    assert (row["question_id"], row["golden_answers"]) == ("5", ["Ada"])
    assert json.loads(row["metadata"]) == {"qa_pairs": pairs}
    assert [(c["title"], c["text"]) for c in row["candidates"]] == [
        (p["title"], p["text"]) for p in PASSAGES
    ]


def test_contexts_written_for_flashrag_are_an_input_again(storage: Storage, put: Put) -> None:
    made = rows(storage, format="dpr", questions=put("out.json", dpr_entries()))
    questions, cache = put("again.jsonl", ""), put("cache.json", "")
    writers.write_questions(questions, made)
    writers.write_cache(cache, [(row["question"], row["candidates"]) for row in made])
    assert rows(storage, questions=questions, candidates=cache) == made
    writers.write_cache(cache, [(made[0]["question"], [])])
    with pytest.raises(InputError, match=r"cache\.json: has no line for question 'q1'"):
        rows(storage, questions=questions, candidates=cache)


def test_a_run_s_parquet_is_an_input_again_with_its_judgements(
    storage: Storage, put: Put, tmp_path: Path
) -> None:
    made = rows(
        storage,
        questions=put("q.jsonl", QUESTIONS),
        candidates=put("c.jsonl", POOLS),
        corpus=put("p.jsonl", CORPUS),
        qrels=put("qrels.tsv", QRELS),
    )
    contexts = tmp_path / "contexts"
    contexts.mkdir()
    for i, part in enumerate(sorted(storage.names("stages"))):
        pq.write_table(
            storage.read_table(f"stages/{part}/part-000000.parquet"), contexts / f"{i}.parquet"
        )
    folder = str(contexts)
    assert rows(storage, format="parquet", questions=folder, candidates=folder) == made
    alone = rows(storage, format="parquet", questions=folder)
    assert alone == [{k: v for k, v in row.items() if k != "candidates"} for row in made]


def test_new_qrels_replace_the_grades_that_a_table_brings(storage: Storage, put: Put) -> None:
    path = put("t.parquet", "")
    judged = [told("a", relevance=1, label="correct"), told("b", relevance=0)]
    pl.DataFrame({"id": ["q0"], "question": ["Who?"], "judgements": [judged]}).write_parquet(path)
    (row,) = rows(storage, format="parquet", questions=path, qrels=put("q.trec", "q0 0 a 3\n"))
    assert row["judgements"] == [told("a", relevance=3, label="correct"), told("b", relevance=0)]


def test_a_data_set_of_the_hub_is_read_and_watched(
    storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("datasets", reason="NOT CHECKED: the optional package datasets is absent")
    import datasets.config

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "org" / "log" / "test.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text("".join(json.dumps(row) + "\n" for row in QUESTIONS), encoding="utf-8")
    cfg = InputConfig(format="huggingface", questions="hf://org/log/test")
    found = source.prepare(RunConfig(), cfg, storage)
    assert (found.rows, found.files[0].path) == (2, "hf://org/log/test")
    source.check_unchanged(found)
    file.write_text(json.dumps(QUESTIONS[0]) + "\n", encoding="utf-8")
    with pytest.raises(InputError, match="hf://org/log/test: changed while the run was under way"):
        source.check_unchanged(found)


def test_the_fingerprint_covers_every_file_and_how_it_is_read(put: Put) -> None:
    base = {
        "questions": put("q.jsonl", QUESTIONS),
        "candidates": put("a.run", "q0 Q0 a 1 2.0 t\nq1 Q0 b 1 1.0 t\n"),
        "corpus": put("p.jsonl", CORPUS),
    }
    qrels = put("qrels.tsv", QRELS)

    def fingerprint(**settings: Any) -> str:
        return source.count(RunConfig(), InputConfig(**{**base, **settings})).fingerprint

    prints = [
        fingerprint(),
        fingerprint(max_candidates=1),
        fingerprint(max_candidates=2),
        fingerprint(qrels=qrels),
        fingerprint(qrels=put("other.tsv", QRELS + "q1\ta\t1\n")),
        fingerprint(format="parquet", questions=_table(Path(put("t.parquet", "")))),
    ]
    put("a.run.empty", "q7\n")
    prints.append(fingerprint())
    assert len(set(prints)) == len(prints)


def _table(path: Path) -> str:
    pl.DataFrame(QUESTIONS).write_parquet(path)
    return str(path)


@pytest.mark.parametrize("name", ["qrels.tsv", "a.run", "a.run.empty"])
def test_a_changed_file_of_judgements_or_candidates_is_named(
    storage: Storage, put: Put, name: str
) -> None:
    put("a.run.empty", "q1\n")
    cfg = InputConfig(
        questions=put("q.jsonl", QUESTIONS),
        candidates=put("a.run", "q0 Q0 a 1 2.0 t\n"),
        corpus=put("p.jsonl", CORPUS),
        qrels=put("qrels.tsv", QRELS),
    )
    found = source.prepare(RunConfig(), cfg, storage)
    source.check_unchanged(found)
    put(name, "other\n")
    with pytest.raises(InputError, match=f"{name}: changed while the run was under way"):
        source.check_unchanged(found)


def test_the_pools_of_ramdocs_come_with_labels_and_grades(shared: Path, storage: Storage) -> None:
    folder = shared / "data" / "ramdocs"
    found = rows(
        storage,
        100,
        questions=str(folder / "questions.jsonl"),
        candidates=str(folder / "candidates.jsonl"),
        corpus=str(folder / "corpus.jsonl"),
        qrels=str(folder / "qrels.tsv"),
    )
    assert len(found) == 345
    graded = 0
    for row in found:
        by_id = {j["passage_id"]: j for j in row["judgements"]}
        assert [c["passage_id"] for c in row["candidates"]] == list(by_id)
        assert all((j["label"] == "correct") == (j["relevance"] == 1) for j in by_id.values())
        graded += sum(j["relevance"] is not None for j in by_id.values())
        wrong = {j["answer"] for j in by_id.values() if j["label"] == "misinfo"}
        assert wrong <= set(json.loads(row["metadata"])["wrong_answers"])
    assert found[0]["judgements"][2] == told("ramdocs-p00002", label="noise", answer="unknown")
    lines = (folder / "qrels.tsv").read_text().splitlines()[1:]
    ids = {row["question_id"] for row in found}
    assert graded == sum(line.split("\t")[0] in ids for line in lines)


def test_the_gold_passages_of_nq_gold_are_judgements(shared: Path, storage: Storage) -> None:
    folder = shared / "data" / "nq_gold"
    found = rows(
        storage,
        500,
        questions=str(folder / "questions.jsonl"),
        qrels=str(folder / "qrels.tsv"),
        split="dev",
    )
    assert len(found) == 1862
    assert all(len(row["judgements"]) >= 1 for row in found)
    assert found[0]["judgements"] == [told("nqgold-p00002", relevance=1)]
