"""The example of the drop-in strategy as a person runs it: `regionfed run --app`, with real processes."""

import json

import psutil
import pytest
import torch

from tests.e2e.wrapper import ROOT, Wrapper

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(not psutil.LINUX, reason="needs /proc"),
]


def test_example_ends_well_and_its_regional_models_beat_the_shared_one(tmp_path):
    wrapper = Wrapper(tmp_path, "plug-in", "--app", str(ROOT / "examples" / "plug_in"), "--nodes", "4")
    try:
        ended = wrapper.end()
    finally:
        wrapper.kill()
    assert ended.code == 0, ended.err
    assert ended.survivors == []
    results = json.loads((wrapper.output / "results.json").read_text())
    assert results["eval_acc"] > results["shared-eval_acc"] + 0.03
    assert results["eval_loss"] < results["shared-eval_loss"]
    models = {p.stem: torch.load(p) for p in wrapper.output.glob("final_model*.pt")}
    assert sorted(models) == ["final_model", "final_model-north", "final_model-south"]
    counter = "layers.1.num_batches_tracked"
    assert {(m[counter].dtype, int(m[counter])) for m in models.values()} == {(torch.int64, 5 * 2 * 13)}
