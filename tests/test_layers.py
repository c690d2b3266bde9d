"""Imports point downwards, and what must start quickly stays light."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "regionfed_flwr"
HEAVY = ("ray", "transformers", "datasets", "matplotlib")
ABOVE = {
    "core": ("data", "models", "privacy", "strategies", "simulation", "experiments", "cli", "server_app", "client_app"),
    "privacy": ("strategies", "simulation", "experiments", "cli", "server_app", "client_app"),
    "data": ("strategies", "simulation", "experiments", "cli", "server_app", "client_app"),
    "models": ("strategies", "simulation", "experiments", "cli", "server_app", "client_app"),
    "strategies": ("simulation", "experiments", "cli", "server_app", "client_app"),
}


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("layer", ABOVE)
def test_imports_point_downwards(layer):
    for path in (PACKAGE / layer).rglob("*.py"):
        for name in imports(path):
            parts = name.split(".")
            if parts[0] == "regionfed_flwr" and len(parts) > 1:
                assert parts[1] not in ABOVE[layer], f"{path.name} imports {name}"


def test_core_knows_no_flower():
    for path in (PACKAGE / "core").rglob("*.py"):
        assert not any(name.split(".")[0] == "flwr" for name in imports(path)), path


def loaded_after(statement):
    code = f"{statement}; import sys; print(' '.join(sorted({{m.split('.')[0] for m in sys.modules}})))"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import regionfed_flwr", ("flwr", "torch", *HEAVY)),
        ("import regionfed_flwr.cli", ("flwr", "torch", *HEAVY)),
        ("import regionfed_flwr.strategies", HEAVY),
        ("import regionfed_flwr.strategies.regionfed, regionfed_flwr.strategies.fedavg", HEAVY),
        ("import regionfed_flwr.client_app", HEAVY),
    ],
)
def test_light_imports(statement, absent):
    assert not loaded_after(statement) & set(absent)


def test_a_client_with_the_small_encoder_never_imports_transformers():
    statement = (
        "from regionfed_flwr.config import parse_config; from regionfed_flwr.strategies.workbench import Workbench; "
        "Workbench(parse_config({}, model='encoder-tiny', samples_per_user=4)).user(0)"
    )
    assert not loaded_after(statement) & set(HEAVY)


def test_methods_are_named_in_their_own_files_only():
    from regionfed_flwr.strategies.registry import METHODS

    for name in (
        "client_app.py",
        "server_app.py",
        "strategies/base.py",
        "strategies/node.py",
        "strategies/exchange.py",
    ):
        text = (PACKAGE / name).read_text()
        for method in METHODS.values():
            for half in (method.server, method.client):
                assert not re.search(rf"\b{half}\b", text), f"{name} names {half}"


def test_files_stay_short():
    long = [str(p) for p in PACKAGE.rglob("*.py") if len(p.read_text().splitlines()) > 340]
    assert long == []
