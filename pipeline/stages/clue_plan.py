"""Clue plan: the stages that a run's policies of selector clues need, each once."""

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.config import OfflineIgpConfig, SelectionConfig
from pipeline.config.clues import EXTRACTOR, TRUNCATOR
from pipeline.engines import clue_models, scorer_models
from pipeline.loading import ConfigError
from pipeline.stages import (
    clues,
    extract_clues,
    probe_clues,
    score_sentences,
    split_sentences,
    truncate_clues,
)
from pipeline.stages.stage import Stage


def first(cfg: OfflineIgpConfig, policies: Sequence[SelectionConfig]) -> list[Stage]:
    """The sentences and their cosines, which no language model is asked for.

    ConfigError where the reranker has no model.
    """
    asked = [policy for policy in policies if policy.selector == "clues"]
    if not asked:
        return []
    made = [split_sentences.stage(cfg.clues)]
    if any(policy.rerank == "cosine" for policy in asked):
        own = cfg.clues.reranker
        section = scorer_models.BI_ENCODER if own is None else clue_models.RERANKER
        model = own or cfg.scorers.bi_encoder
        if model is None:
            raise ConfigError(
                "clues.reranker: missing, and scorers.bi_encoder too; an arm of selector clues "
                "with rerank cosine needs one of them"
            )
        made.append(score_sentences.stage(model, section=section))
    return made


def asked(
    cfg: OfflineIgpConfig, policies: Sequence[SelectionConfig], generator: Mapping[str, Any]
) -> list[Stage]:
    """The extractor, the gains and the truncators; `generator` is as for stages.probe.

    ModelNotFound where a model cannot be asked.
    """
    needed = {name for policy in policies for name in clues.stages(policy)}
    made = []
    if clues.EXTRACT in needed:
        model = clue_models.describe(cfg.clues.extractor, cfg.generator, section=EXTRACTOR)
        made.append(extract_clues.stage(cfg.clues, model))
    for of in clues.LISTS:
        if clues.probe_stage(of) in needed:
            made.append(probe_clues.stage(cfg.probe, generator, of=of))
    cuts = dict.fromkeys(
        clues.ordered(policy)
        for policy in policies
        if policy.selector == "clues" and policy.truncate == "model"
    )
    if cuts:
        model = clue_models.describe(cfg.clues.truncator, cfg.generator, section=TRUNCATOR)
        made += [truncate_clues.stage(cfg.clues, model, own=own) for own in cuts]
    return made
