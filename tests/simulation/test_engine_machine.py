import pytest
from flwr.common.config import parse_config_args
from hypothesis import assume, given
from hypothesis import strategies as st

from regionfed_flwr.config import RunConfig
from regionfed_flwr.errors import RegionFedError
from regionfed_flwr.simulation.engine import machine
from regionfed_flwr.simulation.engine.machine import Layout, plan_layout

FEW, MANY = RunConfig(regions=1, users_per_region=3), RunConfig(regions=8, users_per_region=4)


@pytest.mark.parametrize(
    ("config", "cores", "gpus", "options", "layout"),
    [
        (MANY, 2, 0, {}, Layout(2, 2, 1, 0.0)),
        (FEW, 16, 0, {}, Layout(3, 3, 1, 0.0)),
        (MANY, 2, 0, {"nodes": 8}, Layout(8, 2, 1, 0.0)),
        (MANY, 16, 0, {"cpus_per_node": 3}, Layout(5, 5, 3, 0.0)),
        (MANY, 4, 1, {}, Layout(4, 4, 1, 0.25)),
        (MANY, 2, 8, {}, Layout(2, 2, 1, 4.0)),
        (MANY, 16, 1, {"gpus_per_node": 0.5}, Layout(16, 2, 1, 0.5)),
        (MANY, 4, 1, {"gpus_per_node": 0.0}, Layout(4, 4, 1, 0.0)),
        (RunConfig(device="cpu"), 2, 1, {}, Layout(2, 2, 1, 0.0)),
    ],
)
def test_layout_fits_the_machine(config, cores, gpus, options, layout):
    assert plan_layout(config, cores=cores, visible_gpus=gpus, **options) == layout


@given(cores=st.integers(1, 64), gpus=st.integers(0, 8), nodes=st.none() | st.integers(1, 100), cpus=st.integers(1, 64))
def test_processes_never_need_more_than_there_is(cores, gpus, nodes, cpus):
    assume(cpus <= cores)
    layout = plan_layout(MANY, cores=cores, visible_gpus=gpus, nodes=nodes, cpus_per_node=cpus)
    assert 1 <= layout.processes <= layout.nodes
    assert layout.processes * layout.cpus <= cores
    assert layout.processes * layout.gpus <= gpus
    assert layout.gpus <= 1 or layout.gpus == int(layout.gpus)


@pytest.mark.parametrize(
    ("config", "options", "sentence"),
    [
        (MANY, {"nodes": 0}, "--nodes is 0"),
        (MANY, {"cpus_per_node": 3}, "--cpus-per-node is 3, but allowed is a whole number from 1 to this machine's 2"),
        (MANY, {"cpus_per_node": 0}, "--cpus-per-node is 0"),
        (MANY, {"gpus_per_node": 1.0}, "this machine shows none"),
        (RunConfig(device="cuda"), {}, "this machine shows none"),
        (MANY, {"gpus_per_node": -1.0, "visible_gpus": 2}, "--gpus-per-node is -1"),
        (MANY, {"gpus_per_node": 1.5, "visible_gpus": 2}, "--gpus-per-node is 1.5"),
        (MANY, {"gpus_per_node": 3.0, "visible_gpus": 2}, "--gpus-per-node is 3"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(config, options, sentence):
    with pytest.raises(RegionFedError, match=sentence):
        plan_layout(config, **({"cores": 2, "visible_gpus": 0} | options))


def test_flower_reads_the_federation_configuration():
    text = Layout(8, 2, 1, 0.125).federation_config()
    assert parse_config_args([text]) == {
        "num-supernodes": 8,
        "client-resources-num-cpus": 1,
        "client-resources-num-gpus": 0.125,
        "init-args-num-cpus": 2,
    }


@pytest.mark.parametrize(("visible", "count"), [(None, 2), ("", 0), ("-1", 0), ("1", 1), ("0,1", 2), ("0,1,5", 2)])
def test_gpus_are_those_present_and_visible(tmp_path, monkeypatch, visible, count):
    command = tmp_path / "nvidia-smi"
    command.write_text("#!/bin/sh\necho 'GPU 0: one'\necho 'GPU 1: two'\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert machine.count_gpus() == count


def test_no_driver_means_no_gpu(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert machine.count_gpus() == 0
