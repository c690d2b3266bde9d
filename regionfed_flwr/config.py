"""Every run configuration key: its type, default, range and help, declared once.

Flower's manifest (``[tool.flwr.app.config]``) and the README's table are generated from :class:`RunConfig`.
In Flower's run configuration a key is written with hyphens (``local-epochs``), here with underscores.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from regionfed_flwr.errors import RegionFedError

Value = bool | int | float | str


def _key(
    default: Value,
    text: str,
    *,
    group: str,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    choices: tuple[str, ...] = (),
) -> Any:
    """Declare a key: ``low <= value <= high``, ``value > above``, or one of ``choices``."""
    meta = {"help": text, "group": group, "low": low, "high": high, "above": above, "choices": choices}
    return dataclasses.field(default=default, metadata=meta)


@dataclass(frozen=True)
class RunConfig:
    """A validated run configuration. Build one with :func:`parse_config`."""

    # Run
    seed: int = _key(0, "seed of every draw", group="run", low=0, high=2**31 - 1)
    method: str = _key("regionfed", "training method", group="run", choices=("regionfed", "fedavg"))
    num_server_rounds: int = _key(6, "communication rounds T", group="run", low=1)
    evaluate_every: int = _key(
        1, "evaluate on the users' test parts every k rounds (and at the start and end); 0: never", group="run", low=0
    )
    output_dir: str = _key("", "folder for the artifacts; empty: runs/<time>-<name>", group="run")
    run_name: str = _key("run", "name in the folder of the artifacts", group="run")
    node_timeout: float = _key(600.0, "seconds to wait for the nodes' replies in one exchange", group="run", above=0)

    # Federation
    regions: int = _key(8, "number of regions M", group="federation", low=1)
    users_per_region: int = _key(4, "users in each region", group="federation", low=1)
    region_scheme: str = _key(
        "semantic",
        "how users are put into regions",
        group="federation",
        choices=("semantic", "geographic", "random", "adversarial"),
    )
    fraction: float = _key(
        1.0, "fraction of each region's users trained in a round", group="federation", above=0, high=1
    )
    region_weight: str = _key(
        "uniform",
        "weight of a region in the global update: 1/M, or its share of the examples",
        group="federation",
        choices=("uniform", "size"),
    )
    server_learning_rate: float = _key(1.0, "server step on the mean update", group="federation", above=0)

    # Local training
    local_epochs: int = _key(4, "passes over a user's data per round E", group="local training", low=1)
    batch_size: int = _key(32, "rows per optimizer step", group="local training", low=1)
    optimizer: str = _key(
        "adamw", "local optimizer, created anew each round", group="local training", choices=("adamw", "sgd")
    )
    learning_rate: float = _key(3e-3, "local learning rate", group="local training", above=0)
    momentum: float = _key(0.0, "momentum of sgd", group="local training", low=0, high=0.999)
    weight_decay: float = _key(0.0, "decoupled weight decay of adamw, L2 of sgd", group="local training", low=0)

    # Data
    data: str = _key("esci", "benchmark", group="data", choices=("esci", "femnist"))
    data_path: str = _key(
        "",
        "femnist only: LEAF folder, .npz of writer arrays, saved dataset or hub name; empty: rendered glyphs",
        group="data",
    )
    samples_per_user: int = _key(100, "samples of each user, all parts together", group="data", low=1)
    validation_fraction: float = _key(
        0.15, "share of a user's samples kept for validation", group="data", low=0, high=0.9
    )
    test_fraction: float = _key(0.25, "share of a user's samples kept for testing", group="data", low=0, high=0.9)
    dirichlet_alpha: float = _key(
        0.3, "concentration of users' intents or classes (lower: more skewed)", group="data", above=0
    )
    category_bias: float = _key(0.7, "share of a region's queries in its own categories", group="data", low=0, high=1)
    regional_semantics: float = _key(
        0.3, "share of queries whose meaning or spelling depends on the region", group="data", low=0, high=1
    )
    typo_rate: float = _key(0.15, "share of tokens that are misspelt", group="data", low=0, high=1)
    tag_scheme: str = _key("io", "entity tags", group="data", choices=("io", "bio"))

    # Model
    model: str = _key("t5-tiny", "t5-tiny, encoder-tiny, cnn, or a T5 by hub name or local folder", group="model")
    intent_weight: float = _key(1.0, "loss weight of the intent task", group="model", low=0)
    spell_weight: float = _key(1.0, "loss weight of the spelling task", group="model", low=0)
    entity_weight: float = _key(1.0, "loss weight of the entity task", group="model", low=0)
    max_source_length: int = _key(32, "tokens of a model's input", group="model", low=4)
    max_target_length: int = _key(32, "tokens of a model's output", group="model", low=4)
    device: str = _key("auto", "where users train", group="model", choices=("auto", "cpu", "cuda"))

    # RegionFed
    strategy: str = _key("grad", "adaptation direction", group="regionfed", choices=("grad",))
    rho: float = _key(1.0, "fixed adaptation intensity", group="regionfed", low=0)
    alpha_min: float = _key(0.5, "smallest personalization weight", group="regionfed", low=0, high=1)
    tau: float = _key(1.0, "temperature of the personalization weight", group="regionfed", above=0)
    mu_mode: str = _key(
        "shared-median",
        "centre of the personalization weight",
        group="regionfed",
        choices=("shared-median", "per-region", "running", "zero"),
    )

    @property
    def num_users(self) -> int:
        """Users in the whole federation."""
        return self.regions * self.users_per_region

    def to_flower(self) -> dict[str, Value]:
        """Return the keys as Flower writes them."""
        return {hyphens(f.name): getattr(self, f.name) for f in dataclasses.fields(self)}


@dataclass(frozen=True)
class KeyInfo:
    """One row of the configuration table."""

    name: str
    kind: type
    default: Value
    allowed: str
    help: str
    group: str


def hyphens(name: str) -> str:
    """Return a field's name as it is written in a run configuration."""
    return name.replace("_", "-")


def keys() -> tuple[KeyInfo, ...]:
    """Return all keys in the order of their declaration."""
    return tuple(
        KeyInfo(hyphens(f.name), type(_default(f)), _default(f), _allowed(f), f.metadata["help"], f.metadata["group"])
        for f in dataclasses.fields(RunConfig)
    )


def parse_config(values: Mapping[str, Any], **overrides: Value) -> RunConfig:
    """Check a run configuration and fill in the defaults.

    Parameters
    ----------
    values : Mapping[str, Any]
        Keys as Flower writes them (hyphens).
    **overrides : bool, int, float or str
        Further keys (underscores), which win over ``values``.

    Returns
    -------
    RunConfig

    Raises
    ------
    RegionFedError
        For an unknown key, a value of the wrong type, or one out of range; the sentence names the key, the value
        and what is allowed.
    """
    fields = {hyphens(f.name): f for f in dataclasses.fields(RunConfig)}
    merged = dict(values) | {hyphens(k): v for k, v in overrides.items()}
    checked: dict[str, Value] = {}
    for name, value in merged.items():
        if name not in fields:
            near = difflib.get_close_matches(name, fields, n=1)
            hint = f" Did you mean '{near[0]}'?" if near else ""
            raise RegionFedError(f"Unknown configuration key '{name}'.{hint} `regionfed config` lists all keys.")
        field = fields[name]
        checked[field.name] = _checked(name, value, field)
    config = RunConfig(**checked)  # type: ignore[arg-type]
    _check_together(config)
    return config


def _check_together(config: RunConfig) -> None:
    """Refuse values that are allowed alone but not together."""
    if config.validation_fraction + config.test_fraction >= 1:
        raise RegionFedError(
            f"validation-fraction = {config.validation_fraction} and test-fraction = {config.test_fraction} leave no "
            "training data; their sum must be below 1."
        )
    image_model = config.model == "cnn"
    if image_model != (config.data == "femnist"):
        raise RegionFedError(
            f"model = '{config.model}' does not fit data = '{config.data}'; use model = 'cnn' with 'femnist', and "
            "'t5-tiny', 'encoder-tiny' or a T5 with 'esci'."
        )


def _default(field: dataclasses.Field[Any]) -> Value:
    assert isinstance(field.default, bool | int | float | str)  # every field is declared by _key
    return field.default


def _allowed(field: dataclasses.Field[Any]) -> str:
    """Say in words what a key may be."""
    meta = field.metadata
    if meta["choices"]:
        return ", ".join(f"'{c}'" for c in meta["choices"])
    if isinstance(field.default, bool):
        return "true, false"
    if isinstance(field.default, str):
        return "text"
    kind = "whole number" if isinstance(field.default, int) else "number"
    low, high, above = meta["low"], meta["high"], meta["above"]
    bounds = []
    if above is not None:
        bounds.append(f"above {above:g}")
    if low is not None:
        bounds.append(f"from {low:g}")
    if high is not None:
        bounds.append(f"to {high:.10g}")
    return " ".join([kind, *bounds])


def _checked(name: str, value: Any, field: dataclasses.Field[Any]) -> Value:
    """Return ``value`` in the key's type, or raise the sentence that says what is allowed."""
    default, meta = field.default, field.metadata
    ok: Value | None = None
    if isinstance(default, bool):
        ok = value if isinstance(value, bool) else None
    elif isinstance(default, int):
        ok = value if isinstance(value, int) and not isinstance(value, bool) else None
    elif isinstance(default, float):
        ok = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
    elif isinstance(value, str):
        ok = value
    in_range = ok is not None
    if ok is not None and not isinstance(ok, str | bool):
        low, high, above = meta["low"], meta["high"], meta["above"]
        in_range = (
            math.isfinite(ok)
            and (low is None or ok >= low)
            and (high is None or ok <= high)
            and (above is None or ok > above)
        )
    if meta["choices"]:
        in_range = ok in meta["choices"]
    if ok is None or not in_range:
        raise RegionFedError(f"Configuration key '{name}' is {value!r}, but allowed is: {_allowed(field)}.")
    return ok
