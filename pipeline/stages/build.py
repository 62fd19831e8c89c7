"""Build: the stages of a run, in the order of the paper's figure 2, from its config.

What no arm needs is left out: without IG among the selectors there are no probes.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pipeline.config import Frozen, OfflineIgpConfig, SelectionConfig
from pipeline.core.blend import Blend, from_json, signals_of
from pipeline.engines import clue_models, models, ranker_models, scorer_models
from pipeline.loading import ConfigError
from pipeline.paths import locate
from pipeline.readers import InputError
from pipeline.runs.fingerprint import digest
from pipeline.stages import (
    answer,
    arms,
    clue_plan,
    entail,
    evaluate,
    evaluate_task,
    probe,
    probe_sets,
    rank_listwise,
    rank_pool,
    render_context,
    retrieve,
    score,
    select,
)
from pipeline.stages.arms import Arm
from pipeline.stages.stage import Stage

AFTER = frozenset({"answer_pmi", "answer_prior"})
"""Scorers that read the probes."""


def arms_of(cfg: OfflineIgpConfig) -> tuple[Arm, ...]:
    """The arms that a config asks for: a policy's or a grid's."""
    if cfg.arms is not None:
        made = arms.grid_arms(cfg.arms)
    elif cfg.selection is not None:
        made = (arms.main_arms if cfg.answered else arms.context_arms)(cfg.selection)
    else:
        raise ValueError("neither selection nor arms: the policy file was not read")
    signals = {path: signals_of(blend.features) for path, blend in _blends(made).items()}
    return tuple(
        replace(arm, blended=signals[arm.policy.blend])
        if arm.policy is not None and arm.policy.blend is not None
        else arm
        for arm in made
    )


def pin(cfg: OfflineIgpConfig) -> OfflineIgpConfig:
    """The config with its models' branches and tags replaced by the commits they name now."""
    generator = models.pin(cfg.generator, section="generator")
    scorers = scorer_models.pin(cfg.scorers, generator)
    listwise = ranker_models.pin(cfg.listwise)
    changes: dict[str, Frozen] = {"generator": generator, "scorers": scorers, "listwise": listwise}
    if cfg.answer.task == "eli5" and cfg.evaluation.nli is not None:
        judge = models.pin(cfg.evaluation.nli, section=entail.NLI)
        changes["evaluation"] = cfg.evaluation.model_copy(update={"nli": judge})
    return cfg.model_copy(update={**changes, "clues": clue_models.pin(cfg.clues)})


def stages(cfg: OfflineIgpConfig) -> list[Stage]:
    """The plan; ArmError, ConfigError, InputError or ModelNotFound where it cannot be made."""
    chosen = arms_of(cfg)
    policies = [arm.policy for arm in chosen if arm.policy is not None]
    wanted = arms.scorers(chosen) | set(cfg.scorers.also)
    signals = wanted.union(*(arm.blended for arm in chosen))
    probed = any(policy.probed for policy in policies) or not arms.PROBED.isdisjoint(signals)
    rolled_out = probed or any(policy.probes_clues for policy in policies)
    templates = [cfg.answer.template] * cfg.answered + [cfg.probe.template] * rolled_out
    generator = models.describe(cfg.generator, needs_chat="chat" in templates)
    answers = models.for_answers(generator)
    settings = select.Settings(
        answer=cfg.answer,
        passage_format=cfg.probe.passage_format,
        seed=cfg.run.seed,
        generator=answers,
        blends=_blends(chosen),
        refusal_patterns=cfg.evaluation.refusal_patterns,
    )
    _check_models(cfg, wanted)
    before, after = score.stages(cfg, wanted - AFTER), score.stages(cfg, wanted & AFTER)
    before = [*clue_plan.first(cfg, policies), *before]
    spared = arms.spared_below(chosen, signals)
    measured = [
        *before,
        *_rankings(cfg, chosen),
        *([probe.stage(cfg.probe, generator, spared_below=spared)] if probed else []),
        *_sets(cfg, policies, generator),
        *clue_plan.asked(cfg, policies, generator),
        *after,
    ]
    unneeded = _unneeded(chosen, cfg.scorers.also)
    selected = select.stage(chosen, settings)
    if cfg.answered:
        ending = _answers(cfg, answers, probed=probed)
    else:
        deciding = [stage for stage in measured if stage.name not in unneeded]
        ending = [_context(cfg, chosen[0], selected, deciding, generator=answers, probed=probed)]
    made = [*first_stage(cfg), *measured, selected, *ending]
    return [replace(stage, optional=stage.name in unneeded) for stage in made]


def _answers(cfg: OfflineIgpConfig, generator: Mapping[str, Any], *, probed: bool) -> list[Stage]:
    return [
        answer.stage(cfg.answer, passage_format=cfg.probe.passage_format, generator=generator),
        evaluate.stage(cfg.evaluation.refusal_patterns, probed=probed),
        *evaluate_task.stages(cfg.answer.task, cfg.evaluation),
    ]


def _context(
    cfg: OfflineIgpConfig,
    arm: Arm,
    selected: Stage,
    deciding: Sequence[Stage],
    *,
    generator: Mapping[str, Any],
    probed: bool,
) -> Stage:
    """The contexts of an arm. Their policy's fingerprint is of what decides the evidence among
    given candidates, models and prompts included, and the seed where chance does: not of corpus
    and retrieval."""
    told = {name: selected.depends_on[name] for name in ("arms", "passage_format", "refusals")}
    if arm.policy is not None and arm.policy.truncate == "random":
        told["seed"] = cfg.run.seed
    if arm.policy is not None and arm.policy.token_guard is not None:
        told["tokenizer"] = generator  # it counts what the guard adds up
    signals = {stage.name: [stage.revision, dict(stage.depends_on)] for stage in deciding}
    return render_context.stage(
        arm.name,
        policy=digest([told, signals]),
        passage_format=cfg.probe.passage_format,
        probed=probed,
    )


def _unneeded(chosen: Sequence[Arm], also: Collection[str]) -> set[str]:
    """The stages that run for `also` alone: what they refuse, no arm misses."""
    selected = arms.scorers(chosen)
    needed = {arms.scorer_stage(scorer) for scorer in selected}
    needed |= {stage for arm in chosen for stage in arm.stages}
    fallbacks = not arms.PROBED.isdisjoint(selected)  # select reads those that no gate uses, too
    if fallbacks or any(arm.policy is not None and arm.policy.probed for arm in chosen):
        needed.add("probe")
    measured = {arms.scorer_stage(scorer) for scorer in also}
    return {*measured, "probe"} - needed


def _check_models(cfg: OfflineIgpConfig, wanted: Collection[str]) -> None:
    for name in ("bi_encoder", "cross_encoder"):
        if name in wanted and getattr(cfg.scorers, name) is None:
            raise ConfigError(f"scorers.{name}: missing, and the scorer {name} is asked for")
    try:
        cfg.check_scorers(wanted)  # those of a blend are known only now
    except ValueError as error:
        raise ConfigError(str(error)) from None


def first_stage(cfg: OfflineIgpConfig) -> list[Stage]:
    """Retrieval, unless the input brings its candidates; where they are a pool, its ranking."""
    if cfg.retriever is None:
        return []
    if cfg.input.ranks_pool:
        return [rank_pool.stage(cfg.retriever, max_candidates=cfg.input.max_candidates)]
    return [] if cfg.input.has_candidates else [retrieve.stage(cfg.retriever)]


def read_blend(path: str) -> Blend:
    """The blend in a file written by jobs/calibrate.py; InputError where there is none."""
    try:
        filesystem, name = locate(path)
        with filesystem.open_input_file(name) as file:
            return from_json(bytes(file.read()).decode("utf-8"))
    except FileNotFoundError:
        raise InputError(f"blend: {path}: no such file") from None
    except ValueError as error:
        raise InputError(f"{path}: {error}") from None


def _blends(chosen: Sequence[Arm]) -> dict[str, Blend]:
    """The blends of the arms' policies by path, each read once."""
    paths = [arm.policy.blend for arm in chosen if arm.policy is not None]
    return {path: read_blend(path) for path in dict.fromkeys(paths) if path is not None}


def _rankings(cfg: OfflineIgpConfig, chosen: Sequence[Arm]) -> list[Stage]:
    """A pass of the ranker for each listwise selector of the arms."""
    selectors = arms.rankers(chosen)
    if not selectors:
        return []
    model = ranker_models.describe(cfg.listwise, cfg.generator)
    passage_format = cfg.probe.passage_format
    return [
        rank_listwise.stage(cfg.listwise, model, selector=name, passage_format=passage_format)
        for name in selectors
    ]


def _sets(
    cfg: OfflineIgpConfig, policies: Sequence[SelectionConfig], generator: Mapping[str, Any]
) -> list[Stage]:
    greedy = [policy for policy in policies if policy.selector == "set_aware"]
    if not greedy:
        return []
    return [
        probe_sets.stage(
            cfg.probe,
            generator,
            max_rounds=max(policy.top_m for policy in greedy),
            threshold=min(policy.threshold for policy in greedy),
        )
    ]
