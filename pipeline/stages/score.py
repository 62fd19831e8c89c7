"""Scorers: each gives every candidate one number, higher is better, and ends in its own stage.

A further scorer is one entry of SCORERS, one name in the config's ScorerName, and its column in
the schema.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, Protocol

import pyarrow as pa

from pipeline.config import GeneratorConfig, ProbeConfig, ScorersConfig
from pipeline.engines import scorer_models
from pipeline.engines.table import Engines
from pipeline.prompts import render
from pipeline.stages import score_coverage, score_encoders, score_likelihood
from pipeline.stages.score_counts import counts
from pipeline.stages.stage import Stage, Transform


class Root(Protocol):
    """The sections of a job's config that scorers depend on."""

    @property
    def generator(self) -> GeneratorConfig:
        """The model that scores likelihoods unless `scorers.likelihood` names another."""

    @property
    def probe(self) -> ProbeConfig:
        """How passages are written; answer_pmi: the prompts."""

    @property
    def scorers(self) -> ScorersConfig:
        """The scorers' own models."""


class Settings:
    """A job's config with the description of the scoring model, made once for all its stages."""

    def __init__(self, cfg: Root) -> None:
        self.generator, self.probe, self.scorers = cfg.generator, cfg.probe, cfg.scorers

    @cached_property
    def likelihood(self) -> dict[str, Any]:
        """For fingerprints; ModelNotFound."""
        return scorer_models.describe_likelihood(self.scorers.likelihood, self.generator)

    def need_chat(self, key: str) -> None:
        """ModelNotFound unless the scoring model has the chat template that `key` asks for."""
        scorer_models.check_chat(self.scorers.likelihood, self.generator, key=key)


def stages(cfg: Root, names: Iterable[str]) -> list[Stage]:
    """The stages that measure the named scorers, in plan order, each once.

    Those that ask the likelihood's model stand together, answer_pmi, which needs the probes, last.
    ValueError where a scorer is unknown or its model is not configured, ModelNotFound where the
    model is missing.
    """
    wanted = set(names)
    if unknown := sorted(wanted - SCORERS.keys()):
        raise ValueError(f"unknown scorer {unknown[0]!r}; allowed: {', '.join(SCORERS)}")
    settings = Settings(cfg)
    makers = dict.fromkeys(make for name, make in SCORERS.items() if name in wanted)
    return [make(settings) for make in makers]


def _coverage(settings: Settings) -> Stage:
    return score_coverage.stage(settings.probe.passage_format)


def _bi_encoder(settings: Settings) -> Stage:
    if settings.scorers.bi_encoder is None:
        raise ValueError("scorer 'bi_encoder' has no model: set scorers.bi_encoder.model")
    return score_encoders.bi_encoder(settings.scorers.bi_encoder)


def _cross_encoder(settings: Settings) -> Stage:
    if settings.scorers.cross_encoder is None:
        raise ValueError("scorer 'cross_encoder' has no model: set scorers.cross_encoder.model")
    passage_format = settings.probe.passage_format
    return score_encoders.cross_encoder(settings.scorers.cross_encoder, passage_format)


def _qlm(settings: Settings) -> Stage:
    passage_format = settings.probe.passage_format
    limit = settings.scorers.likelihood.max_passage_tokens

    def build(engines: Engines) -> Transform:
        return score_likelihood.Qlm(engines.likelihood, passage_format, max_passage_tokens=limit)

    asked = {"prompts": render.fingerprint(render.QLM_TEMPLATES), "max_passage_tokens": limit}
    return _likelihood("qlm", settings, build, score_likelihood.QLM, asked)


def _yes_no(settings: Settings) -> Stage:
    passage_format = settings.probe.passage_format
    template = settings.scorers.likelihood.yes_no_template
    if template == "chat":
        settings.need_chat("scorers.likelihood.yes_no_template")

    def build(engines: Engines) -> Transform:
        return score_likelihood.YesNo(engines.likelihood, passage_format, template=template)

    asked = {"prompts": render.fingerprint(render.YES_NO_TEMPLATES), "template": template}
    return _likelihood("yes_no", settings, build, score_likelihood.YES_NO, asked)


def _answer_pmi(settings: Settings) -> Stage:
    passage_format, template = settings.probe.passage_format, settings.probe.template
    if template == "chat":
        settings.need_chat("probe.template")

    def build(engines: Engines) -> Transform:
        return score_likelihood.AnswerPmi(engines.likelihood, passage_format, template=template)

    asked = {"prompts": render.fingerprint(render.PROBE_TEMPLATES), "template": template}
    return _likelihood(
        "answer_pmi", settings, build, score_likelihood.ANSWER_PMI, asked, needs=("probes",)
    )


def _likelihood(
    scorer: str,
    settings: Settings,
    build: Callable[[Engines], Transform],
    adds: pa.Schema,
    asked: Mapping[str, Any],
    *,
    needs: tuple[str, ...] = (),
) -> Stage:
    """A scorer that asks the language model; `asked` is what it asks, for the fingerprint."""
    return Stage(
        name=f"score_{scorer}",
        needs=("question", "candidates", *needs),
        adds=adds,
        depends_on={
            "model": settings.likelihood,
            "passage_format": settings.probe.passage_format,
            **asked,
        },
        build=build,
        pool="likelihood",
        durable=True,
        counts=counts(scorer),
    )


SCORERS: dict[str, Callable[[Settings], Stage]] = {
    "coverage": _coverage,
    "bi_encoder": _bi_encoder,
    "cross_encoder": _cross_encoder,
    "qlm": _qlm,
    "qlm_gain": _qlm,
    "yes_no": _yes_no,
    "answer_pmi": _answer_pmi,
    "answer_prior": _answer_pmi,
}
"""The stage that measures each scorer, in plan order."""
