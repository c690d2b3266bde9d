"""The ``regionfed`` command.

Nothing heavy is imported before a command needs it: ``regionfed --help`` answers at once.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Column, Table
from rich.text import Text

import regionfed_flwr
from regionfed_flwr.config import KeyInfo, Value, keys, parse_config
from regionfed_flwr.errors import RegionFedError

_STEPS_PER_LINE = 500

app = typer.Typer(
    help="Regional personalization for federated learning.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.command()
def run(
    config: Annotated[Path | None, typer.Option("--config", help="TOML file with configuration keys.")] = None,
    values: Annotated[
        list[str] | None,
        typer.Option("-c", "--set", metavar="KEY=VALUE", help="A configuration key; wins over --config."),
    ] = None,
    nodes: Annotated[int | None, typer.Option(help="Nodes that host the users.", show_default="one a core")] = None,
    cpus_per_node: Annotated[int, typer.Option(help="Cores of a node while it works.")] = 1,
    gpus_per_node: Annotated[
        float | None, typer.Option(help="GPUs of a node while it works.", show_default="shared evenly")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="New or empty folder for the artifacts.", show_default="runs/<time>-<run-name>")
    ] = None,
    app_dir: Annotated[Path | None, typer.Option("--app", help="Run the Flower app in this folder instead.")] = None,
) -> None:
    """Simulate a federation on this machine, from the configuration to tables and pictures."""
    given = _read_toml(config) | dict(map(parse_assignment, values or []))
    own = {key.name for key in keys()}
    # Another app may have keys of its own, which only its manifest knows.
    run_config = parse_config({name: value for name, value in given.items() if app_dir is None or name in own})
    from regionfed_flwr.simulation.engine import run_simulation

    outcome = run_simulation(
        run_config,
        output=output,
        nodes=nodes,
        cpus_per_node=cpus_per_node,
        gpus_per_node=gpus_per_node,
        app_dir=app_dir,
        app_values=given if app_dir else None,
        console=Console(),
    )
    if outcome.exit_code:
        _complain(outcome.reason)
        typer.echo(f"Logs: {outcome.logs}", err=True)
        raise typer.Exit(outcome.exit_code)
    _print_artifacts(outcome.output)


@app.command("config")
def show_config(
    markdown: Annotated[bool, typer.Option("--markdown", help="As a Markdown table.")] = False,
    toml: Annotated[bool, typer.Option("--toml", help="As the section of Flower's manifest.")] = False,
) -> None:
    """List every configuration key with its type, default and what is allowed."""
    if markdown:
        typer.echo(markdown_table())
    elif toml:
        from regionfed_flwr.simulation.engine.staging import config_section

        typer.echo(config_section(), nl=False)
    else:
        Console().print(_table())


@app.command()
def pretrain(
    out: Annotated[Path, typer.Option(help="Folder for the tokenizer and the weights.")] = Path("pretrained"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of every draw.")] = 0,
    steps: Annotated[int | None, typer.Option(min=1, help="Optimizer steps.", show_default="as packaged")] = None,
) -> None:
    """Pretrain the small T5 whose weights come with the package."""
    from regionfed_flwr.models import pretrain as pretraining

    console = Console()
    with Progress(console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("Pretraining", total=steps or pretraining.STEPS)

        def show(step: int, total: int, loss: float) -> None:
            progress.update(task, completed=step, description=f"Pretraining, loss {loss:.3f}")
            if not console.is_terminal and (step % _STEPS_PER_LINE == 0 or step == total):
                typer.echo(f"Step {step}/{total}: loss {loss:.3f}")

        scores = pretraining.pretrain(out, seed, steps or pretraining.STEPS, show)
    typer.echo(", ".join(f"{task} {score:.3f}" for task, score in scores.items()))
    typer.echo(f"Weights: {out.absolute()}")


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(regionfed_flwr.__version__)


def parse_assignment(text: str) -> tuple[str, Value]:
    """Split ``key=value``; the value is a TOML literal, or else the plain words themselves.

    Parameters
    ----------
    text : str
        For example ``rho=0.5``, ``method=fedavg`` or ``run-name="first try"``.

    Returns
    -------
    tuple of str and value

    Raises
    ------
    RegionFedError
        Without a key or an equals sign.
    """
    name, equals, literal = (part.strip() for part in text.partition("="))
    if not name or not equals:
        raise RegionFedError(f"'{text}' is no configuration value; write KEY=VALUE, for example -c rho=0.5.")
    try:
        parsed = tomllib.loads(f"value = {literal}")
    except tomllib.TOMLDecodeError:
        return name, literal
    value = parsed["value"]
    return name, value if len(parsed) == 1 and isinstance(value, bool | int | float | str) else literal


def markdown_table() -> str:
    """Return the table of configuration keys as Markdown."""
    head = ["| key | type | default | allowed | what it is |", "|---|---|---|---|---|"]
    rows = []
    for key in keys():
        name, kind, default, allowed, text = (cell.replace("|", r"\|") for cell in _row(key))
        rows.append(f"| `{name}` | {kind} | `{default}` | {allowed} | {text} |")
    return "\n".join([*head, *rows])


def _table() -> Table:
    folded = [Column(name, overflow="fold") for name in ("type", "default", "allowed", "what it is")]
    table = Table(Column("key", no_wrap=True), *folded, header_style="bold")
    following = [*(key.group for key in keys()[1:]), ""]
    for key, next_group in zip(keys(), following, strict=True):
        table.add_row(*map(Text, _row(key)), end_section=key.group != next_group)
    return table


def _row(key: KeyInfo) -> tuple[str, str, str, str, str]:
    default = str(key.default).lower() if key.kind is bool else str(key.default)
    return key.name, key.kind.__name__, f'"{default}"' if key.kind is str else default, key.allowed, key.help


def _read_toml(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RegionFedError(f"The configuration file '{path}' cannot be read: {error.strerror}.") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise RegionFedError(f"The configuration file '{path}' is not valid TOML: {error}.") from error


def _print_artifacts(folder: Path) -> None:
    table = folder / "table.txt"
    if table.is_file():
        typer.echo(f"\n{table.read_text(encoding='utf-8').rstrip()}\n")
    typer.echo(f"Artifacts: {folder}")
    for picture in sorted((folder / "figures").glob("*.png")):
        typer.echo(f"Picture:   {picture}")


def _complain(sentence: str) -> None:
    typer.echo(f"regionfed: {sentence}", err=True)


def main() -> None:
    """Run the command line; a mistake of the user's ends with one sentence and exit code 2."""
    try:
        app(prog_name="regionfed")
    except RegionFedError as error:
        _complain(str(error))
        sys.exit(2)


if __name__ == "__main__":
    main()
