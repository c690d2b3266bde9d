"""The table says what the files say."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regionfed_flwr.experiments.table import MODELS, number, region_names, render_table
from tests.experiments import fakes


def parse(table: str, tasks: tuple[str, ...]) -> dict[str, dict[str, list[str]]]:
    """Read the rows back: name -> {"overall": [start, shared, regional], "gain": [...], task: [...]}."""
    count = 4 + 3 * len(tasks)
    lines = table.splitlines()
    head = next(i for i, line in enumerate(lines) if line.startswith("Region"))
    last = next(i for i, line in enumerate(lines) if line.startswith("All regions"))
    rows = {}
    for line in lines[head + 1 : last + 1]:
        if set(line) != {"-"}:
            cells = line.split()[-count:]
            name = " ".join(line.split()[:-count])
            groups = {task: cells[4 + 3 * i : 7 + 3 * i] for i, task in enumerate(tasks)}
            rows[name] = {"overall": cells[:3], "gain": cells[3:4], **groups}
    return rows


def expected(result: dict[str, Any], name: str, key: str) -> list[str]:
    """Return what the three models' cells must be."""
    models = [result.get("start"), result["metrics"].get("shared"), result["metrics"].get("regional")]
    cells = []
    for scores in models:
        record = scores if name == "All regions" else (scores or {}).get("per_region", {}).get(name)
        value = number(record, key)
        cells.append("-" if value is None else f"{100 * value:.1f}")
    return cells


@pytest.mark.parametrize("tasks", [fakes.TASKS, ("intent", "entity"), ("character",)])
@pytest.mark.parametrize("regions", [1, 8, 40])
@pytest.mark.parametrize("regional", [True, False])
def test_every_number_is_that_of_the_file(tasks: tuple[str, ...], regions: int, regional: bool) -> None:
    names = fakes.names(regions)
    result = fakes.results(names, tasks, regional)
    rows = parse(render_table(result), tasks)
    assert list(rows) == [*names, "All regions"]
    for name, row in rows.items():
        for key in ("overall", *tasks):
            assert row[key] == expected(result, name, key)
        _, shared, own = row["overall"]
        if regional:
            assert float(row["gain"][0]) == pytest.approx(float(own) - float(shared), abs=0.1001)
        else:
            assert row["gain"] == ["-"]


def test_gain_comes_from_the_exact_scores() -> None:
    result = {"metrics": {"shared": {"overall": 0.80049}, "regional": {"overall": 0.80151}}}
    assert parse(render_table(result), ())["All regions"] == {"overall": ["-", "80.0", "80.2"], "gain": ["+0.1"]}


def test_a_gain_that_rounds_to_zero_has_no_minus() -> None:
    result = {"metrics": {"shared": {"overall": 0.8001}, "regional": {"overall": 0.8}}}
    assert parse(render_table(result), ())["All regions"]["gain"] == ["+0.0"]


def test_it_fits_a_hundred_columns_and_columns_are_aligned() -> None:
    lines = render_table(fakes.results(), fakes.rounds()).splitlines()
    assert max(map(len, lines)) <= 100
    rows = [line for line in lines if line.startswith((*fakes.NAMES, "All regions"))]
    assert len({len(line) for line in rows}) == 1
    perfect = fakes.results()
    for scores in (perfect["start"], *perfect["metrics"].values()):
        scores.update(dict.fromkeys(("overall", *fakes.TASKS), 1.0))
    assert parse(render_table(perfect), fakes.TASKS)["All regions"]["spell"] == ["100.0"] * 3


def test_summary_and_costs() -> None:
    result, rounds = fakes.results(), fakes.rounds()
    result["metrics"]["regional"]["rrs_uplift"] = -0.0123
    table = render_table(result, rounds)
    metrics = result["metrics"]
    for label, key in (("RRS_mean", "rrs_mean"), ("RRS_min", "rrs_min"), ("SD ", "rrs_sd")):
        line = next(line for line in table.splitlines() if line.startswith(label))
        assert line.split()[-2:] == [f"{100 * metrics[m][key]:.1f}" for m in MODELS[1:]]
    uplift = next(line for line in table.splitlines() if line.startswith("RRS_uplift"))
    assert uplift.split()[-2:] == ["-", "-1.2"]
    assert "Time 83.4 s | Traffic 10.50 MB down, 15.75 MB up | Rejected replies 1" in table
    assert re.search(r"Loss .* 0\.4250 +0\.3250", table)


def test_totals_in_the_results_win_over_the_sum_of_the_rounds() -> None:
    result = fakes.results() | {"bytes_down": 2_000_000, "bytes_up": 3_000_000, "rejected": 5}
    assert "Traffic 2.00 MB down, 3.00 MB up | Rejected replies 5" in render_table(result, fakes.rounds())


def test_missing_values_are_dashes() -> None:
    result = fakes.results()
    del result["start"]["per_region"]["Suburban"]
    result["metrics"]["shared"]["per_region"]["Suburban"]["spell"] = None
    result["metrics"]["regional"]["per_region"]["Suburban"]["overall"] = math.nan
    row = parse(render_table(result), fakes.TASKS)["Suburban"]
    assert row["overall"][0] == row["overall"][2] == row["spell"][0] == row["spell"][1] == "-"
    assert row["gain"] == ["-"]
    assert "-" not in row["overall"][1] + row["spell"][2]


def test_empty_results_still_give_a_table() -> None:
    assert parse(render_table({}), ())["All regions"] == {"overall": ["-"] * 3, "gain": ["-"]}


def test_region_order_is_the_longest_listing_then_the_rest() -> None:
    result = {"start": {"per_region": {"c": {}, "a": {}}}, "metrics": {"shared": {"per_region": {"z": {}}}}}
    rounds = [{"round": 1, "regions": {"b": {}, "c": {}, "a": {}}}]
    assert region_names(result, rounds) == ["b", "c", "a", "z"]


@given(st.one_of(st.none(), st.booleans(), st.floats(), st.integers(-5, 5), st.text(max_size=3)))
def test_number_is_finite_or_none(value: object) -> None:
    found = number({"key": value}, "key")
    assert found is None or (math.isfinite(found) and found == value)
