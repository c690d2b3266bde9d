"""How a configuration key is declared, described and checked."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from regionfed_flwr.errors import RegionFedError

Value = bool | int | float | str


def declare(
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


def describe_keys(config: type) -> tuple[KeyInfo, ...]:
    """Return the keys of a configuration class in the order of their declaration."""
    return tuple(
        KeyInfo(hyphens(f.name), type(_default(f)), _default(f), _allowed(f), f.metadata["help"], f.metadata["group"])
        for f in dataclasses.fields(config)
    )


def _default(field: dataclasses.Field[Any]) -> Value:
    assert isinstance(field.default, bool | int | float | str)  # every field is made by declare
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


def check_value(name: str, value: Any, field: dataclasses.Field[Any]) -> Value:
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
