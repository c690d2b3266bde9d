"""Pictures of a run and of its federation; each function returns None where its picture does not apply."""

from __future__ import annotations

import dataclasses
import math
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from regionfed_flwr.data.base import Federation, Query
from regionfed_flwr.experiments.table import MODELS, Record, model_scores, number, of_region

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "savefig.dpi": 150,
}

# Okabe and Ito's colours, told apart by colour-blind readers too; yellow is left out, too faint on white.
_PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7F7F7F")
_MARKERS = "osD^vPX*<>"
_MODEL_STYLE: dict[str, dict[str, Any]] = {
    "start": {"color": "#A6A6A6", "marker": "D"},
    "shared": {"color": "#0072B2", "marker": "o"},
    "regional": {"color": "#D55E00", "marker": "s"},
}
_DASHES = ("-", "--", "-.", ":")
_SEPARATOR: dict[str, Any] = {"color": "#D55E00", "linewidth": 0.9, "linestyle": "--"}
_SLANTED: dict[str, Any] = {"rotation": 50, "ha": "right", "rotation_mode": "anchor"}


@dataclass(frozen=True)
class DataCounts:
    """How many samples of each class and category every user has, the users in the order of their regions.

    Attributes
    ----------
    region_names : tuple of str
    users : tuple of int
        Number of users of each region.
    classes, categories : tuple of str
        Names of the columns; categories are empty for data without them.
    by_class, by_category : ndarray of int, shape (users, columns)
    """

    region_names: tuple[str, ...]
    users: tuple[int, ...]
    classes: tuple[str, ...]
    by_class: npt.NDArray[np.int64]
    categories: tuple[str, ...]
    by_category: npt.NDArray[np.int64]

    @property
    def edges(self) -> npt.NDArray[np.int64]:
        """First user of each region and, last, the number of users."""
        return np.cumsum([0, *self.users])

    @property
    def centres(self) -> npt.NDArray[np.float64]:
        """Middle of each region's block of users."""
        middle: npt.NDArray[np.float64] = (self.edges[:-1] + self.edges[1:] - 1) / 2
        return middle

    def regional(self, counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Add the users' counts up by region."""
        return np.stack([counts[a:b].sum(axis=0) for a, b in zip(self.edges[:-1], self.edges[1:], strict=True)])


def count_data(federation: Federation[Any]) -> DataCounts:
    """Count classes and categories over all parts of every user's samples.

    Categories are in the order of the regions that prefer them, so that preferences show as blocks.
    """
    region_of, classes = federation.region_of, federation.classes
    order = sorted(range(len(region_of)), key=lambda user: (region_of[user], user))
    counts = [_count_user(federation, user) for user in order]
    categories = sorted({name for _, by_category in counts for name in by_category})
    data = DataCounts(
        region_names=federation.region_names,
        users=tuple(region_of.count(region) for region in range(len(federation.region_names))),
        classes=classes,
        by_class=np.array([[by_class[i] for i in range(len(classes))] for by_class, _ in counts]),
        categories=tuple(categories),
        by_category=np.array([[by_category[name] for name in categories] for _, by_category in counts]),
    )
    best = _by_preference(_percentages(data.regional(data.by_category)))
    ordered = tuple(categories[i] for i in best)
    return dataclasses.replace(data, categories=ordered, by_category=data.by_category[:, best])


def convergence(results: Record, rounds: Sequence[Record]) -> Figure | None:
    """Overall and loss against the round, shared against regional model (paper Figure 2)."""
    scores = {model: _series(_evaluations(rounds, model), "overall", 100) for model in MODELS[1:]}
    if not any(scores.values()):
        return None
    figure = _figure(9.0, 3.6)
    left, right = figure.subplots(1, 2, sharex=True)
    for model, points in scores.items():
        if points:
            _line(left, points, label=f"{model} (at the end {points[-1][1]:.1f} %)", **_MODEL_STYLE[model])
        _line(right, _series(_evaluations(rounds, model), "loss"), **_MODEL_STYLE[model])
    start = number(model_scores(results)["start"], "overall")
    if start is not None:
        edge = {"markerfacecolor": "white", "markeredgecolor": "black", "zorder": 4}
        left.plot([0], [100 * start], "D", label=f"start ({100 * start:.1f} %)", markersize=8, **edge)
    training = _series(((entry["round"], entry) for entry in rounds), "train_loss")
    if training:
        _line(right, training, color="#7F7F7F", linestyle="--", label="local training, mean of the users")
    left.set(title="Overall score on the users' test parts", ylabel="Overall (%)", xlabel="round")
    right.set(title="Loss", ylabel="mean loss (nats)", xlabel="round")
    figure.legend(loc="outside lower center", ncols=4, frameon=False)
    figure.suptitle(f"Convergence of {results.get('method', 'the run')}")
    return figure


def accuracy_by_region(results: Record, names: Sequence[str]) -> Figure | None:
    """Overall of each region at the start, under the shared and under its regional model (paper Figure 5)."""
    models = {model: scores for model, scores in model_scores(results).items() if scores.get("per_region")}
    if not names or not models:
        return None
    figure = _figure(min(max(4.5, 2.2 + 0.95 * (len(names) + 1)), 16), 4.2)
    axes = figure.subplots()
    places = np.array([*range(len(names)), len(names) + 0.4])  # the last group, all regions, stands apart
    width = 0.84 / len(models)
    for index, (model, scores) in enumerate(models.items()):
        found = [number(record, "overall") for record in [*(of_region(scores, name) for name in names), scores]]
        heights = [np.nan if value is None else 100 * value for value in found]
        offset = (index - (len(models) - 1) / 2) * width
        bars = axes.bar(places + offset, heights, 0.94 * width, color=_MODEL_STYLE[model]["color"], label=model)
        if len(names) <= 12:
            labels = ["" if value is None else f"{100 * value:.1f}" for value in found]
            axes.bar_label(bars, labels, fontsize=6.5, padding=1)
    _name_groups(axes, places, [*names, "All regions"], 0.95 * figure.get_figwidth() / (len(names) + 1.4))
    axes.axvline(len(names) - 0.3, color="#7F7F7F", linewidth=0.8, linestyle=":")
    axes.set(
        title="Overall score by region and model", ylabel="Overall (%)", xlabel="region", xlim=(-0.6, places[-1] + 0.6)
    )
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
    return figure


def alpha_by_round(rounds: Sequence[Record], names: Sequence[str]) -> Figure | None:
    """Personalization weight and conflict of each region against the round (paper Figure 9)."""
    panels = {
        "alpha": (r"Personalization weight $\alpha_r$", r"$\alpha_r$ (no unit)"),
        "conflict": (
            r"Conflict $d_r$ of the region with the federation",
            r"$d_r$ (L2 norm, in units of the parameters)",
        ),
    }
    series = {key: [_series(_region_records(rounds, name), key) for name in names] for key in panels}
    shown = [key for key in panels if any(series[key])]
    if "alpha" not in shown:
        return None
    columns = math.ceil(len(names) / 20)
    figure = _figure(4.0 * len(shown) + 1.8 * columns, max(3.6, 0.22 * min(len(names), 20)))
    for axes, key in zip(figure.subplots(1, len(shown), squeeze=False)[0], shown, strict=True):
        for index, points in enumerate(series[key]):
            style = {"color": _PALETTE[index % 8], "marker": _MARKERS[index % 10], "linestyle": _DASHES[index // 8 % 4]}
            _line(axes, points, label=names[index] if key == "alpha" else None, **style)
        title, label = panels[key]
        axes.set(title=title, ylabel=label, xlabel="round")
    figure.legend(loc="outside right center", title="Region", ncols=columns, frameon=False)
    return figure


def intent_distribution(data: DataCounts, what: str = "Intent") -> Figure:
    """Share of each class among every user's samples, and the samples of each region (paper Figure 3)."""
    rows = len(data.classes)
    many = rows > 24
    height = max(2.4, (0.14 if many else 0.27) * rows)
    figure = _figure(10.0, height + 2.2)
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=[height, 1.1])
    shares = _percentages(data.by_class).T
    # Of many classes each has little; the few users with much of one would leave the rest pale.
    highest = float(np.quantile(shares, 0.995) if many else shares.max())
    image = _heat_map(top, shares, highest)
    extend = "max" if highest < shares.max() else "neither"
    figure.colorbar(image, ax=top, label="share of the user's samples (%)", pad=0.01, fraction=0.04, extend=extend)
    top.set_yticks(range(rows), data.classes, fontsize=6.5 if many else 8)
    top.set(title=f"{what} distribution of {sum(data.users)} users in {len(data.users)} regions", ylabel=what.lower())
    bars = bottom.bar(
        data.centres, data.regional(data.by_class).sum(axis=1), 0.8 * np.array(data.users), color=_PALETTE[0]
    )
    if len(data.users) <= 16:
        bottom.bar_label(bars, fontsize=7, padding=1)
        bottom.margins(y=0.25)
    for axes in (top, bottom):
        for edge in data.edges[1:-1]:
            axes.axvline(edge - 0.5, **_SEPARATOR)
    _name_groups(bottom, data.centres, data.region_names, 8.0 * min(data.users) / sum(data.users))
    top.tick_params(axis="x", bottom=False, labelbottom=False)
    bottom.set(ylabel="samples", xlabel="users, in the order of their regions")
    figure.align_ylabels()
    return figure


def category_distribution(data: DataCounts) -> Figure | None:
    """Share of each category among every user's samples, and by region (paper Figure 4)."""
    if not data.categories:
        return None
    regions = len(data.users)
    heights = [min(6.5, 1.4 + 0.05 * sum(data.users)), 0.19 * regions]
    figure = _figure(9.5, sum(heights) + 2.0)
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=heights)
    by_user, by_region = _percentages(data.by_category), _percentages(data.regional(data.by_category))
    _heat_map(bottom, by_region, by_user.max())
    image = _heat_map(top, by_user, by_user.max())
    figure.colorbar(image, ax=[top, bottom], label="share of the samples (%)", pad=0.01, fraction=0.03)
    for edge in data.edges[1:-1]:
        top.axhline(edge - 0.5, **_SEPARATOR)
    for (row, column), share in np.ndenumerate(by_region):
        style = {"ha": "center", "va": "center_baseline", "fontsize": 6.5}
        bottom.text(column, row, f"{share:.0f}", color="white" if share > 0.55 * by_user.max() else "black", **style)
    top.set_yticks(data.centres, data.region_names, fontsize=8)
    bottom.set_yticks(range(regions), data.region_names, fontsize=8)
    bottom.set_xticks(range(len(data.categories)), data.categories, **_SLANTED)
    top.tick_params(axis="x", bottom=False, labelbottom=False)
    top.set(title=f"Product categories of {sum(data.users)} users", ylabel="users, by region")
    bottom.set(title="Preferences of the regions (% of a region's samples)", xlabel="product category", ylabel="region")
    figure.align_ylabels()
    return figure


def _figure(width: float, height: float) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    figure = Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(wspace=0.05))
    FigureCanvasAgg(figure)
    return figure


def _count_user(federation: Federation[Any], user: int) -> tuple[Counter[int], Counter[str]]:
    splits = federation.user(user)
    samples = [*splits.train, *splits.validation, *splits.test]
    queries = [sample for sample in samples if isinstance(sample, Query)]
    glyphs = [sample.label for sample in samples if not isinstance(sample, Query)]
    labels = glyphs + [federation.classes.index(query.intent) for query in queries]
    return Counter(labels), Counter(query.category for query in queries)


def _by_preference(shares: npt.NDArray[np.float64]) -> list[int]:
    """Order categories by the first region that comes near their highest share; those that no region prefers last."""
    regions, count = shares.shape
    highest = shares.max(axis=0)
    first = np.where(highest >= 200 / max(count, 1), (shares >= 0.5 * highest).argmax(axis=0), regions)
    return [int(i) for i in np.lexsort((-highest, first))]


def _percentages(counts: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Divide each row by its sum; a row without samples stays 0."""
    result: npt.NDArray[np.float64] = 100 * counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    return result


def _heat_map(axes: Axes, values: npt.NDArray[np.float64], highest: float) -> AxesImage:
    return axes.imshow(values, aspect="auto", interpolation="nearest", cmap="Blues", vmin=0, vmax=highest)


def _evaluations(rounds: Sequence[Record], model: str) -> Iterator[tuple[int, Record | None]]:
    return ((entry["round"], (entry.get("evaluation") or {}).get(model)) for entry in rounds)


def _region_records(rounds: Sequence[Record], name: str) -> Iterator[tuple[int, Record | None]]:
    return ((entry["round"], (entry.get("regions") or {}).get(name)) for entry in rounds)


def _series(records: Iterable[tuple[int, Record | None]], key: str, scale: float = 1) -> list[tuple[int, float]]:
    """Return (round, value) of the rounds that have the value."""
    return [(index, scale * value) for index, record in records if (value := number(record, key)) is not None]


def _line(axes: Axes, points: Sequence[tuple[int, float]], **style: Any) -> None:
    """Draw values against the round with about 15 markers."""
    from matplotlib.ticker import MaxNLocator

    x, y = [index for index, _ in points], [value for _, value in points]
    axes.plot(x, y, markersize=4.5, linewidth=1.3, markevery=max(1, len(points) // 15), **style)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1, steps=[1, 2, 5, 10]))
    axes.grid(alpha=0.25)


def _name_groups(axes: Axes, places: npt.NDArray[Any], names: Sequence[str], inches: float) -> None:
    """Name groups of bars: wrapped where ``inches`` a group suffice, else slanted."""
    wrapped = [textwrap.fill(name, max(8, int(inches / 0.075))) for name in names]
    longest = max(len(line) for name in wrapped for line in name.split("\n"))
    if 0.07 * longest <= inches:
        axes.set_xticks(places, wrapped, fontsize=8)
    else:
        axes.set_xticks(places, list(names), fontsize=8 if inches > 0.3 else 7, **_SLANTED)
