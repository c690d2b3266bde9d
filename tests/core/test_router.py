from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regionfed_flwr.core.router import RouterSettings, RouterState, Signals, observe_accuracy, route

CALM = Signals(
    conflict_l2=0.1,
    conflict_cosine=0.1,
    update_norm=1.0,
    global_norm=1.0,
    divergence=0.1,
    num_examples=100,
    mean_examples=100,
)
FRESH = RouterState()
A, B = RouterSettings("A"), RouterSettings("B")


def chosen(rules, state=FRESH, everyone=(), **changes):
    return route(state, replace(CALM, **changes), rules, everyone)[0]


def after(*accuracies):
    state = RouterState()
    for accuracy in accuracies:
        state = observe_accuracy(state, accuracy)
    return state


@pytest.mark.parametrize(
    ("d", "h", "n", "strategy"),
    [
        (0.6, 1.1, 100, "meta"),
        (0.6, 1.1, 900, "meta"),  # meta is asked first
        (0.5, 1.1, 100, "grad"),  # both inequalities are strict
        (0.6, 1.0, 100, "grad"),
        (0.6, 0.2, 151, "interp"),
        (0.6, 0.2, 150, "grad"),
    ],
)
def test_rule_a_is_algorithm_1(d, h, n, strategy):
    assert chosen(A, conflict_l2=d, divergence=h, num_examples=n) == strategy


@pytest.mark.parametrize(
    ("c", "norm", "strategy"),
    [
        (0.51, 2.1, "grad"),
        (0.51, 2.0, "meta"),  # the norm must exceed the global one
        (0.50, 2.1, "interp"),  # conflict may equal the threshold
        (0.50, 1.1, "interp"),
        (0.50, 1.0, "meta"),
        (1.90, 0.1, "meta"),
    ],
)
def test_rule_b_is_equation_14(c, norm, strategy):
    assert chosen(B, conflict_cosine=c, update_norm=norm, global_norm=2.0) == strategy


def test_the_two_rules_send_strong_conflict_to_opposite_strategies():
    strong = {"conflict_l2": 1.5, "conflict_cosine": 1.5, "divergence": 2.0, "update_norm": 3.0}
    assert (chosen(A, **strong), chosen(B, **strong)) == ("meta", "grad")


def test_relative_rule_uses_the_regions_quantiles():
    everyone = [replace(CALM, conflict_l2=100.0 * k, divergence=0.01 * k) for k in range(1, 9)]
    strategies = [route(RouterState(), s, RouterSettings("A_rel"), everyone)[0] for s in everyone]
    # Medians 450 and (3rd quartile) 0.0625: only the two regions above both go to meta.
    assert strategies == ["grad"] * 6 + ["meta"] * 2
    assert {route(RouterState(), s, A)[0] for s in everyone} == {"grad"}


@settings(deadline=None)
@given(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6))
def test_relative_rule_does_not_depend_on_scales(unit_d, unit_h):
    def strategies(a, b):
        everyone = [replace(CALM, conflict_l2=a * d, divergence=b * h) for d, h in ((1, 4), (2, 3), (3, 9), (5, 7))]
        return [route(RouterState(), s, RouterSettings("A_rel", hysteresis=0.05), everyone)[0] for s in everyone]

    assert strategies(unit_d, unit_h) == strategies(1.0, 1.0)


def test_relative_rule_needs_all_regions():
    with pytest.raises(ValueError, match="all regions"):
        chosen(RouterSettings("A_rel"))


def test_fallback_needs_a_drop_of_more_than_five_points():
    guarded = RouterSettings("B", fallback=True)
    assert chosen(guarded) == "interp"
    assert chosen(guarded, after(0.91, 0.85)) == "grad"
    assert chosen(guarded, after(0.91, 0.87)) == "interp"
    assert chosen(guarded, after(0.91, 0.86)) == "interp"  # exactly five points, whatever the rounding says
    assert chosen(guarded, after(0.91, 0.85, 0.85)) == "interp"  # only the last two rounds count
    assert chosen(B, after(0.91, 0.85)) == "interp"


# Table 10: the Grocery region's conflict exceeds the threshold in round 1 and falls below it afterwards.
GROCERY = [(0.7, 0.911), (0.4, 0.866), (0.3, 0.782), (0.3, 0.862), (0.3, 0.780), (0.3, 0.85)]


def replay(rules):
    state, strategies, reasons = RouterState(), [], []
    for conflict, accuracy in GROCERY:
        signals = replace(CALM, conflict_cosine=conflict, update_norm=1.2)
        strategy, state, reason = route(state, signals, rules)
        state = observe_accuracy(state, accuracy)
        strategies.append(strategy)
        reasons.append(reason)
    return strategies, reasons


def test_table_10_without_safeguards():
    assert replay(B)[0] == ["grad", "interp", "interp", "interp", "interp", "interp"]


def test_table_10_with_fallback():
    strategies, reasons = replay(replace(B, fallback=True))
    # Round 2 loses 4.5 points, which is within the rule; round 3 loses 8.4, so that round 4 uses grad. Round 5 is
    # routed again and collapses again.
    assert strategies == ["grad", "interp", "interp", "grad", "interp", "grad"]
    assert reasons[3] == "fallback: accuracy fell from 0.866 to 0.782"


def test_table_10_with_cooldown_does_not_oscillate():
    strategies, reasons = replay(replace(B, fallback=True, cooldown=2))
    assert strategies == ["grad", "interp", "interp", "grad", "grad", "grad"]
    assert "cooldown" in reasons[4]


def test_cooldown_lasts_as_long_as_it_says():
    guarded = RouterSettings("B", fallback=True, cooldown=2)
    state, strategies = after(0.9, 0.7), []
    for _ in range(5):
        strategy, state, _ = route(state, CALM, guarded)
        state = observe_accuracy(state, 0.9)
        strategies.append(strategy)
    assert strategies == ["grad", "grad", "grad", "interp", "interp"]


def test_patience_is_the_safeguard_of_table_8():
    patient = RouterSettings("B", patience=2)
    assert chosen(patient, after(0.90, 0.89)) == "interp"
    assert chosen(patient, after(0.90, 0.89, 0.90)) == "grad"  # an equal accuracy is no improvement
    assert chosen(patient, after(0.90, 0.89, 0.90, 0.91)) == "interp"
    assert chosen(B, after(0.90, 0.89, 0.90)) == "interp"


@settings(deadline=None)
@given(st.floats(0, 2), st.floats(0, 0.99), st.integers(1, 20))
def test_moving_average_of_a_constant_is_that_constant(conflict, decay, rounds):
    state, smooth = RouterState(), RouterSettings("B", conflict_decay=decay)
    for _ in range(rounds):
        _, state, _ = route(state, replace(CALM, conflict_cosine=conflict), smooth)
    assert state.conflict == pytest.approx(conflict, rel=1e-12, abs=1e-12)


def test_moving_average_delays_the_switch():
    smooth = RouterSettings("B", conflict_decay=0.9)
    state, strategies = RouterState(), []
    for conflict in (0.7, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3):
        strategy, state, _ = route(state, replace(CALM, conflict_cosine=conflict, update_norm=1.2), smooth)
        strategies.append(strategy)
    # 0.3 + 0.4 * 0.9**k falls below 0.5 at k = 7.
    assert state.conflict == pytest.approx(0.3 + 0.4 * 0.9**7)
    assert strategies == ["grad"] * 7 + ["interp"]


def test_moving_average_goes_on_during_a_fallback():
    guarded = RouterSettings("B", conflict_decay=0.9, fallback=True)
    state = replace(after(0.9, 0.7), conflict=0.5)
    assert route(state, replace(CALM, conflict_cosine=1.5), guarded)[1].conflict == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("last", "conflict", "strategy"),
    [
        ("grad", 0.46, "grad"),  # must fall below 0.45 to leave
        ("grad", 0.44, "interp"),
        ("interp", 0.54, "interp"),  # must exceed 0.55 to leave
        ("interp", 0.56, "grad"),
        (None, 0.46, "interp"),
        (None, 0.54, "grad"),
    ],
)
def test_a_switch_needs_the_margin_in_rule_b(last, conflict, strategy):
    sticky = RouterSettings("B", hysteresis=0.05)
    assert chosen(sticky, RouterState(last=last), conflict_cosine=conflict, update_norm=1.2) == strategy


@pytest.mark.parametrize(
    ("last", "d", "h", "n", "strategy"),
    [
        ("meta", 0.46, 0.96, 100, "meta"),
        ("meta", 0.44, 0.96, 100, "grad"),
        ("grad", 0.54, 5.0, 100, "grad"),
        ("grad", 0.56, 5.0, 100, "meta"),
        ("grad", 0.1, 0.1, 154, "grad"),
        ("grad", 0.1, 0.1, 156, "interp"),
        ("interp", 0.1, 0.1, 146, "interp"),
        ("interp", 0.1, 0.1, 144, "grad"),
    ],
)
def test_a_switch_needs_the_margin_in_rule_a(last, d, h, n, strategy):
    sticky = RouterSettings("A", hysteresis=0.05)
    assert chosen(sticky, RouterState(last=last), conflict_l2=d, divergence=h, num_examples=n) == strategy


def test_margin_of_the_relative_rule_is_one_of_quantiles():
    everyone = [replace(CALM, conflict_l2=1000.0 * k, divergence=float(k)) for k in range(101)]
    sticky = RouterSettings("A_rel", hysteresis=0.05)
    assert chosen(sticky, RouterState(last="grad"), everyone, conflict_l2=9e4, divergence=79) == "grad"
    assert chosen(sticky, RouterState(last="grad"), everyone, conflict_l2=9e4, divergence=81) == "meta"
    assert chosen(sticky, RouterState(last="meta"), everyone, conflict_l2=9e4, divergence=71) == "meta"
    assert chosen(sticky, RouterState(last="meta"), everyone, conflict_l2=4.4e4, divergence=90) == "grad"


signals = st.builds(
    Signals, st.floats(0, 2), st.floats(0, 2), st.floats(0, 3), st.floats(0, 3), st.floats(0, 3), *[st.floats(1, 9)] * 2
)


@settings(deadline=None)
@given(signals, st.sampled_from(["grad", "interp", "meta"]), st.sampled_from(["A", "B"]))
def test_hysteresis_only_ever_keeps_the_last_strategy(shown, last, rule):
    plain = route(RouterState(last=last), shown, RouterSettings(rule))[0]
    sticky, state, _ = route(RouterState(last=last), shown, RouterSettings(rule, hysteresis=0.05))
    assert sticky in (plain, last)
    assert route(state, shown, RouterSettings(rule, hysteresis=0.05))[0] == sticky


def test_percentages_are_refused():
    with pytest.raises(ValueError, match="fraction"):
        observe_accuracy(RouterState(), 91.1)
