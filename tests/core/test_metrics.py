import pytest

from regionfed_flwr.core.metrics import add_counts, regional_summary, scores


def test_scores_by_hand():
    counts = {
        "intent.correct": 3.0,
        "intent.count": 4.0,
        "entity.tp": 2.0,
        "entity.fp": 1.0,
        "entity.fn": 1.0,
        "loss.sum": 6.0,
        "loss.count": 4.0,
    }
    assert scores(counts) == pytest.approx(
        {"intent": 0.75, "entity": 2 / 3, "overall": (0.75 + 2 / 3) / 2, "loss": 1.5}
    )


def test_counts_add_up_whatever_the_grouping():
    users = [{"intent.correct": float(i), "intent.count": 10.0} for i in range(5)]
    nodes = [add_counts(users[:2]), add_counts(users[2:])]
    assert add_counts(nodes) == add_counts(users)


def test_tasks_without_examples_are_left_out():
    empty = {"intent.correct": 0.0, "intent.count": 0.0, "entity.tp": 0.0, "entity.fp": 0.0, "entity.fn": 0.0}
    assert scores(empty) == {}
    assert scores({}) == {}
    assert scores(empty | {"intent.correct": 1.0, "intent.count": 2.0}) == {"intent": 0.5, "overall": 0.5}


def test_regional_summary():
    result = regional_summary([0.9, 0.7], baseline=[0.8, 0.5])
    assert result == pytest.approx({"rrs_mean": 0.8, "rrs_min": 0.7, "rrs_sd": 0.1, "rrs_uplift": 0.1})
    assert regional_summary([]) == {}
