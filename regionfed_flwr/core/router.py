"""Which strategy a region uses in a round (paper Algorithm 1, Eq. 14, and the safeguards of D.6)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal, NamedTuple

import numpy as np

Strategy = Literal["grad", "interp", "meta"]
_ROUNDING = 1e-9  # .91 -> .86 is a drop of exactly five points, not of more


@dataclass(frozen=True)
class Signals:
    """What a region shows in one round.

    Attributes
    ----------
    conflict_l2 : float
        d_r, norm of the regional minus the global direction; debiased by the caller where noise was added.
    conflict_cosine : float
        1 - cos of the regional and the global direction, in [0, 2].
    update_norm, global_norm : float
        Norms of the regional and the global direction.
    divergence : float
        h_r, KL of the region's intent distribution from the global one, in nats.
    num_examples, mean_examples : float
        Examples of the region, and their mean over the regions.
    """

    conflict_l2: float
    conflict_cosine: float
    update_norm: float
    global_norm: float
    divergence: float
    num_examples: float
    mean_examples: float


@dataclass(frozen=True)
class RouterSettings:
    """A rule, its thresholds and its safeguards.

    Attributes
    ----------
    rule : str
        ``A``: Algorithm 1. ``B``: Eq. 14, which sends strong conflict to grad where A sends it to meta. ``A_rel``:
        Algorithm 1 with quantiles over the regions as thresholds of conflict and divergence, free of their scales.
    conflict, divergence, size : float
        Thresholds tau_conflict (A: of d_r, B: of 1 - cos), tau_het and beta.
    norm : float
        Share of the global norm that the regional norm must exceed for interp (B).
    conflict_quantile, divergence_quantile : float
        Quantiles that replace the first two thresholds in ``A_rel``.
    hysteresis : float
        Half width of the band around every threshold (``A_rel``: around the quantile's level) within which the last
        strategy is kept; 0: none.
    conflict_decay : float
        Weight of the past in the moving average of 1 - cos, Eq. 16 (the paper's beta = 0.9); 0: none. Rule B reads it.
    fallback : bool
        Use grad when the accuracy has dropped by more than ``max_drop``, Eq. 15.
    max_drop : float
        Accuracy as a fraction, so 0.05 is five points.
    cooldown : int
        Further rounds on grad after a fallback.
    patience : int
        Use grad after so many rounds without a new best accuracy, until there is one (Table 8's note: 2); 0: never.
    """

    rule: Literal["A", "B", "A_rel"] = "A"
    conflict: float = 0.5
    divergence: float = 1.0
    size: float = 1.5
    norm: float = 0.5
    conflict_quantile: float = 0.5
    divergence_quantile: float = 0.75
    hysteresis: float = 0.0
    conflict_decay: float = 0.0
    fallback: bool = False
    max_drop: float = 0.05
    cooldown: int = 0
    patience: int = 0


@dataclass(frozen=True)
class RouterState:
    """What the router remembers of a region.

    Attributes
    ----------
    accuracies : tuple of float
        Validation accuracies so far, as fractions.
    conflict : float or None
        Moving average of 1 - cos, None before the first round.
    cooldown : int
        Rounds to stay on grad.
    stale : int
        Rounds since the best accuracy.
    last : str or None
        Strategy of the last round.
    """

    accuracies: tuple[float, ...] = ()
    conflict: float | None = None
    cooldown: int = 0
    stale: int = 0
    last: Strategy | None = None


class _Band(NamedTuple):
    """A threshold and the edges within which the last strategy is kept."""

    low: float
    level: float
    high: float


class _Check(NamedTuple):
    """Whether a signal is above its threshold: plainly, and by the edges of the threshold's band."""

    plain: bool
    edges: frozenset[bool]


def route(
    state: RouterState, signals: Signals, settings: RouterSettings, everyone: Sequence[Signals] = ()
) -> tuple[Strategy, RouterState, str]:
    """Choose a region's strategy for this round.

    Parameters
    ----------
    state : RouterState
        The region's memory. A drop of accuracy counts until :func:`observe_accuracy` reports a newer one.
    signals : Signals
        The region's signals.
    settings : RouterSettings
        Rule and safeguards.
    everyone : sequence of Signals
        The signals of all regions, for the quantiles of ``A_rel``.

    Returns
    -------
    tuple
        The strategy, the new memory, and the reason in words.

    Raises
    ------
    ValueError
        For ``A_rel`` without the signals of all regions.
    """
    conflict = signals.conflict_cosine
    if state.conflict is not None:
        conflict = settings.conflict_decay * state.conflict + (1 - settings.conflict_decay) * conflict
    forced, cooldown = _safeguard(state, settings)
    if forced:
        return "grad", replace(state, conflict=conflict, cooldown=cooldown, last="grad"), forced
    if settings.rule == "B":
        strategy, reason = _rule_b(state.last, replace(signals, conflict_cosine=conflict), settings)
    else:
        strategy, reason = _rule_a(state.last, signals, settings, everyone)
    return strategy, replace(state, conflict=conflict, cooldown=0, last=strategy), reason


def observe_accuracy(state: RouterState, accuracy: float) -> RouterState:
    """Return the memory after a round that ended with this validation accuracy.

    Raises
    ------
    ValueError
        When the accuracy is not a fraction: percentages would make every change a drop.
    """
    if not 0 <= accuracy <= 1:
        raise ValueError(f"the accuracy {accuracy} is not a fraction between 0 and 1")
    improved = accuracy > max(state.accuracies, default=-1.0)
    return replace(state, accuracies=(*state.accuracies, accuracy), stale=0 if improved else state.stale + 1)


def _safeguard(state: RouterState, settings: RouterSettings) -> tuple[str, int]:
    """Return why the region must use grad (empty: it need not), and the rounds that it has to stay there after."""
    if settings.fallback and len(state.accuracies) >= 2:
        before, after = state.accuracies[-2:]
        if before - after > settings.max_drop + _ROUNDING:
            return f"fallback: accuracy fell from {before:.3f} to {after:.3f}", settings.cooldown
    if state.cooldown > 0:
        return f"cooldown after a fallback, {state.cooldown - 1} more rounds", state.cooldown - 1
    if settings.patience and state.stale >= settings.patience:
        return f"fallback: no better accuracy for {state.stale} rounds", 0
    return "", 0


def _rule_a(
    last: Strategy | None, signals: Signals, settings: RouterSettings, everyone: Sequence[Signals]
) -> tuple[Strategy, str]:
    """Apply Algorithm 1: meta on strong conflict and divergence, interp where data abound, else grad."""
    margin = settings.hysteresis
    if settings.rule == "A_rel":
        conflicts, divergences = [s.conflict_l2 for s in everyone], [s.divergence for s in everyone]
        conflict_band = _quantiles(conflicts, settings.conflict_quantile, margin)
        divergence_band = _quantiles(divergences, settings.divergence_quantile, margin)
    else:
        conflict_band, divergence_band = _band(settings.conflict, margin), _band(settings.divergence, margin)
    checks = (
        _check(signals.conflict_l2, conflict_band),
        _check(signals.divergence, divergence_band),
        _check(signals.num_examples, _band(settings.size, margin, signals.mean_examples)),
    )

    def decide(conflicting: bool, divergent: bool, large: bool) -> Strategy:
        if conflicting and divergent:
            return "meta"
        return "interp" if large else "grad"

    reason = (
        f"rule {settings.rule}: d = {signals.conflict_l2:.3g} (threshold {conflict_band.level:.3g}), "
        f"h = {signals.divergence:.3g} ({divergence_band.level:.3g}), "
        f"{signals.num_examples:g} examples (mean {signals.mean_examples:g})"
    )
    return _choose(last, decide, checks, reason)


def _rule_b(last: Strategy | None, signals: Signals, settings: RouterSettings) -> tuple[Strategy, str]:
    """Apply Eq. 14: grad on strong conflict and a large norm, interp on weak conflict and a fair norm, else meta."""
    margin = settings.hysteresis
    checks = (
        _check(signals.conflict_cosine, _band(settings.conflict, margin)),
        _check(signals.update_norm, _band(1.0, margin, signals.global_norm)),
        _check(signals.update_norm, _band(settings.norm, margin, signals.global_norm)),
    )

    def decide(conflicting: bool, stronger: bool, fair: bool) -> Strategy:
        if conflicting:
            return "grad" if stronger else "meta"
        return "interp" if fair else "meta"

    reason = (
        f"rule B: conflict = {signals.conflict_cosine:.3g} (threshold {settings.conflict:.3g}), "
        f"norm {signals.update_norm:.3g} (global {signals.global_norm:.3g})"
    )
    return _choose(last, decide, checks, reason)


def _band(level: float, margin: float, scale: float = 1.0) -> _Band:
    return _Band(scale * (level - margin), scale * level, scale * (level + margin))


def _quantiles(values: Sequence[float], level: float, margin: float) -> _Band:
    if not values:
        raise ValueError("rule A_rel needs the signals of all regions")
    return _Band(*(float(x) for x in np.quantile(values, np.clip([level - margin, level, level + margin], 0, 1))))


def _check(signal: float, band: _Band) -> _Check:
    return _Check(signal > band.level, frozenset((signal > band.low, signal > band.high)))


def _choose(
    last: Strategy | None, decide: Callable[[bool, bool, bool], Strategy], checks: Sequence[_Check], reason: str
) -> tuple[Strategy, str]:
    """Return the rule's plain outcome, or the last strategy where some signal within its band would still give it."""
    plain = decide(*(check.plain for check in checks))
    within = {decide(*truths) for truths in product(*(check.edges for check in checks))}
    if last is not None and last != plain and last in within:
        return last, f"{reason}; {plain} is not past the margin"
    return plain, reason
