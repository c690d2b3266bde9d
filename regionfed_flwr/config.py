"""Every run configuration key: its type, default, range and help, declared once.

Flower's manifest (``[tool.flwr.app.config]``) and the README's table are generated from :class:`RunConfig`.
In Flower's run configuration a key is written with hyphens (``local-epochs``), here with underscores.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from regionfed_flwr.errors import RegionFedError
from regionfed_flwr.keys import KeyInfo, Value, check_value, declare, describe_keys, hyphens

__all__ = ["KeyInfo", "RunConfig", "Value", "keys", "parse_config"]


@dataclass(frozen=True)
class RunConfig:
    """A validated run configuration. Build one with :func:`parse_config`."""

    # Run
    seed: int = declare(0, "seed of every draw", group="run", low=0, high=2**31 - 1)
    method: str = declare("regionfed", "training method", group="run", choices=("regionfed", "fedavg"))
    num_server_rounds: int = declare(5, "communication rounds T", group="run", low=1)
    evaluate_every: int = declare(
        1, "evaluate on the users' test parts every k rounds (and at the start and end); 0: never", group="run", low=0
    )
    output_dir: str = declare("", "folder for the artifacts; empty: runs/<time>-<name>", group="run")
    run_name: str = declare("run", "name in the folder of the artifacts", group="run")
    node_timeout: float = declare(600.0, "seconds to wait for the nodes' replies in one exchange", group="run", above=0)

    # Federation
    regions: int = declare(8, "number of regions M", group="federation", low=1)
    users_per_region: int = declare(4, "users in each region", group="federation", low=1)
    region_scheme: str = declare(
        "semantic",
        "how users are put into regions",
        group="federation",
        choices=("semantic", "geographic", "random", "adversarial"),
    )
    fraction: float = declare(
        1.0, "fraction of each region's users trained in a round", group="federation", above=0, high=1
    )
    region_weight: str = declare(
        "uniform",
        "weight of a region in the global update: 1/M, or its share of the examples",
        group="federation",
        choices=("uniform", "size"),
    )
    server_learning_rate: float = declare(1.0, "server step on the mean update", group="federation", above=0)

    # Local training
    local_epochs: int = declare(3, "passes over a user's data per round E", group="local training", low=1)
    batch_size: int = declare(32, "rows per optimizer step", group="local training", low=1)
    optimizer: str = declare(
        "adamw", "local optimizer, created anew each round", group="local training", choices=("adamw", "sgd")
    )
    learning_rate: float = declare(2e-3, "local learning rate", group="local training", above=0)
    momentum: float = declare(0.0, "momentum of sgd", group="local training", low=0, high=0.999)
    weight_decay: float = declare(0.0, "decoupled weight decay of adamw, L2 of sgd", group="local training", low=0)

    # Data
    data: str = declare("esci", "benchmark", group="data", choices=("esci", "femnist"))
    data_path: str = declare(
        "",
        "femnist only: LEAF folder, .npz of writer arrays, saved dataset or hub name; empty: rendered glyphs",
        group="data",
    )
    samples_per_user: int = declare(200, "samples of each user, all parts together", group="data", low=1)
    validation_fraction: float = declare(
        0.15, "share of a user's samples kept for validation", group="data", low=0, high=0.9
    )
    test_fraction: float = declare(0.25, "share of a user's samples kept for testing", group="data", low=0, high=0.9)
    dirichlet_alpha: float = declare(
        0.3, "concentration of users' intents or classes (lower: more skewed)", group="data", above=0
    )
    category_bias: float = declare(
        0.7, "share of a region's queries in its own categories", group="data", low=0, high=1
    )
    regional_semantics: float = declare(
        0.3, "share of queries whose meaning or spelling depends on the region", group="data", low=0, high=1
    )
    typo_rate: float = declare(0.15, "share of tokens that are misspelt", group="data", low=0, high=1)
    tag_scheme: str = declare("io", "entity tags", group="data", choices=("io", "bio"))

    # Model
    model: str = declare("t5-tiny", "t5-tiny, encoder-tiny, cnn, or a T5 by hub name or local folder", group="model")
    intent_weight: float = declare(1.0, "loss weight of the intent task", group="model", low=0)
    spell_weight: float = declare(1.0, "loss weight of the spelling task", group="model", low=0)
    entity_weight: float = declare(1.0, "loss weight of the entity task", group="model", low=0)
    max_source_length: int = declare(32, "tokens of a model's input", group="model", low=4)
    max_target_length: int = declare(32, "tokens of a model's output", group="model", low=4)
    device: str = declare("auto", "where users train", group="model", choices=("auto", "cpu", "cuda"))

    # RegionFed: direction
    strategy: str = declare(
        "interp",
        "adaptation direction: regional minus global update, one more regional round, gradient ahead, or routed",
        group="regionfed",
        choices=("grad", "interp", "meta", "dynamic"),
    )
    sign: str = declare(
        "descent",
        "'paper' takes the printed sign of grad and meta, which ascends",
        group="regionfed",
        choices=("descent", "paper"),
    )
    update: str = declare(
        "delta",
        "what users send: the difference after local training, or one full-batch descent direction",
        group="regionfed",
        choices=("delta", "gradient"),
    )
    train_from: str = declare(
        "shared",
        "where users start: the shared model or their region's (the shared one is still the mean of all)",
        group="regionfed",
        choices=("shared", "region"),
    )
    stale: bool = declare(
        False, "use the previous round's direction and intensity, as Algorithm 2 is printed", group="regionfed"
    )
    direction_ema: float = declare(
        0.0, "share of the previous direction in the new one", group="regionfed", low=0, high=0.999
    )
    lookahead: float = declare(
        1.0, "meta: server steps looked ahead before the gradient is taken", group="regionfed", low=0
    )
    meta_order: int = declare(
        1, "meta: 2 adds the Hessian-vector product of the inner step (small models)", group="regionfed", low=1, high=2
    )
    hierarchy: bool = declare(True, "false puts all users into one region (ablation)", group="regionfed")

    # RegionFed: intensity
    rho_search: str = declare(
        "fixed",
        "how the intensity is found on the regions' validation parts",
        group="regionfed",
        choices=("fixed", "section-k", "golden", "on-device"),
    )
    rho: float = declare(1.0, "intensity when it is fixed", group="regionfed", low=0)
    rho_max: float = declare(2.0, "upper end of the search", group="regionfed", above=0)
    rho_tolerance: float = declare(0.01, "tolerance of the search", group="regionfed", above=0)
    search_with_alpha: bool = declare(
        False, "search the intensity of alpha * rho instead of rho alone", group="regionfed"
    )

    # RegionFed: weight
    alpha_mode: str = declare(
        "paper",
        "personalization weight: Eq. 6; Eq. 6 in units of the spread over regions; shrinkage; Eq. 27; always 1",
        group="regionfed",
        choices=("paper", "scaled", "james-stein", "theory", "one"),
    )
    alpha_min: float = declare(0.5, "smallest personalization weight", group="regionfed", low=0, high=1)
    tau: float = declare(1.0, "temperature of the personalization weight", group="regionfed", above=0)
    mu_mode: str = declare(
        "shared-median",
        "centre of the personalization weight",
        group="regionfed",
        choices=("shared-median", "per-region", "running", "zero"),
    )
    mu_scale: float = declare(1.0, "factor on the calibrated centre (Table 16)", group="regionfed", low=0)

    # RegionFed: users and routing
    personal: str = declare(
        "never",
        "when users adapt their region's model on the device and judge it",
        group="regionfed",
        choices=("never", "end", "always"),
    )
    router: str = declare("A", "rule of strategy = 'dynamic'", group="regionfed", choices=("A", "A-rel", "B"))
    tau_conflict: float = declare(0.5, "router: conflict threshold", group="regionfed", low=0)
    tau_heterogeneity: float = declare(1.0, "router: divergence threshold in nats", group="regionfed", low=0)
    size_ratio: float = declare(
        1.5, "router: a region this many times the mean size is data-rich", group="regionfed", low=0
    )
    fallback: bool = declare(True, "router: back to grad after a drop in validation accuracy", group="regionfed")
    cooldown: int = declare(0, "router: further rounds on grad after a fallback", group="regionfed", low=0)
    hysteresis: float = declare(0.05, "router: margin around thresholds", group="regionfed", low=0)
    ldp_epsilon: float = declare(2.0, "router: local privacy of the users' intent reports", group="regionfed", above=0)

    @property
    def num_users(self) -> int:
        """Users in the whole federation."""
        return self.regions * self.users_per_region

    def to_flower(self) -> dict[str, Value]:
        """Return the keys as Flower writes them."""
        return {hyphens(f.name): getattr(self, f.name) for f in dataclasses.fields(self)}


def keys() -> tuple[KeyInfo, ...]:
    """Return all keys in the order of their declaration."""
    return describe_keys(RunConfig)


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
        checked[field.name] = check_value(name, value, field)
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
