"""BM25 through a real Lucene index."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pipeline.config import (
    BuildIndexConfig,
    GeneratorConfig,
    InputConfig,
    OfflineIgpConfig,
    ProbeConfig,
    RetrieverConfig,
    SelectionConfig,
)
from pipeline.engines.base import ModelNotFound, Passage, Refusal
from pipeline.engines.bm25 import Bm25Retriever, build_index
from pipeline.engines.index_folder import read_manifest
from pipeline.engines.table import Engines
from pipeline.readers import InputError
from pipeline.runs.lease import LeaseHeld
from pipeline.stages import retrieve

pytestmark = pytest.mark.engine
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def build(corpus: Path, index: Path) -> dict[str, object]:
    return build_index(BuildIndexConfig(corpus=str(corpus), index=str(index)), lambda n: None)


@pytest.fixture(scope="module")
def retriever(tmp_path_factory: pytest.TempPathFactory) -> Bm25Retriever:
    index = tmp_path_factory.mktemp("index") / "examples"
    build(EXAMPLES / "corpus.jsonl", index)
    return Bm25Retriever(RetrieverConfig(index=str(index)))


def test_every_passage_is_the_best_hit_for_its_own_text(retriever: Bm25Retriever) -> None:
    rows = [json.loads(line) for line in (EXAMPLES / "corpus.jsonl").open(encoding="utf-8")]
    found = retriever.search([row["contents"] for row in rows], n=1)
    right = sum(hits[0].passage_id == row["id"] for hits, row in zip(found, rows, strict=True))
    assert right / len(rows) > 0.95  # near-duplicates may take each other's place


def test_hits_carry_title_and_text_and_falling_scores(retriever: Bm25Retriever) -> None:
    rows = {
        row["id"]: row["contents"]
        for row in map(json.loads, (EXAMPLES / "corpus.jsonl").open(encoding="utf-8"))
    }
    (hits,) = retriever.search(["Which ocean is the deepest?"], n=5)
    assert len(hits) == 5
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    for hit in hits:
        assert f"{hit.title}\n{hit.text}" == rows[hit.passage_id]


def test_results_do_not_depend_on_the_batch(retriever: Bm25Retriever) -> None:
    questions = ["deepest ocean", "moon landing", "inventor of the telephone"]
    together = retriever.search(questions, n=3)
    assert together == [retriever.search([question], n=3)[0] for question in questions]


def test_a_question_without_an_indexed_word_finds_nothing(retriever: Bm25Retriever) -> None:
    assert retriever.search(["zzzzqqq", "the of and"], n=3) == [[], []]


def test_questions_are_analysed_like_passages(tmp_path: Path) -> None:
    # Every question word is an inflection that no passage contains as such.
    texts = {"a": "The runner runs.", "b": "A swimmer was swimming.", "c": "Flying kites."}
    lines = [json.dumps({"id": key, "contents": text}) for key, text in texts.items()]
    (tmp_path / "corpus.jsonl").write_text("\n".join(lines))
    build(tmp_path / "corpus.jsonl", tmp_path / "index")
    searcher = Bm25Retriever(RetrieverConfig(index=str(tmp_path / "index")))
    found = searcher.search(["running", "swim", "kite"], n=1)
    assert [hits[0].passage_id for hits in found] == ["a", "b", "c"]


def test_inflected_questions_find_inflected_passages(tmp_path: Path) -> None:
    texts = {"a": "running dogs", "b": "sleeping cats"}
    lines = [json.dumps({"id": key, "contents": text}) for key, text in texts.items()]
    (tmp_path / "corpus.jsonl").write_text("\n".join(lines))
    build(tmp_path / "corpus.jsonl", tmp_path / "index")
    searcher = Bm25Retriever(RetrieverConfig(index=str(tmp_path / "index")))
    found = searcher.search(["dog runs", "a cat sleeps"], n=2)
    assert [[hit.passage_id for hit in hits] for hits in found] == [["a"], ["b"]]


def test_a_given_passage_has_the_score_of_its_hit_and_the_order_is_that_of_the_hits(
    retriever: Bm25Retriever,
) -> None:
    lines = (EXAMPLES / "questions.jsonl").read_text(encoding="utf-8").splitlines()
    questions = [json.loads(line)["question"] for line in lines]
    for question, hits in zip(questions, retriever.search(questions, n=30), strict=True):
        assert len(hits) > 5
        pool = [Passage(hit.passage_id, hit.title, hit.text) for hit in hits[::-1]]
        scores = retriever.score(question, pool)
        # Of hits whose scores are equal Anserini takes 1e-6 off the later ones.
        assert scores == pytest.approx([hit.score for hit in hits[::-1]], abs=1e-5)
        ranked = sorted(zip(pool, scores, strict=True), key=lambda one: (-one[1], one[0]))
        assert [passage.passage_id for passage, _ in ranked] == [hit.passage_id for hit in hits]


def test_scores_of_given_passages_follow_k1_and_b(retriever: Bm25Retriever, tmp_path: Path) -> None:
    build(EXAMPLES / "corpus.jsonl", tmp_path / "index")
    other = Bm25Retriever(RetrieverConfig(index=str(tmp_path / "index"), k1=2.0, b=0.9))
    question = "Which ocean is the deepest?"
    (hits,) = other.search([question], n=5)
    pool = [Passage(hit.passage_id, hit.title, hit.text) for hit in hits]
    scores = other.score(question, pool)
    assert scores == pytest.approx([hit.score for hit in hits], abs=1e-5)
    assert abs(scores[0] - retriever.score(question, pool)[0]) > 0.1


def test_a_given_passage_without_a_word_of_the_question_scores_nought(
    retriever: Bm25Retriever,
) -> None:
    (hit,) = retriever.search(["Which ocean is the deepest?"], n=1)[0]
    passage = Passage(hit.passage_id, hit.title, hit.text)
    assert retriever.score("zzzzqqq", [passage, passage]) == [0, 0]
    assert retriever.score("the of and", []) == []


def test_a_given_passage_that_the_index_lacks_or_knows_otherwise_is_refused_by_name(
    retriever: Bm25Retriever,
) -> None:
    (hit,) = retriever.search(["Which ocean is the deepest?"], n=1)[0]
    with pytest.raises(Refusal, match="passage 'gone' is not in the index"):
        retriever.score("Which ocean?", [Passage("gone", hit.title, hit.text)])
    with pytest.raises(Refusal, match=f"passage '{hit.passage_id}' has another text in the index"):
        retriever.score("Which ocean?", [Passage(hit.passage_id, hit.title, "Another text.")])


def test_scifact_reproduces_the_published_numbers(shared: Path, tmp_path: Path) -> None:
    """nDCG@10 0.679 as pyserini and Anserini publish it for k1 0.9, b 0.4 over title and text."""
    import ir_measures
    from ir_measures import R, nDCG

    folder = shared / "data" / "scifact"
    if not (folder / "corpus.jsonl.gz").is_file():
        # The abstracts have licences of their own, so they stay outside this repository; without
        # them BM25 is still held to the examples, to its own scores and to equal analysis.
        pytest.skip(f"NOT CHECKED: {folder} is absent; set WINNOW_SHARED to check against it")
    build(folder / "corpus.jsonl.gz", tmp_path / "index")
    searcher = Bm25Retriever(RetrieverConfig(index=str(tmp_path / "index"), k1=0.9, b=0.4))
    questions = list(map(json.loads, (folder / "questions.jsonl").open(encoding="utf-8")))
    found = searcher.search([question["question"] for question in questions], n=100)
    run = [
        ir_measures.ScoredDoc(question["id"], hit.passage_id, hit.score)
        for question, hits in zip(questions, found, strict=True)
        for hit in hits
    ]
    lines = (folder / "qrels.tsv").read_text(encoding="utf-8").splitlines()[1:]
    split = [line.split("\t") for line in lines]
    qrels = [ir_measures.Qrel(query, passage, int(grade)) for query, passage, grade in split]
    measured = ir_measures.calc_aggregate([nDCG @ 10, R @ 100], qrels, run)
    assert measured[nDCG @ 10] == pytest.approx(0.6789, abs=5e-5)
    assert measured[R @ 100] == pytest.approx(0.9253, abs=5e-5)


def test_an_index_of_the_same_corpus_is_left_as_it_is_and_of_another_is_replaced(
    tmp_path: Path,
) -> None:
    corpus, index = tmp_path / "corpus.jsonl", tmp_path / "index"
    corpus.write_text('{"id": "a", "contents": "T\\none text"}\n')
    first = build(corpus, index)
    stamp = (index / "winnow.json").stat().st_mtime_ns
    assert build(corpus, index) == first
    assert (index / "winnow.json").stat().st_mtime_ns == stamp
    corpus.write_text('{"id": "a", "contents": "T\\nanother text"}\n')
    assert build(corpus, index)["fingerprint"] != first["fingerprint"]
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_of_two_builds_at_once_the_second_is_refused_and_the_first_is_whole(
    tmp_path: Path,
) -> None:
    index, reading, go_on = tmp_path / "index", threading.Event(), threading.Event()
    cfg = BuildIndexConfig(corpus=str(EXAMPLES / "corpus.jsonl"), index=str(index))

    def hold(count: int) -> None:
        reading.set()
        assert go_on.wait(60)

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(build_index, cfg, hold)
        try:
            assert reading.wait(60)
            with pytest.raises(LeaseHeld, match=r"\.index\.lease/lease\.json: held by process"):
                build(EXAMPLES / "corpus.jsonl", index)
        finally:
            go_on.set()
        manifest = first.result(60)
    assert build(EXAMPLES / "corpus.jsonl", index) == manifest
    assert manifest["passages"] == 156
    assert Bm25Retriever(RetrieverConfig(index=str(index))).search(["ocean"], n=1)[0]
    assert list(tmp_path.iterdir()) == [index]


def test_many_builds_at_once_leave_one_whole_index_and_nothing_else(tmp_path: Path) -> None:
    corpus, index = tmp_path / "corpus.jsonl", tmp_path / "index"
    corpus.write_text('{"id": "a", "contents": "one text"}\n')

    def one(_: int) -> str:
        try:
            return str(build(corpus, index)["fingerprint"])
        except LeaseHeld:
            return "held"

    with ThreadPoolExecutor(4) as pool:
        ended = set(pool.map(one, range(4)))
    fingerprint = str(read_manifest(str(index), "bm25")["fingerprint"])
    assert fingerprint in ended and ended <= {fingerprint, "held"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus.jsonl", "index"]


def test_a_bad_corpus_leaves_no_index_behind(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text('{"id": "a", "contents": "text"}\n{"id": "a", "contents": "again"}\n')
    with pytest.raises(InputError, match=r"corpus.jsonl:2: id 'a' stands already in line 1"):
        build(corpus, tmp_path / "index")
    assert [path.name for path in tmp_path.iterdir()] == ["corpus.jsonl"]


def test_an_empty_corpus_is_refused(tmp_path: Path) -> None:
    (tmp_path / "corpus.jsonl").write_text("\n")
    with pytest.raises(InputError, match="holds no passage"):
        build(tmp_path / "corpus.jsonl", tmp_path / "index")


def test_a_manifest_that_is_not_json_is_named(tmp_path: Path) -> None:
    (tmp_path / "winnow.json").write_text("{")
    with pytest.raises(ModelNotFound, match="winnow.json: not a manifest"):
        read_manifest(str(tmp_path))


def test_an_index_that_was_rebuilt_from_another_corpus_is_not_searched(tmp_path: Path) -> None:
    cfg = RetrieverConfig(index=str(tmp_path / "index"))
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text('{"id": "a", "contents": "one text"}\n')
    build(corpus, tmp_path / "index")
    planned = retrieve.stage(cfg)
    corpus.write_text('{"id": "a", "contents": "another text"}\n')
    build(corpus, tmp_path / "index")
    whole = OfflineIgpConfig(
        input=InputConfig(questions="q.jsonl"),
        retriever=cfg,
        generator=GeneratorConfig(engine="fake", model="fake"),
        probe=ProbeConfig(template="literal", top_k=8, max_tokens=4),
        selection=SelectionConfig(threshold=0, top_m=1, empty_context="frame"),
    )
    with pytest.raises(ModelNotFound, match="the index changed while the run was under way"):
        planned.build(Engines(whole))


def test_a_missing_index_is_named_with_the_way_to_build_it(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"no index there; build one with jobs/build_index.py"):
        read_manifest(str(tmp_path / "none"))


def test_a_folder_that_holds_something_else_is_left_alone(tmp_path: Path) -> None:
    corpus, target = tmp_path / "corpus.jsonl", tmp_path / "mine"
    corpus.write_text('{"id": "a", "contents": "text"}\n')
    target.mkdir()
    (target / "keep.txt").write_text("keep")
    with pytest.raises(InputError, match="something else is there"):
        build(corpus, target)
    assert (target / "keep.txt").read_text() == "keep"
