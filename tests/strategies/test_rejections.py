"""Whatever a node or user does wrong is left out and counted; the round goes on with the rest."""

import math

import pytest
import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from regionfed_flwr.errors import RegionFedError
from regionfed_flwr.strategies.wire import encode_array
from tests.strategies.quadratics import Quadratics, make_client_app

CENTRES = [[1.0], [2.0], [3.0], [4.0]]


def spoil(change, partitions=(1,)):
    """Return a client app whose nodes with these partitions send a changed training reply."""

    def factory(bench):
        app = make_client_app(bench)
        honest = app._registered_funcs["train.default"]

        def train(message, context):
            reply = honest(message, context)
            if context.node_config["partition-id"] not in partitions:
                return reply
            return Message(change(reply.content), reply_to=message)

        app._registered_funcs["train.default"] = train
        return app

    return factory


def raises(content):
    raise RuntimeError("the disk is full")


def other_keys(content):
    return RecordDict({"arrays": ArrayRecord({"weights": encode_array(torch.zeros(1))}), "metrics": content["metrics"]})


def no_metrics(content):
    return RecordDict({"arrays": content["arrays"]})


def no_arrays(content):
    return RecordDict({"metrics": content["metrics"]})


def wrong_shape(content):
    name = next(iter(content["arrays"]))
    return RecordDict(
        {"arrays": ArrayRecord({name: encode_array(torch.zeros(5, dtype=torch.int64))}), "metrics": content["metrics"]}
    )


def floats(content):
    name = next(iter(content["arrays"]))
    return RecordDict({"arrays": ArrayRecord({name: encode_array(torch.zeros(1))}), "metrics": content["metrics"]})


def foreign_users(content):
    metrics = MetricRecord(dict(content["metrics"]) | {"users": [0, 1]})
    return RecordDict({"arrays": content["arrays"], "metrics": metrics})


def negative_examples(content):
    metrics = MetricRecord(dict(content["metrics"]) | {"num-examples": [-1, 1]})
    return RecordDict({"arrays": content["arrays"], "metrics": metrics})


@pytest.mark.parametrize("method", ["fedavg", "regionfed"])
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (raises, "its client raised: the disk is full"),
        (other_keys, "unexpected vector 'weights'"),
        (no_metrics, "the record 'metrics' is missing"),
        (no_arrays, "the record 'arrays' is missing"),
        (wrong_shape, "of shape (5,), not int64 (1,)"),
        (floats, "torch.float32 of shape (1,), not int64 (1,)"),
        (foreign_users, "does not answer for the users"),
        (negative_examples, "'num-examples' is missing or negative"),
    ],
)
def test_bad_reply_of_one_node_is_rejected_and_the_other_counts(method, change, reason):
    q = Quadratics([0, 0, 0, 0], CENTRES)
    strategy = q.run(method, num_nodes=2, client_app=spoil(change), learning_rate=1.0)
    assert strategy.theta.item() == pytest.approx(1.5)  # the mean of the first node's users
    assert [r.users for r in strategy.rejections] == [(2, 3)]
    assert reason in strategy.rejections[0].reason


def test_no_usable_reply_at_all_ends_the_run_with_the_first_reason():
    with pytest.raises(RegionFedError, match=r"Round 1 brought no usable reply .* the disk is full"):
        Quadratics([0, 0], CENTRES[:2]).run(num_nodes=2, client_app=spoil(raises, (0, 1)))


@pytest.mark.parametrize("method", ["fedavg", "regionfed"])
@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e30])
def test_user_whose_training_blows_up_is_left_out_alone(method, bad):
    good = Quadratics([0, 0, 1], [[1.0], [3.0], [4.0]]).run(method, learning_rate=1.0)
    q = Quadratics([0, 0, 0, 1], [[1.0], [bad], [3.0], [4.0]])
    strategy = q.run(method, learning_rate=1.0, evaluate_every=0)
    assert [r.users for r in strategy.rejections] == [(1,)]
    assert torch.equal(strategy.theta, good.theta)


def test_region_whose_users_all_fail_leaves_the_others_their_round():
    q = Quadratics([0, 0, 1, 1], [[1.0], [3.0], [math.nan], [math.nan]])
    strategy = q.run("regionfed", learning_rate=1.0, evaluate_every=0)
    assert strategy.theta.item() == pytest.approx(2.0)
    assert sorted(strategy.regions) == [0]


def test_divergence_of_everybody_leaves_the_model_unchanged_and_is_said():
    q = Quadratics([0, 1], [[1.0], [3.0]], curvature=(1e30, 1e30), start=[2.0])
    with pytest.raises(RegionFedError, match="not finite or too large"):
        q.run("regionfed", learning_rate=1e30, evaluate_every=0)


@pytest.mark.parametrize(
    "reason",
    [
        "<class 'RuntimeError'>:<'the disk\n is full'>",
        "<class 'flwr.clientapp.client_app.ClientAppException'>:<'\nException ClientAppException occurred. "
        "Message: the disk is full'>",
        "the disk is full",
    ],
)
def test_what_a_client_said_is_freed_of_its_wrapping(reason):
    from flwr.app import Error

    from regionfed_flwr.simulation.in_process import InProcessGrid
    from regionfed_flwr.strategies.replies import error_reason

    InProcessGrid(ClientApp(), 1, {})
    message = Message(RecordDict(), 1, "train")
    assert error_reason(Message(Error(2, reason), reply_to=message)) == "its client raised: the disk is full"
