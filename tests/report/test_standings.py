"""Tests of pipeline.report.standings: honest picks by hand, and rows that are their arms'."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.config import ArmsConfig, GridEntry, SelectionConfig
from pipeline.config.answer import Task
from pipeline.report import answer, evaluation, measured, sections, standings
from pipeline.report.finished import Finished
from pipeline.report.measured import FIELDS, Measured
from pipeline.report.standings import Standing
from pipeline.report.task_scores import TaskScores
from pipeline.runs.storage import Storage
from pipeline.stages.arms import Arm, grid_arms, main_arms
from pipeline.stages.evaluate_task import SCORE
from tests.report import recount
from tests.report import rows as made
from tests.report.recount import average_interval, column, interval, mean, minus, same
from tests.report.runs import SAMPLES, SEED, rows_of

HOW = {"seed": SEED, "samples": SAMPLES}
GRID = ArmsConfig(
    top_m=(1,),
    empty_context="frame",
    oracle=False,
    grid=(GridEntry(selector="coverage", thresholds=(0.1, 0.2)),),
)
ARMS = grid_arms(GRID)
NAMES = tuple(arm.name for arm in ARMS)
PLAIN, LOW, HIGH = "retriever M1", "coverage 0.1 M1", "coverage 0.2 M1"
UNLABELLED = {name: [np.nan] * 5 for name in (PLAIN, LOW, HIGH)}


def found(
    f1: Mapping[str, Sequence[float]], *, arms: Sequence[Arm] = ARMS, questions: int = 5
) -> Measured:
    """Questions of some arms; F1 by arm, 0 where none is given. Tokens are 10 an arm."""
    names = tuple(arm.name for arm in arms)
    values: dict[str, Any] = {field: np.zeros((len(names), questions)) for field in FIELDS}
    for place, name in enumerate(names):
        values["f1"][place] = f1.get(name, [0.0] * questions)
        values["prompt_tokens"][place] = 10.0 * (place + 1)
    tokens = {name: np.full(questions, 7.0) for name in ("score_coverage", "rank_adarank")}
    return Measured(names, values, tokens, None, None, np.full(questions, np.nan), 0, {})


def ways(measures: Measured, arms: Sequence[Arm] = ARMS) -> dict[standings.Key, Standing]:
    """The rows of measures whose every question is a fold, up to the fifth."""
    fold_Q = np.arange(measures.questions) % standings.FOLDS
    return standings.standings(made.plain(arms), measures, fold_Q)


def row(ranked: pl.DataFrame, **key: Any) -> dict[str, Any]:
    """The one row with these values."""
    (made_,) = ranked.filter(*[pl.col(name) == value for name, value in key.items()]).to_dicts()
    return made_


def test_a_question_has_no_say_in_the_setting_that_answers_it() -> None:
    # Tp .1 is right on the first question alone and Tp .2 on the second: on the other folds the
    # first question sees Tp .2 ahead, the second Tp .1, and both are answered wrongly. The rest see
    # a tie, which the cheaper Tp .1 wins. The best setting on the same questions has F1 .2.
    measures = found({LOW: [1.0, 0, 0, 0, 0], HIGH: [0, 1.0, 0, 0, 0]})
    own = ways(measures)["coverage", "pruning", 1, None]
    assert own.values["score"].tolist() == [0.0] * 5
    assert own.picked == {"Tp 0.2": 1, "Tp 0.1": 4}
    assert own.settings == 2
    cheap, dear = (10.0 * (NAMES.index(f"coverage {tp} M1") + 1) for tp in (0.1, 0.2))
    assert own.values["tk"].tolist() == [dear, *[cheap] * 4]


def test_a_setting_that_is_always_better_is_always_taken() -> None:
    measures = found({HIGH: [1.0] * 5, PLAIN: [0.5] * 5})
    ranked = standings.frame({"d": ways(measures)}, **HOW)
    first, second = ranked.to_dicts()
    assert (first["selector"], first["selection"], first["picked"]) == (
        *("coverage", "pruning"),
        "Tp 0.2 (5 of 5 folds)",
    )
    assert (first["score"], first["difference"], first["minus_same_size"]) == (1.0, 0.5, 1.0)
    assert first["selection_tokens"] == 7.0
    assert first["minus_first"] is None and second["minus_first"] == -0.5
    assert second["difference"] is None and second["minus_same_size"] is None
    assert (first["place"], second["place"]) == (1, 2)


@given(texts=st.lists(st.sampled_from("abcdefgh"), max_size=20), seed=st.integers(0, 9))
def test_equal_questions_share_a_fold_whatever_the_order(texts: list[str], seed: int) -> None:
    folds = standings.folds(texts, seed=seed).tolist()
    by_text = dict(zip(texts, folds, strict=True))
    assert [by_text[text] for text in texts] == folds
    backwards = standings.folds(texts[::-1], seed=seed).tolist()
    assert backwards == folds[::-1]
    sizes = [list(by_text.values()).count(fold) for fold in range(standings.FOLDS)]
    assert max(sizes) - min(sizes) <= 1


def test_another_seed_deals_other_folds() -> None:
    texts = [str(i) for i in range(20)]
    assert standings.folds(texts, seed=1).tolist() != standings.folds(texts, seed=2).tolist()


def test_a_repeated_question_has_no_say_in_its_own_setting() -> None:
    # The question that stands three times is right under Tp .2 alone, another under Tp .1 alone,
    # the last under neither. Copies in other folds would vote for Tp .2 among each other.
    measures = found({LOW: [0, 1.0, 0, 0, 0], HIGH: [1.0, 0, 1.0, 0, 1.0]})
    fold_Q = standings.folds(["same", "b", "same", "d", "same"], seed=SEED)
    own = standings.standings(made.plain(ARMS), measures, fold_Q)["coverage", "pruning", 1, None]
    assert own.values["score"].tolist() == [0.0] * 5
    assert own.picked == {"Tp 0.1": 1, "Tp 0.2": 2}


@pytest.mark.parametrize(
    "f1",
    [
        ([1.0], [0.5]),
        ([0.25, 1.0, 0.0], [0.5, 0.5, 0.5]),
        ([0.0, 0.5, 1.0, 0.25], [1.0, 0.0, 0.75, 0.25]),
        ([np.nan, 0.5, 1.0, 0.0, 0.5, np.nan, 1.0], [np.nan, 1.0, 0.0, 0.5, 0.5, np.nan, 0.0]),
        ([np.nan, np.nan, 0.75], [np.nan, np.nan, 0.5]),
    ],
)
def test_few_questions_and_folds_without_golden_answers_are_fitted_as_told(
    f1: tuple[list[float], list[float]],
) -> None:
    size = len(f1[0])
    retriever = [np.nan if np.isnan(value) else 0.0 for value in f1[0]]
    own_f1 = dict(zip((PLAIN, LOW, HIGH), (retriever, *f1), strict=True))
    measures = found(own_f1, questions=size)
    own = ways(measures)["coverage", "pruning", 1, None]
    tokens = [[10.0 * (1 + NAMES.index(f"coverage {tp} M1"))] * size for tp in (0.1, 0.2)]
    fold = [i % 5 for i in range(size)]
    picked = recount.cross_fitted(f1, tokens, fold)
    expected = [f1[setting][i] for i, setting in enumerate(picked)]
    assert own.values["score"].tolist() == pytest.approx(expected, nan_ok=True)
    assert own.values["tk"].tolist() == [tokens[s][i] for i, s in enumerate(picked)]
    by_fold = dict(zip(fold, picked, strict=True))
    told = {"Tp 0.1": 0, "Tp 0.2": 1}
    counts = {name: [*by_fold.values()].count(setting) for name, setting in told.items()}
    assert own.picked == {name: folds for name, folds in counts.items() if folds}


def test_without_golden_answers_nothing_is_ranked() -> None:
    ranked = standings.frame({"d": ways(found(UNLABELLED))}, **HOW)
    assert ranked.is_empty() and ranked.columns == list(standings.SCHEMA)
    assert standings.lead(ranked).is_empty()


@pytest.mark.parametrize("place", [0, 1, 2])
def test_the_average_is_over_the_data_sets_with_golden_answers_and_the_others_are_named(
    place: int,
) -> None:
    sets = [("a", found({PLAIN: [0.5] * 5})), ("b", found({PLAIN: [1.0] * 5}))]
    sets.insert(place, ("log", found(UNLABELLED)))
    rows = {name: ways(measures) for name, measures in sets}
    ranked = standings.frame(rows, **HOW)
    assert ranked["dataset"].unique(maintain_order=True).to_list() == ["a", "b", "Avg."]
    own = row(standings.lead(ranked), selector="retriever")
    assert (own["dataset"], own["score"], own["score_n"]) == ("Avg.", 0.75, 10)
    lead, others = sections.of_answer(ranked, list(rows))
    assert lead.dataset == "average over a, b"
    assert lead.sentences[-1].endswith("golden answers or a task's score: log.")
    assert [sheet.name for sheet in others.sheets] == ["ranking-a", "ranking-b"]
    assert sections.said(ranked, "log") == [answer.NOTHING]


def test_one_data_set_with_golden_answers_answers_by_its_name() -> None:
    rows = {"log": ways(found(UNLABELLED)), "a": ways(found({PLAIN: [0.5] * 5}))}
    ranked = standings.frame(rows, **HOW)
    lead, others = sections.of_answer(ranked, list(rows))
    assert (lead.dataset, others.sheets) == ("a", [])
    assert lead.sentences[-1].endswith("golden answers or a task's score: log.")


def arms_of(*grid: GridEntry) -> tuple[Arm, ...]:
    """The arms of a grid at M = 1."""
    return grid_arms(ArmsConfig(top_m=(1,), empty_context="frame", oracle=False, grid=grid))


def test_a_labelled_entry_is_a_way_of_its_own() -> None:
    arms = arms_of(
        GridEntry(selector="adarank"),
        GridEntry(selector="adarank", label="adarank-top1", empty_context="top1"),
        GridEntry(selector="adarank", label="twin"),
    )
    measures = found({"adarank-top1 M1": [1.0] * 5}, arms=arms)
    ranked = standings.frame({"d": ways(measures, arms)}, **HOW)
    # The twin has the policy of adarank itself: it is no other way of choosing.
    assert ranked["selector"].to_list() == ["adarank-top1", "retriever", "adarank"]
    assert ranked["settings"].to_list() == [1, 1, 1] and ranked["picked"].to_list() == [None] * 3


@pytest.mark.parametrize(
    ("entry", "way"),
    [
        ({"selector": "coverage", "order_by": "adarank"}, "coverage, order_by adarank"),
        ({"selector": "coverage", "veto": "adarank"}, "coverage, veto adarank"),
        ({"selector": "clues", "truncate": "random"}, "clues, random cut"),
        ({"selector": "clues", "truncate": "random", "label": "cut"}, "cut"),
    ],
)
def test_a_combination_or_a_random_cut_never_stands_for_the_selector(
    entry: dict[str, Any], way: str
) -> None:
    arms = made.plain(arms_of(GridEntry.model_validate({**entry, "thresholds": (0.1,)})))
    assert (way, "pruning", 1, None) in standings.groups(arms)


def task_of(task: Task, own: Mapping[str, Sequence[float]]) -> TaskScores:
    """The task's score of some arms, 0 of the others."""
    values = np.array([own.get(name, [0.0] * 5) for name in NAMES])
    return TaskScores(task, "judge", NAMES, {SCORE[task]: values})


def test_a_task_is_ranked_by_its_own_score_and_an_average_names_those_of_its_sets() -> None:
    measures = found({HIGH: [1.0] * 5})  # by F1 the second Tp, of which the task knows nothing
    fold_Q = np.arange(5)
    asqa = task_of("asqa", {PLAIN: [0.75] * 5, LOW: [0.5] * 5})
    eli5 = task_of("eli5", {LOW: [1.0] * 5})
    plain = made.plain(ARMS)
    rows = {
        "asqa": standings.standings(plain, measures, fold_Q, asqa),
        "eli5": standings.standings(plain, found(UNLABELLED), fold_Q, eli5),
    }
    ranked = standings.frame(rows, **HOW)
    first, second = ranked.filter(pl.col("dataset") == "asqa").to_dicts()
    assert (first["selector"], first["score"], first["metric"]) == ("retriever", 0.75, "str_em")
    assert (second["picked"], second["difference"]) == ("Tp 0.1 (5 of 5 folds)", -0.25)
    lead, _ = sections.of_answer(ranked, list(rows))
    assert lead.dataset == "average over the data sets"
    assert "coverage (pruning) at M = 1 has the highest score: 0.750" in lead.sentences[0]
    assert lead.sentences[1] == (
        "The score of each data set is its own: str_em on asqa, claim_recall[judge] on eli5."
    )
    assert answer.sentences(ranked.filter(pl.col("dataset") == "asqa"))[0].startswith(
        "Of 2 ways, retrieval order at M = 1 has the highest str_em: 0.750"
    )


@pytest.mark.parametrize(("malformed", "warned"), [(0.6, True), (0.1, False), (None, False)])
def test_a_first_way_that_rests_on_malformed_replies_is_doubted(
    malformed: float | None, warned: bool
) -> None:
    arms = arms_of(GridEntry(selector="adarank"))
    measures = found({"adarank M1": [1.0] * 5}, arms=arms)
    ranked = standings.frame({"d": ways(measures, arms)}, **HOW)
    replies = {"adarank": {"malformed": malformed}, "listwise": {"malformed": 1.0}}
    run = Finished(
        "d", Storage("/nowhere"), {"arms": made.plain(arms)}, {"listwise": replies}, (), ()
    )
    told = standings.doubts(ranked, [run])
    share = "malformed were 60% of the replies of adarank on d. In their place stands"
    assert [share in one for one in told] == [True] * warned
    assert standings.doubts(ranked.filter(pl.col("selector") == "retriever"), [run]) == []


def test_a_variant_of_retrieval_order_has_a_row_by_its_label() -> None:
    arms = arms_of(
        GridEntry(selector="retriever", label="dedup", duplicate_penalty=0.5),
        GridEntry(selector="retriever", label="twin"),
    )
    measures = found({PLAIN: [0.25] * 5, "dedup M1": [1.0] * 5}, arms=arms)
    ranked = standings.frame({"d": ways(measures, arms)}, **HOW)
    # The twin has the policy of retrieval order itself: it is no other way of choosing.
    assert ranked["selector"].to_list() == ["retriever dedup", "retriever"]
    assert ranked["settings"].to_list() == [1, 1]
    first, second = ranked.to_dicts()
    assert (first["difference"], first["picked"]) == (0.75, "dedup")
    assert second["difference"] is None


def test_the_main_job_s_top_1_is_retrieval_order_at_another_budget() -> None:
    policy = SelectionConfig(threshold=0.0, top_m=3, empty_context="frame", selector="coverage")
    arms = main_arms(policy)
    ranked = standings.frame({"d": ways(found({}, arms=arms), arms)}, **HOW)
    compared = {(r["selector"], r["top_m"]): r["difference"] for r in ranked.to_dicts()}
    assert compared == {("coverage", 3): 0.0, ("retriever", 3): None, ("retriever", 1): None}


@pytest.fixture(scope="module")
def ranked(runs: list[Finished]) -> pl.DataFrame:
    """The ranking of both runs."""
    rows = {}
    for run in runs:
        fold_Q = standings.folds(list(run.questions().values()), seed=SEED)
        rows[run.dataset] = standings.standings(run.arms, measured.of_run(run), fold_Q)
    return standings.frame(rows, **HOW)


def test_a_row_of_one_setting_has_the_numbers_of_its_arm(
    runs: list[Finished], ranked: pl.DataFrame
) -> None:
    arms = {(a["dataset"], a["arm"]): a for a in evaluation.arms(runs).to_dicts()}
    shared = [
        f"{mean}{suffix}" for mean in ("f1", "difference") for suffix in ("", "_low", "_high")
    ]
    for dataset in ("plain", "pool"):
        for selector in ("qlm", "coverage"):
            own = row(ranked, dataset=dataset, selector=selector, top_m=3)
            arm = arms[dataset, f"{selector} M3"]
            assert own["picked"] is None and own["metric"] == "F1"
            assert [own[name.replace("f1", "score")] for name in shared] == [
                arm[name] for name in shared
            ]
            assert same(own["tk"], arm["tk"]) and same(
                own["selection_tokens"], arm["selection_tokens"]
            )


def test_every_selector_and_budget_has_a_row_and_replays_have_none(ranked: pl.DataFrame) -> None:
    rank = [(selector, "ranking") for selector in ("retriever", "ig", "coverage", "qlm")]
    expected = {(*way, m) for way in [*rank, ("ig", "pruning")] for m in (1, 3)}
    for dataset in ("plain", "pool", "Avg."):
        own = ranked.filter(pl.col("dataset") == dataset)
        assert set(own.select("selector", "selection", "top_m").iter_rows()) == expected
        assert len(own) == len(expected)
        assert own["score"].to_list() == sorted(own["score"], reverse=True)
    assert set(ranked["settings"]) == {1, 3}  # three Tp of IG, its replays of K and MT left out


@pytest.mark.parametrize("top_m", [1, 3])
def test_a_row_of_several_settings_is_that_of_the_rows_recounted(
    folders: dict[str, str], ranked: pl.DataFrame, top_m: int
) -> None:
    names = [f"ig {tp} M{top_m}" for tp in ("-0.05", "0", "0.1")]
    for dataset, folder in folders.items():
        rows = rows_of(folder)
        f1 = [column(rows, name, "f1") for name in names]
        tokens = [column(rows, name, "prompt_tokens") for name in names]
        fold = recount.folds([one["question"] for one in rows], 5)
        picked = recount.cross_fitted(f1, tokens, fold)

        def taken(values: Sequence[Sequence[float]], picked: list[int] = picked) -> list[float]:
            return [values[setting][i] for i, setting in enumerate(picked)]

        own = row(ranked, dataset=dataset, selector="ig", selection="pruning", top_m=top_m)
        against = {"score": f1, "difference": f1, "minus_same_size": f1, "minus_random": f1}
        plain = column(rows, f"retriever M{top_m}", "f1")
        against["difference"] = [minus(values, plain) for values in f1]
        for suffix, key in (("[retriever]", "minus_same_size"), ("[random]", "minus_random")):
            copies = [column(rows, f"{name} {suffix}", "f1") for name in names]
            against[key] = [minus(a, b) for a, b in zip(f1, copies, strict=True)]
        for key, values in against.items():
            low, high = interval(taken(values))
            assert same(own[key], mean(taken(values)))
            assert same(own[f"{key}_low"], low) and same(own[f"{key}_high"], high)
        assert same(own["tk"], mean(taken(tokens)))
        by_fold = dict(zip(fold, picked, strict=True))
        counts = [[*by_fold.values()].count(setting) for setting in range(3)]
        of_tp = zip(("-0.05", "0", "0.1"), counts, strict=True)
        told = [f"Tp {tp} ({n} of 5 folds)" for tp, n in of_tp if n]
        assert sorted(own["picked"].split(", ")) == sorted(told)


def test_the_average_row_is_that_of_the_data_sets_rows(
    folders: dict[str, str], ranked: pl.DataFrame
) -> None:
    own = row(standings.lead(ranked), selector="qlm", top_m=1)
    sets = [column(rows_of(folder), "qlm M1", "f1") for folder in folders.values()]
    low, high = average_interval(sets)
    assert same(own["score_low"], low) and same(own["score_high"], high)
    each = [row(ranked, dataset=d, selector="qlm", top_m=1) for d in ("plain", "pool")]
    assert same(own["score"], sum(one["score"] for one in each) / 2)
    assert same(own["tk"], sum(one["tk"] for one in each) / 2)
