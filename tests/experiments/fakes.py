"""Made-up runs and federations with the look of real ones."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from regionfed_flwr.config import RunConfig
from regionfed_flwr.core.metrics import regional_summary
from regionfed_flwr.data.base import Glyph, Query, UserSplits

NAMES = (
    "Urban Tech",
    "Young Demo.",
    "High-Income",
    "Price-Conscious",
    "Active Lifestyle",
    "Business Prof.",
    "Suburban",
    "Premium Markets",
)
INTENTS = (
    "product_search",
    "price_comparison",
    "brand_lookup",
    "category_browse",
    "specific_item",
    "deal_hunting",
    "review_reading",
    "availability_check",
)
CATEGORIES = tuple(f"category-{letter}" for letter in "abcdefghijklmnopqrstuvwx")
CHARACTERS = tuple("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
TASKS = ("intent", "spell", "entity")


def names(regions: int) -> tuple[str, ...]:
    """Return that many distinct names."""
    return tuple(NAMES[i % 8] + (f" {i // 8 + 1}" if i >= 8 else "") for i in range(regions))


def scores(level: float, regions: tuple[str, ...], rng: np.random.Generator, tasks: tuple[str, ...]) -> dict[str, Any]:
    """Return an evaluation near ``level``."""

    def one() -> dict[str, float]:
        values = {task: float(np.clip(level + rng.normal(0, 0.03), 0, 1)) for task in tasks}
        return values | {"overall": float(np.mean(list(values.values()))), "loss": float(2.5 * (1 - level))}

    return one() | {"per_region": {name: one() for name in regions}}


def results(
    regions: tuple[str, ...] = NAMES, tasks: tuple[str, ...] = TASKS, regional: bool = True, rounds: int = 6
) -> dict[str, Any]:
    """Return the content of results.json."""
    rng = np.random.default_rng(1)
    start, shared, own = (scores(level, regions, rng, tasks) for level in (0.21, 0.83, 0.87))
    base, better = ([model["per_region"][name]["overall"] for name in regions] for model in (shared, own))
    metrics = {"shared": shared | regional_summary(base)}
    if regional:
        metrics["regional"] = own | regional_summary(better, base)
    method = "regionfed" if regional else "fedavg"
    return {"method": method, "seed": 3, "seconds": 83.42, "rounds": rounds, "start": start, "metrics": metrics}


def rounds(
    count: int = 6,
    regions: tuple[str, ...] = NAMES,
    tasks: tuple[str, ...] = TASKS,
    regional: bool = True,
    every: int = 1,
) -> list[dict[str, Any]]:
    """Return the lines of rounds.jsonl, the evaluations every few rounds."""
    rng = np.random.default_rng(2)
    base = rng.uniform(0.4, 1.8, len(regions))
    lines = []
    for index in range(count + 1):
        level = 0.85 - 0.64 * np.exp(-4 * index / count)
        shared = scores(level, regions, rng, tasks) if index else results(regions, tasks)["start"]
        evaluation = {"shared": shared}
        if regional and index:
            evaluation["regional"] = scores(min(level + 0.04, 1), regions, rng, tasks)
        conflict = base * (1 + 0.3 / (index + 1)) + rng.normal(0, 0.02, len(regions))
        line = {
            "round": index,
            "seconds": 12.5,
            "bytes_down": 1_500_000,
            "bytes_up": 2_250_000,
            "users": 4 * len(regions),
            "rejected": 1 if index == 2 else 0,
            "train_loss": None if index == 0 else float(2.2 * np.exp(-0.4 * index) + 0.3),
            "regions": {},
            "evaluation": evaluation if index % every == 0 else None,
        }
        if regional and index:
            line["regions"] = {
                name: {
                    "conflict": float(d),
                    "alpha": float(0.5 + 0.5 / (1 + np.exp(-3 * (d - np.median(base))))),
                    "rho": 1.0,
                    "num_examples": 240,
                    "update_norm": 1.1,
                    "direction_norm": 0.4,
                    "train_loss": 0.7,
                }
                for name, d in zip(regions, conflict, strict=True)
            }
        lines.append(line)
    return lines


@dataclass(frozen=True)
class FakeFederation:
    """Users with skewed classes; ``glyphs`` gives characters, otherwise queries."""

    region_names: tuple[str, ...]
    region_of: tuple[int, ...]
    glyphs: bool = False
    samples: int = 100

    @property
    def classes(self) -> tuple[str, ...]:
        return CHARACTERS if self.glyphs else INTENTS

    def user(self, user: int) -> UserSplits[Any]:
        rng = np.random.default_rng([9, user])
        share = rng.dirichlet(np.full(len(self.classes), 0.3))
        labels = rng.choice(len(self.classes), self.samples, p=share)
        if self.glyphs:
            blank = np.zeros((28, 28), np.uint8)
            items: list[Any] = [Glyph(blank, int(label)) for label in labels]
        else:
            region = self.region_of[user]
            own = [CATEGORIES[(3 * region + i) % 24] for i in range(3)]
            words = [own[rng.integers(3)] if rng.random() < 0.7 else CATEGORIES[rng.integers(24)] for _ in labels]
            items = [Query((w,), (w,), INTENTS[label], ("O",), w) for w, label in zip(words, labels, strict=True)]
        cut = int(0.6 * self.samples)
        return UserSplits(items[:cut], [], items[cut:])


def federation(regions: int = 8, users_per_region: int = 4, glyphs: bool = False) -> FakeFederation:
    """Return a federation whose users take the regions in turn, so that they are not in the regions' order."""
    return FakeFederation(names(regions), tuple(u % regions for u in range(regions * users_per_region)), glyphs)


def write_run(folder: Path, config: RunConfig, result: dict[str, Any], lines: list[dict[str, Any]]) -> Path:
    """Write the three files of a run."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config.to_flower()))
    (folder / "results.json").write_text(json.dumps(result))
    (folder / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder
