"""The ServerApp."""

import json
from pathlib import Path

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp

from quickstart.task import Net
from regionfed_flwr.strategies import RegionFed

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train, and keep the last round's metrics and the models."""
    config = context.run_config
    torch.manual_seed(0)
    fraction = float(config["fraction-evaluate"])
    strategy = RegionFed(fraction_evaluate=fraction, region_query="region", evaluate_shared=True)
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(Net().state_dict()),
        train_config=ConfigRecord({"lr": float(config["learning-rate"])}),
        num_rounds=int(config["num-server-rounds"]),
    )
    if config["output-dir"]:
        folder = Path(str(config["output-dir"]))
        folder.mkdir(parents=True, exist_ok=True)
        torch.save(result.arrays.to_torch_state_dict(), folder / "final_model.pt")
        for region, arrays in strategy.regional_arrays.items():
            torch.save(arrays.to_torch_state_dict(), folder / f"final_model-{region}.pt")
        last = result.evaluate_metrics_clientapp[max(result.evaluate_metrics_clientapp)]
        (folder / "results.json").write_text(json.dumps(dict(last), indent=2))
