"""RegionFed in the place of Flower's FedAvg: quadratics with closed forms, and the example's own apps."""

import importlib
import json
import math
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from hypothesis import given, settings
from hypothesis import strategies as st

from regionfed_flwr.core.alpha import personalization_weight
from regionfed_flwr.errors import RegionFedError
from regionfed_flwr.simulation.in_process import InProcessGrid, run_in_process
from regionfed_flwr.strategies import RegionFed

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "plug_in"
FIRST = 1000  # id of an in-process grid's first node


class CountingGrid(InProcessGrid):
    """Remembers what was sent, by message type."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.sent = []

    def push_messages(self, messages):
        messages = list(messages)
        self.sent += messages
        return super().push_messages(messages)

    def count(self, kind):
        return sum(m.metadata.message_type == kind for m in self.sent)


class Points:
    """Nodes with loss |x - c|^2 / 2 that go a fraction of the way to their centre c, and count their steps."""

    def __init__(self, centres, examples=None, step=0.5, spoil=lambda kind, node, content: content):
        self.centres = [np.atleast_1d(np.array(c, dtype=np.float32)) for c in centres]
        self.examples = examples or [1] * len(centres)
        self.step, self.spoil = step, spoil
        self.start = ArrayRecord(
            {
                "x": Array(np.zeros_like(self.centres[0])),
                "bn.running_mean": Array(np.zeros(2, np.float32)),
                "bn.num_batches_tracked": Array(np.array(0, np.int64)),
            }
        )

    def app(self):
        app = ClientApp()

        @app.train()
        def train(message, context):
            node = context.node_config["partition-id"]
            x, mean, count = (message.content["arrays"][k].numpy() for k in self.start)
            steps = message.content["config"].get("local-steps", 2)
            for _ in range(steps):
                x = x + np.float32(self.step) * (self.centres[node] - x)
            values = x, mean + 1 + node, count + steps + node
            arrays = ArrayRecord({k: Array(np.asarray(v)) for k, v in zip(self.start, values, strict=True)})
            metrics = MetricRecord({"train_loss": float(node), "num-examples": self.examples[node]})
            content = RecordDict({"arrays": arrays, "metrics": metrics})
            return Message(self.spoil("train", node, content), reply_to=message)

        @app.evaluate()
        def evaluate(message, context):
            node = context.node_config["partition-id"]
            x = message.content["arrays"]["x"].numpy()
            loss = float(np.square(x - self.centres[node]).sum() / 2)
            metrics = MetricRecord({"eval_loss": loss, "x": float(x[0]), "num-examples": self.examples[node]})
            return Message(self.spoil("evaluate", node, RecordDict({"metrics": metrics})), reply_to=message)

        return app

    def grid(self, kind=CountingGrid):
        return kind(self.app(), len(self.centres), {})

    def run(self, strategy, rounds=1, grid=None, **kwargs):
        grid = grid or self.grid()
        return strategy.start(grid, self.start, num_rounds=rounds, timeout=5.0, **kwargs)


def regions(*names):
    return {FIRST + node: name for node, name in enumerate(names)}


def values(record, key="x"):
    return record[key].numpy()


def exact(**kwargs):
    """Return a strategy that deploys rho times the direction."""
    return RegionFed(alpha_mode="one", **kwargs)


# --- the shared model is FedAvg's ------------------------------------------------------------------------------------


def test_shared_model_and_metrics_are_fedavgs():
    points = Points([[1, 2], [3, -4], [5, 6], [-7, 8]], examples=[1, 2, 3, 4])
    expected = points.run(FedAvg(), rounds=3)
    result = points.run(RegionFed(region_of=regions("a", "b", "a", "b")), rounds=3)
    for key in ("x", "bn.running_mean"):
        np.testing.assert_allclose(values(result.arrays, key), values(expected.arrays, key), rtol=1e-5)
    for number, metrics in expected.train_metrics_clientapp.items():
        assert dict(result.train_metrics_clientapp[number]) == pytest.approx(dict(metrics))
    assert isinstance(RegionFed(region_of={}), FedAvg)
    assert RegionFed(0.5, region_of={}).fraction_train == 0.5


@pytest.mark.parametrize("options", [{}, {"strategy": "interp"}, {"rho_search": "section-k"}])
def test_a_single_region_is_fedavg(options):
    points = Points([[1], [3], [5]], examples=[1, 1, 2])
    grids = points.grid(), points.grid()
    expected = points.run(FedAvg(), 2, grids[0])
    strategy = RegionFed(region_of=regions("a", "a", "a"), **options)
    result = points.run(strategy, 2, grids[1])
    assert values(result.arrays) == pytest.approx(values(expected.arrays))
    assert values(strategy.regional_arrays["a"]) == values(result.arrays)
    assert [m.metadata.message_type for m in grids[1].sent] == [m.metadata.message_type for m in grids[0].sent]
    for number, metrics in expected.evaluate_metrics_clientapp.items():
        assert dict(result.evaluate_metrics_clientapp[number]) == pytest.approx(dict(metrics))


def replies_of(rows):
    InProcessGrid(ClientApp(), 1, {})  # a Message cannot be made without
    replies = []
    for node, (weight, x, count) in enumerate(rows):
        arrays = {"x": Array(np.array(x, np.float32)), "count": Array(np.array(count, np.int64))}
        content = {"arrays": ArrayRecord(arrays), "metrics": MetricRecord({"num-examples": weight, "loss": x[0]})}
        reply = Message(RecordDict(content), reply_to=Message(RecordDict(), FIRST + node, "train"))
        reply.metadata.__dict__["_src_node_id"] = FIRST + node
        replies.append(reply)
    return replies


row = st.tuples(st.integers(1, 1000), st.tuples(*[st.floats(-100, 100, width=32)] * 3), st.integers(0, 10**6))


@settings(max_examples=50, deadline=None)
@given(rows=st.lists(row, min_size=1, max_size=6), seed=st.randoms(use_true_random=False))
def test_aggregation_alone_is_fedavgs_in_any_order(rows, seed):
    names = regions(*["a", "b", "a", "c", "b", "a"])
    expected, expected_metrics = FedAvg().aggregate_train(1, replies_of(rows))
    arrays, metrics = RegionFed(region_of=names).aggregate_train(1, replies_of(rows))
    scale = max(abs(v) for _, x, _ in rows for v in x)
    np.testing.assert_allclose(values(arrays), values(expected), rtol=1e-6, atol=1e-6 * scale)
    assert values(arrays, "count") == pytest.approx(values(expected, "count"), abs=0.5 + 1e-6)
    assert dict(metrics) == pytest.approx(dict(expected_metrics))
    shuffled = replies_of(rows)
    seed.shuffle(shuffled)
    again, _ = RegionFed(region_of=names.get).aggregate_train(1, shuffled)
    assert {k: a.data for k, a in again.items()} == {k: a.data for k, a in arrays.items()}


# --- directions ------------------------------------------------------------------------------------------------------

TWO = {"centres": [[1.0, 0], [4.0, 2], [-2.0, 8]], "examples": [1, 3, 2]}


@pytest.mark.parametrize("rho", [0.0, 0.3, 1.0])
def test_grad_moves_from_the_shared_model_towards_the_regions_own_mean(rho):
    points = Points(**TWO)
    strategy = exact(region_of=regions("a", "a", "b"), rho=rho)
    shared = values(points.run(strategy).arrays)
    a, b = (1 * points.centres[0] + 3 * points.centres[1]) / 4 * 0.75, points.centres[2] * 0.75
    assert shared == pytest.approx((4 * a + 2 * b) / 6)
    for name, own in {"a": a, "b": b}.items():
        assert values(strategy.regional_arrays[name]) == pytest.approx(shared + rho * (own - shared))
        assert strategy.region_states[name].conflict == pytest.approx(np.linalg.norm(own - shared))


def test_interp_is_one_more_round_of_the_region_from_the_new_shared_model():
    points = Points(**TWO)
    grid = points.grid()
    strategy = exact(region_of=regions("a", "a", "b"), strategy="interp")
    result = points.run(strategy, grid=grid, train_config=ConfigRecord({"lr": 0.1}))
    alone = Points(TWO["centres"][:2], TWO["examples"][:2])
    alone.start = result.arrays
    assert values(strategy.regional_arrays["a"]) == pytest.approx(values(alone.run(FedAvg()).arrays))
    assert grid.count("train") == 6
    assert all(
        m.content["config"] == {"lr": 0.1, "server-round": 1} for m in grid.sent if "train" in m.metadata.message_type
    )


def test_meta_is_interp_unless_the_client_is_told_to_take_one_step():
    points, names = Points(**TWO), regions("a", "a", "b")
    interp, meta, one = (
        exact(region_of=names, **options)
        for options in (
            {"strategy": "interp"},
            {"strategy": "meta"},
            {"strategy": "meta", "meta_config": {"local-steps": 1}},
        )
    )
    shared = [values(points.run(s).arrays) for s in (interp, meta, one)]
    assert values(meta.regional_arrays["a"]) == pytest.approx(values(interp.regional_arrays["a"]))
    assert shared[2] == pytest.approx(shared[0])
    own = (points.centres[0] + 3 * points.centres[1]) / 4
    assert values(one.regional_arrays["a"]) == pytest.approx(shared[2] + 0.5 * (own - shared[2]))


def test_region_that_cannot_train_on_gets_the_direction_of_grad(caplog):
    asked = []

    def spoil(kind, node, content):
        asked.append(node)
        if node == 2 and asked.count(2) == 2:
            raise RuntimeError("the disk is full")
        return content

    points, names = Points(**TWO, spoil=spoil), regions("a", "a", "b")
    strategy = exact(region_of=names, strategy="interp")
    points.run(strategy)
    grad = exact(region_of=names)
    Points(**TWO).run(grad)
    assert values(strategy.regional_arrays["b"]) == pytest.approx(values(grad.regional_arrays["b"]))
    assert "region b could not train on and gets the direction 'grad'" in caplog.text


def test_region_that_is_absent_keeps_its_direction_around_the_new_shared_model():
    trained = []

    def spoil(kind, node, content):
        trained.append((kind, node))
        return content if node < 2 or trained.count(("train", 2)) < 2 else RecordDict()

    strategy = exact(region_of=regions("a", "a", "b"), rho=0.5)
    result = Points(**TWO, spoil=spoil).run(strategy, rounds=2)
    first = exact(region_of=regions("a", "a", "b"), rho=0.5)
    before = values(Points(**TWO).run(first).arrays)
    offset = values(first.regional_arrays["b"]) - before
    assert values(strategy.regional_arrays["b"]) == pytest.approx(values(result.arrays) + offset)


def test_alpha_is_equation_six_and_one_is_one():
    points, names = Points([[0.0], [2.0], [8.0]]), regions("a", "b", "c")
    strategy = RegionFed(region_of=names, alpha_min=0.2, tau=3.0, rho=0.5)
    shared = values(points.run(strategy).arrays)
    own = np.array([0.0, 1.5, 6.0])
    distances = abs(own - own.mean())
    for i, state in enumerate(strategy.region_states[r] for r in "abc"):
        assert state.alpha == pytest.approx(personalization_weight(distances[i], np.median(distances), 0.2, 3.0))
        expected = shared + state.alpha * 0.5 * (own[i] - shared)
        assert values(strategy.regional_arrays["abc"[i]]) == pytest.approx(expected)
    flat = exact(region_of=names)
    points.run(flat)
    assert {state.alpha for state in flat.region_states.values()} == {1.0}


# --- the search ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("search", ["section-k", "golden"])
def test_search_finds_the_planted_optimum_of_the_weighted_loss(search):
    # One step of 0.8: v = 0.8 (c - shared's c) and shared = 0, so that the weighted centre lies at rho = 1 / 0.8.
    points = Points([[1.0], [4.0], [-3.25], [-3.25]], examples=[1, 3, 2, 2], step=0.8)
    strategy = exact(region_of=regions("a", "a", "b", "b"), rho_search=search)
    grid = points.grid()
    points.run(
        strategy, grid=grid, train_config=ConfigRecord({"local-steps": 1}), evaluate_config=ConfigRecord({"k": 7})
    )
    for state in strategy.region_states.values():
        assert state.rho == pytest.approx(1.25, abs=0.01)
        assert state.search.exchanges == {"section-k": 5, "golden": 13}[search]
    assert values(strategy.regional_arrays["a"]) == pytest.approx([3.25], abs=0.03)
    assert all(
        m.content["config"] == {"k": 7, "server-round": 1} for m in grid.sent if m.metadata.message_type == "evaluate"
    )
    assert grid.count("train") == 4


def test_search_keeps_the_shared_model_where_no_point_is_better_and_counts_nan_as_the_worst():
    def spoil(kind, node, content):
        if kind == "evaluate" and content["metrics"]["x"] != 0.0:
            content["metrics"]["eval_loss"] = [math.nan, 1e9][node % 2]
        return content

    points = Points([[4.0], [-4.0]], spoil=spoil)
    strategy = exact(region_of=regions("a", "b"), rho_search="section-k", evaluate_shared=True)
    result = points.run(strategy)
    assert [state.rho for state in strategy.region_states.values()] == [0.0, 0.0]
    assert result.evaluate_metrics_clientapp[1]["shared-eval_loss"] == 8.0


def test_node_that_cannot_be_measured_is_left_out_of_the_search(caplog):
    def spoil(kind, node, content):
        if kind == "evaluate" and node == 1:
            raise RuntimeError("the disk is full")
        return content

    points = Points([[2.0], [9.0], [-5.5]], examples=[1, 1, 2], step=0.8, spoil=spoil)
    strategy = exact(region_of=regions("a", "a", "b"), rho_search="golden")
    points.run(strategy, train_config=ConfigRecord({"local-steps": 1}))
    assert values(strategy.regional_arrays["a"]) == pytest.approx([2.0], abs=0.05)  # node 0's own optimum
    assert "search: node 1001 is left out: its client raised: the disk is full" in caplog.text


def test_region_without_any_loss_keeps_the_fixed_intensity():
    points = Points([[2.0], [-2.0]], spoil=lambda kind, node, c: RecordDict() if (kind, node) == ("evaluate", 0) else c)
    strategy = exact(region_of=regions("a", "b"), rho_search="section-k", rho=0.7)
    points.run(strategy)
    assert strategy.region_states["a"].rho == 0.7
    assert strategy.region_states["a"].search is None
    assert strategy.region_states["b"].search is not None


def test_search_without_the_loss_in_any_reply_names_the_key():
    strategy = RegionFed(region_of=regions("a", "b"), rho_search="section-k", loss_key="loss")
    with pytest.raises(RegionFedError, match=r"no number 'loss', but eval_loss, num-examples, x; loss_key names"):
        Points([[1.0], [2.0]]).run(strategy)


# --- bad replies -----------------------------------------------------------------------------------------------------


def raises(content):
    raise RuntimeError("the disk is full")


def with_metrics(**changes):
    def change(content):
        kept = {k: v for k, v in (dict(content["metrics"]) | changes).items() if v is not None}
        return RecordDict({**content, "metrics": MetricRecord(kept)})

    return change


def with_x(array):
    return lambda content: RecordDict({**content, "arrays": ArrayRecord({**content["arrays"], "x": array})})


BAD = [
    (raises, "its client raised: the disk is full"),
    (with_x(Array(np.array([math.nan], np.float32))), "its array 'x' holds a value that is not finite"),
    (with_x(Array(np.array([-math.inf], np.float32))), "its array 'x' holds a value that is not finite"),
    (with_x(Array(np.zeros((1, 1), np.float32))), "has shape (1, 1) instead of (1,)"),
    (with_x(Array("float32", (1,), "numpy.ndarray", b"rubbish")), "its array 'x' cannot be read"),
    (with_x(Array("float32", (1,), "pickle", b"rubbish")), "its array 'x' cannot be read"),
    (
        lambda c: RecordDict({**c, "arrays": ArrayRecord({"y": c["arrays"]["x"]})}),
        "array names differ from the model's",
    ),
    (lambda c: RecordDict({"metrics": c["metrics"]}), "it holds 0 ArrayRecords instead of one"),
    (lambda c: RecordDict({**c, "more": c["arrays"]}), "it holds 2 ArrayRecords instead of one"),
    (lambda c: RecordDict({"arrays": c["arrays"]}), "it holds 0 MetricRecords instead of one"),
    (with_metrics(**{"num-examples": None}), "its 'num-examples' is None"),
    (with_metrics(**{"num-examples": -1}), "its 'num-examples' is -1"),
    (with_metrics(**{"num-examples": math.nan}), "its 'num-examples' is nan"),
    (with_metrics(**{"num-examples": [1, 2]}), "its 'num-examples' is [1, 2]"),
    (with_metrics(extra=1.0), "its metrics are extra, num-examples, train_loss, but those of most nodes are"),
]


@pytest.mark.parametrize(("change", "reason"), BAD)
def test_bad_training_reply_is_left_out_with_a_sentence(change, reason, caplog):
    points = Points([[1], [2], [6]], spoil=lambda kind, node, c: change(c) if (kind, node) == ("train", 1) else c)
    result = points.run(RegionFed(region_of=regions("a", "b", "b")))
    assert values(result.arrays) == pytest.approx(3.5 * 0.75)
    assert result.train_metrics_clientapp[1] == {"train_loss": 1.0}
    assert any("node 1001 is left out" in r.message and reason in r.message for r in caplog.records)


@pytest.mark.parametrize("change", [raises, with_metrics(x=math.nan), with_metrics(more=1.0), lambda c: RecordDict()])
def test_bad_evaluation_reply_is_left_out(change, caplog):
    points = Points([[1], [2], [3]], spoil=lambda kind, node, c: change(c) if (kind, node) == ("evaluate", 1) else c)
    result = points.run(exact(region_of=regions("a", "b", "c")))
    assert result.evaluate_metrics_clientapp[1]["x"] == pytest.approx((1 + 3) / 2 * 0.75)
    assert "evaluate: node 1001 is left out" in caplog.text


def test_round_without_usable_reply_ends_with_the_first_reason():
    points = Points([[1], [2]], spoil=lambda kind, node, content: raises(content))
    with pytest.raises(
        RegionFedError, match=r"^Round 1 brought no usable reply .*: its client raised: the disk is full"
    ):
        points.run(RegionFed(region_of=regions("a", "b")))
    idle = Points([[1], [2]], examples=[0, 0])
    with pytest.raises(RegionFedError, match="its 'num-examples' is 0"):
        idle.run(RegionFed(region_of=regions("a", "b")))


def test_nothing_to_evaluate_and_nothing_to_train_are_no_errors():
    spoil = lambda kind, node, content: content if kind == "train" else raises(content)  # noqa: E731
    assert Points([[1], [2]], spoil=spoil).run(RegionFed(region_of=regions("a", "b"))).evaluate_metrics_clientapp == {}
    points = Points([[1], [2]])
    result = points.run(RegionFed(region_of=regions("a", "b"), fraction_train=0.0, evaluate_shared=True))
    assert result.train_metrics_clientapp == {}
    assert result.evaluate_metrics_clientapp[1]["x"] == 0.0


def test_node_without_a_reply_is_named(caplog):
    class Slow(InProcessGrid):
        def pull_messages(self, message_ids):
            return [m for m in super().pull_messages(message_ids) if m.metadata.src_node_id != 1001]

    points = Points([[1], [2], [6]])
    result = points.run(RegionFed(region_of=regions("a", "b", "b")), grid=points.grid(Slow))
    assert values(result.arrays) == pytest.approx(3.5 * 0.75)
    assert "Round 1, train: node 1001 is left out: no reply in time" in caplog.text


# --- evaluation ------------------------------------------------------------------------------------------------------


def test_nodes_judge_their_regions_model_and_when_asked_the_shared_one():
    points = Points([[4.0], [8.0], [0.0]], examples=[1, 1, 2])
    metrics = points.run(exact(region_of=regions("a", "a", "b"))).evaluate_metrics_clientapp[1]
    assert dict(metrics) == pytest.approx({"x": 0.5 * 4.5, "eval_loss": (0.5**2 + 3.5**2) / 2 / 4})
    both = points.run(exact(region_of=regions("a", "a", "b"), evaluate_shared=True)).evaluate_metrics_clientapp[1]
    shared = (1.75**2 + 5.75**2 + 2 * 2.25**2) / 2 / 4
    assert dict(both) == pytest.approx({**metrics, "shared-x": 2.25, "shared-eval_loss": shared})


# --- arrays ----------------------------------------------------------------------------------------------------------


def test_integers_and_buffers_are_the_shared_models_and_types_are_kept():
    points = Points([[1.0], [3.0]])
    strategy = exact(region_of=regions("a", "b"), strategy="interp")
    shared = points.run(strategy).arrays
    assert values(shared, "bn.num_batches_tracked").tolist() == 2  # the mean 2.5, rounded to even
    assert values(shared, "bn.running_mean").tolist() == [1.5, 1.5]
    for record in strategy.regional_arrays.values():
        assert list(record) == list(points.start)
        for key, array in record.items():
            assert (array.dtype, array.shape) == (points.start[key].dtype, points.start[key].shape)
            assert array.numpy().shape == array.shape
        for key in ("bn.running_mean", "bn.num_batches_tracked"):
            assert record[key].data == shared[key].data
    everything = exact(region_of=regions("a", "b"), buffers="$^")
    points.run(everything)
    assert values(everything.regional_arrays["a"], "bn.running_mean").tolist() == [1.0, 1.0]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", ">f4"])
def test_float_types_and_memory_orders_are_kept(dtype):
    def spoil(kind, node, content):
        if kind == "train":
            array = np.asfortranarray(np.arange(6).reshape(2, 3).astype(dtype) + node)
            content["arrays"] = ArrayRecord({"w": Array(array), "s": Array(np.array(node, dtype))})
        return content

    points = Points([[0.0], [0.0]], spoil=spoil)
    points.start = ArrayRecord({"w": Array(np.zeros((2, 3), dtype)), "s": Array(np.array(0, dtype))})
    strategy = exact(region_of=regions("a", "b"), fraction_evaluate=0.0)
    points.app = lambda: any_train(spoil)
    result = points.run(strategy)
    assert values(result.arrays, "w").tolist() == (np.arange(6).reshape(2, 3) + 0.5).tolist()
    assert values(strategy.regional_arrays["b"], "w").tolist() == (np.arange(6).reshape(2, 3) + 1).tolist()
    assert values(strategy.regional_arrays["b"], "s").shape == ()
    assert {a.dtype for a in strategy.regional_arrays["b"].values()} == {str(np.dtype(dtype))}


def any_train(spoil):
    app = ClientApp()

    @app.train()
    def train(message, context):
        content = RecordDict({"arrays": ArrayRecord(), "metrics": MetricRecord({"num-examples": 1})})
        return Message(spoil("train", context.node_config["partition-id"], content), reply_to=message)

    return app


# --- where regions come from -----------------------------------------------------------------------------------------


class Located(InProcessGrid):
    def get_nodes(self):
        return [NodeInfo(node_id=n, location="north" if n % 2 else "south") for n in self.get_node_ids()]


def answering(points, **answers):
    app = points.app()

    @app.query("home")
    def home(message, context):
        node = context.node_config["partition-id"]
        return Message(RecordDict({"config": ConfigRecord(answers[f"node_{node}"])}), reply_to=message)

    return app


def test_every_source_of_regions_gives_the_same_models():
    points = Points([[1.0], [2.0], [6.0]])
    names = regions("south", "north", "south")
    app = answering(points, node_0={"region": "south"}, node_1={"region": "north"}, node_2={"region": "south"})
    found = []
    for grid, source in (
        (points.grid(), {"region_of": names}),
        (points.grid(), {"region_of": names.__getitem__}),
        (CountingGrid(app, 3, {}), {"region_query": "home"}),
        (points.grid(Located), {"region_from": "location"}),
    ):
        strategy = exact(**source)
        points.run(strategy, rounds=2, grid=grid)
        found.append({name: values(record).tolist() for name, record in sorted(strategy.regional_arrays.items())})
        if "region_query" in source:
            assert grid.count("query.home") == 3  # once for each node, not once a round
    assert found[0].keys() == {"north", "south"}
    assert found == found[:1] * 4


def test_node_without_a_region_is_refused_with_a_sentence():
    points = Points([[1.0], [2.0]])
    app = answering(points, node_0={"region": "a"}, node_1={"place": "b"})
    for source, grid, sentence in (
        ({"region_of": {1000: "a"}}, points.grid(), "Node 1001 has no region: region_of has none for its id."),
        ({"region_of": lambda node: None}, points.grid(), "Node 1000 has no region: region_of has none for its id."),
        (
            {"region_query": "home"},
            InProcessGrid(app, 2, {}),
            "Node 1001 has no region: its answer to the query 'home'",
        ),
        ({"region_query": "home"}, points.grid(), 'its ClientApp needs a function under @app.query("home")'),
        ({"region_from": "location"}, points.grid(), "Node 1000 has no region: it was registered without one"),
    ):
        with pytest.raises(RegionFedError, match=re.escape(sentence)):
            points.run(RegionFed(**source), grid=grid)


def test_node_that_cannot_be_asked_for_its_region_is_left_out_until_it_answers(caplog):
    class Lossy(CountingGrid):
        def pull_messages(self, message_ids):
            replies = list(super().pull_messages(message_ids))
            lost = self.count("query.home") == 3
            return [self._lost(m) if lost and m.metadata.src_node_id == 1001 else m for m in replies]

        def _lost(self, reply):
            return Message(Error(5, "gone"), reply_to=Message(RecordDict(), 1, "query.home"))

    points = Points([[1.0], [2.0], [6.0]])
    app = answering(points, node_0={"region": "a"}, node_1={"region": "b"}, node_2={"region": "c"})
    grid = Lossy(app, 3, {})
    strategy = exact(region_query="home")
    points.run(strategy, rounds=2, grid=grid)
    trained = [m.metadata.dst_node_id for m in grid.sent if m.metadata.message_type == "train"]
    assert (sorted(trained[:2]), sorted(trained[2:])) == ([1000, 1002], [1000, 1001, 1002])
    assert "No answer about the region from node(s) 1001" in caplog.text
    assert sorted(strategy.regional_arrays) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "exactly one source of regions"),
        ({"region_of": {}, "region_query": "region"}, "exactly one source of regions"),
        ({"region_of": "north"}, "exactly one source of regions"),
        ({"region_from": "name"}, "region_from is 'name', but allowed is: 'location'."),
        ({"region_of": {}, "strategy": "dynamic"}, "strategy is 'dynamic', but allowed is: 'grad', 'interp', 'meta'."),
        ({"region_of": {}, "rho_search": "on-device"}, "rho_search is 'on-device'"),
        ({"region_of": {}, "alpha_mode": "theory"}, "alpha_mode is 'theory'"),
        ({"region_of": {}, "rho": -1.0}, "'rho' is -1.0"),
        ({"region_of": {}, "tau": 0}, "'tau' is 0"),
        ({"region_of": {}, "mu_mode": "mean"}, "'mu-mode' is 'mean'"),
        ({"region_of": {}, "rho_search": "golden", "rho_tolerance": 1e-9}, "tolerance 1e-09 must be at least"),
        ({"region_of": {}, "meta_config": {"local-steps": 1}}, "meta_config is only for strategy = 'meta'"),
    ],
)
def test_parameters_that_are_not_allowed_are_refused_at_once(options, sentence):
    with pytest.raises(RegionFedError, match=re.escape(sentence)):
        RegionFed(**options)


def test_a_second_start_begins_anew():
    points = Points(**TWO)
    strategy = RegionFed(region_of=regions("a", "a", "b"), mu_mode="per-region")
    points.run(strategy, rounds=2)
    first = {name: record["x"].data for name, record in strategy.regional_arrays.items()}
    points.run(strategy, rounds=2)
    assert {name: record["x"].data for name, record in strategy.regional_arrays.items()} == first


# --- the example, and the package ------------------------------------------------------------------------------------


@pytest.fixture
def quickstart(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLE)
    yield importlib.import_module("quickstart.client_app").app
    for name in [name for name in sys.modules if name.partition(".")[0] == "quickstart"]:
        del sys.modules[name]


def undo(diff, text):
    """Take a unified diff back."""
    for hunk in re.split(r"^@@.*\n", diff, flags=re.MULTILINE)[1:]:
        lines = hunk.splitlines()
        new = "".join(f"{line[1:]}\n" for line in lines if not line.startswith("-"))
        assert text.count(new) == 1, f"not in the example: {new}"
        text = text.replace(new, "".join(f"{line[1:]}\n" for line in lines if not line.startswith("+")))
    return text


def diff_of(page):
    return re.search(r"^```diff\n(.*?)^```", page.read_text(), flags=re.MULTILINE | re.DOTALL).group(1)


def test_printed_diff_leads_from_fedavg_to_the_example_and_the_shared_model_stays_the_same(quickstart, tmp_path):
    diff = diff_of(EXAMPLE / "README.md")
    assert diff == diff_of(ROOT / "docs" / "plug-in.md")
    source = (EXAMPLE / "quickstart" / "server_app.py").read_text()
    before = undo(diff, source)
    assert "regionfed" not in before.lower().split('"""', 2)[2]
    config = {
        "num-server-rounds": 3,
        "fraction-evaluate": 1.0,
        "local-epochs": 2,
        "learning-rate": 0.05,
        "batch-size": 32,
    }
    models, results = {}, {}
    for name, text in {"fedavg": before, "regionfed": source}.items():
        names: dict = {}
        exec(compile(text, name, "exec"), names)
        assert isinstance(names["app"], ServerApp)
        run_in_process(names["app"], quickstart, config | {"output-dir": str(tmp_path / name)}, num_nodes=4)
        models[name] = torch.load(tmp_path / name / "final_model.pt")
        results[name] = json.loads((tmp_path / name / "results.json").read_text())
    for key, value in models["regionfed"].items():
        torch.testing.assert_close(value, models["fedavg"][key].to(value.dtype), rtol=1e-4, atol=1e-5)
    assert results["regionfed"]["shared-eval_acc"] == pytest.approx(results["fedavg"]["eval_acc"], abs=0.01)
    assert results["regionfed"]["eval_acc"] > results["fedavg"]["eval_acc"] + 0.03
    regional = torch.load(tmp_path / "regionfed" / "final_model-north.pt")
    assert regional["layers.1.num_batches_tracked"].dtype == torch.int64


def test_the_strategies_import_nothing_heavy():
    heavy = {"ray", "transformers", "datasets", "matplotlib"}
    code = f"import sys, regionfed_flwr.strategies as s; s.RegionFed; sys.exit(bool({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
