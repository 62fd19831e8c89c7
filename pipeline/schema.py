"""Every column of the row: its name, Arrow type, unit, and the stage that writes it.

One row is one question. Candidates are nested, so a block always holds whole questions and
no stage needs a shuffle. Positions count from 0 in retrieval order; ranks count from 1.
In the lists of `probes` named below as (N+1), entry 0 is the rollout without evidence and
entry 1 + i the rollout with candidate i.
"""

import pyarrow as pa

SHARD = pa.field("shard", pa.int64())
DEAD = pa.field(
    "dead", pa.struct([pa.field("stage", pa.string()), pa.field("reason", pa.string())])
)
"""Why a row left the run, null while it is alive. Written by the stage runner alone."""

CANDIDATE = pa.struct(
    [
        pa.field("passage_id", pa.string()),
        pa.field("title", pa.string()),
        pa.field("text", pa.string()),
        pa.field("score", pa.float32()),
    ]
)
CANDIDATES = pa.field("candidates", pa.list_(CANDIDATE))
POOL = pa.field("pool", pa.list_(CANDIDATE))  # given, to be ranked; not in a run's finished rows

SOURCE = pa.schema(
    [
        pa.field("question_id", pa.string()),
        pa.field("question", pa.string()),
        pa.field("golden_answers", pa.list_(pa.string())),
        pa.field("metadata", pa.string()),  # JSON object
    ]
)

JUDGEMENT = pa.struct(
    [
        pa.field("passage_id", pa.string()),
        pa.field("relevance", pa.int32()),  # grade of the qrels; null = not judged there
        pa.field("label", pa.string()),  # of a labelled pool, such as "correct" or "misinfo"
        pa.field("answer", pa.string()),  # the answer that the passage supports, where labelled
    ]
)
JUDGEMENTS = pa.field("judgements", pa.list_(JUDGEMENT))  # null: the data set has none

PROBE = pa.struct(
    [
        pa.field("keys", pa.list_(pa.string())),  # (N+1) of each prompt: equal keys, equal prompts
        pa.field("nu0", pa.float32()),  # NU(q), in [0, 1]
        pa.field("nu", pa.list_(pa.float32())),  # NU(q | d) by position; null = not measured
        pa.field("steps", pa.list_(pa.int32())),  # (N+1) tokens, the end token included
        pa.field("prompt_tokens", pa.list_(pa.int32())),  # (N+1)
        pa.field("answers", pa.list_(pa.string())),  # (N+1) the rollouts' own texts
        pa.field("u", pa.list_(pa.list_(pa.float32()))),  # (N+1) u_t by step, in [0, 1]
        pa.field("margins", pa.list_(pa.list_(pa.float32()))),  # (N+1) top-1 minus top-2 logit
        pa.field("trace", pa.list_(pa.list_(pa.list_(pa.float32())))),  # (N+1) u by TRACE_KS, step
        pa.field("free_rule", pa.bool_()),  # NU(q) below a limit: conditional rollouts not run
    ]
)
PROBES = pa.field("probes", PROBE)
GAINS = pa.field("gains", pa.list_(pa.float32()))  # IG by position; null = not measured
EARLY_STOPPED = pa.field("early_stopped", pa.list_(pa.bool_()))
"""By position, where probe.early_stop_threshold is set: whether the rollout was ended because its
gain cannot reach the threshold. `nu` and `gains` are null there, for the sum of its `u` over MT is
a lower bound of NU(q | d) and no value."""

QLM_PRIOR = pa.field("qlm_prior", pa.float32())  # log p(question) without a passage, in nats
QLM_TOKENS = pa.field("qlm_tokens", pa.int32())  # tokens of the question in these sums


def score(scorer: str) -> pa.Field:
    """A scorer's column: by position, higher is better; null = not measured."""
    return pa.field(f"score_{scorer}", pa.list_(pa.float32()))


def score_tokens(stage: str) -> pa.Field:
    """Model tokens that the stage score_<stage> read for the row; 0 without a model."""
    return pa.field(f"score_tokens_{stage}", pa.int32())


SCORE_STAGES = {
    "coverage": ("coverage",),
    "bi_encoder": ("bi_encoder",),
    "cross_encoder": ("cross_encoder",),
    "qlm": ("qlm", "qlm_gain"),
    "yes_no": ("yes_no",),
    "answer_pmi": ("answer_pmi", "answer_prior"),
}
"""The scorers that each stage score_<name> measures."""

SET_ROUNDS = pa.struct(
    [
        pa.field("key", pa.string()),  # of question, passages and probes: equal keys, equal rounds
        pa.field("positions", pa.list_(pa.int32())),  # the best of each round
        pa.field("gains", pa.list_(pa.float32())),  # NU(q | S) - NU(q | S + d) of each round
        pa.field("rollouts", pa.list_(pa.int32())),  # of each round beyond the probes; first: 0
        pa.field("tokens", pa.list_(pa.int32())),  # of these rollouts, prompt and generated
    ]
)
"""The lists have an entry a round, one that admitted nothing included: it is the last, and its
gain is below the threshold of the stage."""
SETS = pa.field("sets", SET_ROUNDS)

REPAIRS = (
    *("thinking", "prose", "bare", "grouped", "digits", "unread", "truncated"),
    *("out_of_range", "zeros", "after_zero", "duplicates", "missing"),
)
"""The kinds of core.replies.REPAIRS, which a test holds equal."""
RANKING = pa.struct(
    [
        pa.field("positions", pa.list_(pa.int32())),  # kept, best first; empty: none helps
        pa.field("calls", pa.int32()),  # one a window; 0 without candidates
        pa.field("retries", pa.int32()),  # calls asked again, the first reply being malformed
        pa.field("malformed", pa.int32()),  # calls given up: their windows kept in the given order
        pa.field("tokens", pa.int32()),  # read and written by all requests, equal ones once
        pa.field("replies", pa.list_(pa.string())),  # in the order asked, those given up included
        pa.field("repairs", pa.struct([pa.field(kind, pa.int32()) for kind in REPAIRS])),
    ]
)
"""A listwise order. The repairs are those of the replies that were taken."""


def ranking(selector: str) -> pa.Field:
    """The column of a listwise selector."""
    return pa.field(f"ranking_{selector}", RANKING)


SENTENCE = pa.struct({"position": pa.int32(), "sentence": pa.int32(), "text": pa.string()})
"""One of the passage at `position`, counted from 0 within it."""
SENTENCES = pa.field("sentences", pa.list_(SENTENCE))  # of the first passages, in their order
SENTENCE_SCORES = pa.field("sentence_scores", pa.list_(pa.float32()))
"""Cosine of each sentence and the question."""

CLUE_REPAIRS = (*REPAIRS, "misnumbered", "snapped")
"""The kinds of core.clues.REPAIRS, which a test holds equal."""
_INT, _INTS = pa.int32(), pa.list_(pa.int32())
_ASKED = {  # as in RANKING
    **dict.fromkeys(("calls", "retries", "malformed", "tokens"), _INT),
    "replies": pa.list_(pa.string()),
    "repairs": pa.struct(dict.fromkeys(CLUE_REPAIRS, _INT)),
}
CLUES = pa.field("clues", pa.struct({"named": _INTS, "lines": _INT, "unfaithful": _INT, **_ASKED}))
"""What an extractor names: places in `sentences`, as replied, every one where it is malformed. Of
the last reply: `lines` that give a text, and those `unfaithful`, being no source sentence."""
CUT = pa.struct({"keep": _INT, **_ASKED})
"""How many of the ordered sentences a truncator keeps; malformed: all."""
SENTENCE_GAINS = pa.struct([*PROBE, ("gains", pa.list_(pa.float32())), ("tokens", _INT)])
"""The rollouts and IG in the order of the list that was probed; their tokens, prompt and
generated."""
CLUE_LISTS = ("clues", "sentences")
"""What can be ranked and cut: the sentences that the extractor named, or all."""


def cut(of: str, by: str) -> pa.Field:
    """The column of a truncator over the list `of` CLUE_LISTS in the order `by`."""
    return pa.field(f"cut_{of}_{by}", CUT)


def sentence_gains(of: str) -> pa.Field:
    """The column of the gains of a list of CLUE_LISTS."""
    return pa.field(f"gains_{of}", SENTENCE_GAINS)


EVIDENCE = pa.struct(
    [
        pa.field("position", pa.int32()),
        pa.field("text", pa.string()),  # null: the candidate's own text; else a sentence of it
        pa.field("tokens", pa.int32()),  # of the text by the generator's tokenizer
    ]
)
ARM = pa.struct(
    [
        pa.field("arm", pa.string()),
        pa.field("evidence", pa.list_(EVIDENCE)),  # in prompt order
        pa.field("admitted", pa.int32()),  # passages before the empty-context rule
        pa.field("order", pa.list_(pa.int32())),  # all candidates by the selector; null: unknown
        pa.field("frame", pa.string()),  # "documents", "closed_book" or "abstain"
        pa.field("certain", pa.bool_()),  # NU(q) is below nu0_limit: handed over by the first probe
        pa.field("prompt_id", pa.string()),  # null: the arm abstains
    ]
)
ARMS = pa.field("arms", pa.list_(ARM))
CANDIDATE_TOKENS = pa.field("candidate_tokens", pa.list_(pa.int32()))
"""Of every candidate as prompts show it, by the generator's tokenizer."""

CONTEXT = pa.field(
    "context",
    pa.struct(
        [
            pa.field("text", pa.string()),  # "[DOC i]" lines; empty: no evidence
            pa.field("tokens", pa.int32()),  # of the text by the generator's tokenizer
            pa.field("passage_ids", pa.list_(pa.string())),  # in the order of the text
            pa.field("gains", pa.list_(pa.float32())),  # IG of each; null = not measured
            pa.field("passage_tokens", pa.list_(pa.int32())),  # of each, as EVIDENCE has them
            pa.field("admitted", pa.int32()),  # passages before the empty-context rule
            pa.field("frame", pa.string()),  # the prompt for it, as ARM has it
            pa.field("policy", pa.string()),  # fingerprint of what chose among the candidates
        ]
    ),
)
"""What a run without answers ends in: the evidence of its policy."""

ANSWER = pa.struct(
    [
        pa.field("prompt_id", pa.string()),
        pa.field("text", pa.string()),
        pa.field("prompt_tokens", pa.int32()),
        pa.field("answer_tokens", pa.int32()),
        pa.field("finish_reason", pa.string()),  # "stop" or "length"
    ]
)
ANSWERS = pa.field("answers", pa.list_(ANSWER))

METRIC = pa.struct(
    [
        pa.field("arm", pa.string()),
        pa.field("f1", pa.float64()),  # NaN = undefined
        pa.field("em", pa.float64()),
        pa.field("sub_em", pa.float64()),
        pa.field("prompt_tokens", pa.int32()),  # of the final prompt; 0 when the arm abstains
        pa.field("answer_tokens", pa.int32()),
        pa.field("evidence_size", pa.int32()),
        pa.field("admitted", pa.int32()),  # 0: the empty-context rule decided the prompt
        pa.field("certain", pa.bool_()),  # of the arm: its gate needed the first rollout alone
        pa.field("refusal", pa.bool_()),
        pa.field("wrong", pa.bool_()),  # a labelled wrong answer; null: none is labelled
        pa.field("ndcg", pa.float64()),  # NDCG@5 of `order`, ideal over all judged passages
        pa.field("ndcg_candidates", pa.float64()),  # the same, ideal over the candidates alone
    ]
)
METRICS = pa.field("metrics", pa.list_(METRIC))
ENTAILMENT = pa.struct(
    [
        pa.field("key", pa.string()),  # of the cleaned answer and the claims
        pa.field("entailed", pa.list_(pa.bool_())),  # by claim
        pa.field("tokens", pa.int32()),  # read and written by the model of entailment
        pa.field("cut", pa.int32()),  # claims for which the answer was shortened to its window
        pa.field("unread", pa.int32()),  # claims to which it said neither yes nor no
    ]
)
ENTAILMENTS = pa.field("entailments", pa.list_(ENTAILMENT))  # one a distinct answer to ELI5

TASK_SCORES = {
    "asqa": ("str_em", "str_em_hit"),
    "qampari": (
        *("precision_alce", "recall_alce", "f1_alce", "recall_5_alce"),
        *("precision_adarank", "recall_adarank", "f1_adarank", "recall_5_adarank"),
    ),
    "eli5": ("claim_recall",),
}
"""The metrics of each ALCE task, in [0, 1]; NaN = undefined."""


def task_metrics(task: str) -> pa.Field:
    """The column of an ALCE task's metrics: those of TASK_SCORES by arm, beside METRICS."""
    numbers = [pa.field(name, pa.float64()) for name in TASK_SCORES[task]]
    tokens = [pa.field(name, pa.int32()) for name in ("prompt_tokens", "context_tokens")]
    entry = pa.struct([pa.field("arm", pa.string()), *numbers, *tokens])
    return pa.field(f"metrics_{task}", pa.list_(entry))


REFUSED = pa.field("refused", pa.bool_())  # the rollout without evidence reads as a refusal
EMPTY_GOLDS = pa.field("empty_golds", pa.int32())  # golden answers that normalise to nothing

COLUMNS: dict[str, pa.Field] = {
    field.name: field
    for field in (
        *SOURCE,
        JUDGEMENTS,
        POOL,
        CANDIDATES,
        PROBES,
        GAINS,
        EARLY_STOPPED,
        *(score(scorer) for scorers in SCORE_STAGES.values() for scorer in scorers),
        *(score_tokens(stage) for stage in SCORE_STAGES),
        QLM_PRIOR,
        QLM_TOKENS,
        SETS,
        *map(ranking, ("adarank", "listwise")),
        SENTENCES,
        SENTENCE_SCORES,
        CLUES,
        *map(sentence_gains, CLUE_LISTS),
        *(cut(of, by) for of in CLUE_LISTS for by in ("cosine", "ig", "none")),
        ARMS,
        CANDIDATE_TOKENS,
        CONTEXT,
        ANSWERS,
        METRICS,
        ENTAILMENTS,
        *map(task_metrics, TASK_SCORES),
        REFUSED,
        EMPTY_GOLDS,
    )
}
