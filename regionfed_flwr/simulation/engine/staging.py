"""The app folder that Flower bundles, and the files that configure one run."""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import tomli_w

import regionfed_flwr
from regionfed_flwr.config import RunConfig, Value, keys
from regionfed_flwr.errors import RegionFedError

# What Flower keeps in a bundle; it drops tests by name and refuses an include pattern that holds anything else.
_KEPT = (".py", ".json", ".jsonl", ".md", ".toml", ".yaml", ".yml")


def config_section(config: RunConfig | None = None) -> str:
    """Return the manifest's ``[tool.flwr.app.config]`` section as TOML.

    Parameters
    ----------
    config : RunConfig, optional
        The values to write; the defaults when omitted.
    """
    values = (config or RunConfig()).to_flower()
    parts = ["[tool.flwr.app.config]\n"]
    for group, members in groupby(keys(), key=lambda key: key.group):
        parts.append(f"# {group}\n" + tomli_w.dumps({key.name: values[key.name] for key in members}))
    return "".join(parts)


def manifest(config: RunConfig | None = None) -> str:
    """Return a whole ``pyproject.toml`` for the app, as Flower reads it.

    An installed wheel holds no such file, so a run brings its own.

    Parameters
    ----------
    config : RunConfig, optional
        The run configuration's values; the defaults when omitted.
    """
    head = {
        "project": {
            "name": "regionfed-flwr",
            "version": regionfed_flwr.__version__,
            "description": "Regional personalization for federated learning.",
            "license": "Apache-2.0",
        },
        "tool": {
            "flwr": {
                "app": {
                    "publisher": "regionfed",
                    "components": {
                        "serverapp": "regionfed_flwr.server_app:app",
                        "clientapp": "regionfed_flwr.client_app:app",
                    },
                }
            }
        },
    }
    return f"{tomli_w.dumps(head)}\n{config_section(config)}"


def stage_package(folder: Path) -> Path:
    """Copy this package and a manifest into ``folder/app``, ready for ``flwr run``, and return that folder."""

    def dropped(directory: str, names: list[str]) -> set[str]:
        here = Path(directory)
        return {n for n in names if n == "__pycache__" or not ((here / n).is_dir() or n.endswith(_KEPT))}

    app = folder / "app"
    shutil.copytree(Path(regionfed_flwr.__file__).parent, app / "regionfed_flwr", ignore=dropped)
    (app / "pyproject.toml").write_text(manifest(), encoding="utf-8")
    return app


def declared_keys(app_dir: Path) -> set[str]:
    """Return the run configuration keys that an app's manifest declares; those in a table are dotted.

    Raises
    ------
    RegionFedError
        When the folder holds no readable Flower manifest.
    """
    try:
        text = (app_dir / "pyproject.toml").read_text(encoding="utf-8")
        return set(_dotted(tomllib.loads(text)["tool"]["flwr"]["app"].get("config", {})))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RegionFedError(
            f"'{app_dir}' is no Flower app: its pyproject.toml needs a [tool.flwr.app] section ({error})."
        ) from error


def _dotted(table: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _dotted(value, f"{prefix}{name}.")
        else:
            yield prefix + name


def run_values(config: RunConfig, app_dir: Path | None, given: Mapping[str, Value]) -> dict[str, Value]:
    """Return the run configuration to submit, but for the output folder.

    Parameters
    ----------
    config : RunConfig
        The values for this package's app.
    app_dir : Path or None
        Folder of another app, which keeps its own defaults.
    given : Mapping[str, bool or int or float or str]
        What is set for that app.

    Raises
    ------
    RegionFedError
        For a key that the other app does not declare, as Flower would refuse it.
    """
    if app_dir is None:
        data, model = _absolute(config.data_path), config.model
        return config.to_flower() | {"data-path": data, "model": _absolute(model) if "/" in model else model}
    declared = declared_keys(app_dir)
    for name in (*given, "output-dir"):
        if name not in declared:
            raise RegionFedError(f"The configuration key '{name}' is not declared in the manifest of '{app_dir}'.")
    return dict(given)


def _absolute(name: str) -> str:
    """Return a local path as an absolute one, since the app runs in another folder; leave a hub name as it is."""
    path = Path(name).expanduser()
    return str(path.absolute()) if name and path.exists() else name


def write_run_config(path: Path, values: Mapping[str, Value]) -> None:
    """Write the one TOML file that overrides the manifest's defaults."""
    path.write_text(tomli_w.dumps(dict(values)), encoding="utf-8")
