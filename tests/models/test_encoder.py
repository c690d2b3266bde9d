import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regionfed_flwr.core.metrics import add_counts, scores
from regionfed_flwr.data.base import Query
from regionfed_flwr.errors import RegionFedError
from regionfed_flwr.models.base import Learner, Rows
from regionfed_flwr.models.encoder import EncoderLearner

INTENTS = ("buy", "compare", "repair")
TAGS = ("O", "brand", "colour")
WORDS = ("red", "acme", "kettle", "for", "blue", "globex", "drill", "a")


def query(*words: str, intent: str = "buy") -> Query:
    colours, brands = ("red", "blue"), ("acme", "globex")
    tags = tuple("colour" if w in colours else "brand" if w in brands else "O" for w in words)
    return Query(words, words, intent, tags, "kitchen")


def learner(**options: float) -> EncoderLearner:
    return EncoderLearner(INTENTS, TAGS, seed=0, **options)  # type: ignore[arg-type]


def logits(model: EncoderLearner, rows: Rows) -> tuple[torch.Tensor, torch.Tensor]:
    with torch.no_grad():
        return model.module(rows["word"], rows["suffix"], rows["present"])


QUERIES = [
    query("red", "acme", "kettle"),
    query("drill", intent="repair"),
    query("globex", "drill", "for", "a", "blue", "kettle", intent="compare"),
    query("blue", "kettle"),
]
queries = st.lists(st.sampled_from(WORDS), min_size=1, max_size=9).map(lambda words: query(*words))


def test_is_a_learner_of_moderate_size() -> None:
    model: Learner = learner()
    assert model.tasks == ("intent", "entity")
    assert 40_000 <= model.flat.space.size <= 80_000


@settings(max_examples=25, deadline=None)
@given(st.lists(queries, min_size=2, max_size=4))
def test_padding_and_neighbours_change_nothing(samples: list[Query]) -> None:
    model = learner()
    intent, entity = logits(model, model.encode(samples))
    for row, sample in enumerate(samples):
        alone_intent, alone_entity = logits(model, model.encode([sample]))
        torch.testing.assert_close(alone_intent[0], intent[row])
        torch.testing.assert_close(alone_entity[0], entity[row, : len(sample.tokens)])


def test_no_difference_between_training_and_evaluation_mode() -> None:
    model = learner()
    rows = model.encode(QUERIES)
    model.module.train()
    trained = model.loss(rows).detach()
    model.module.eval()
    torch.testing.assert_close(model.loss(rows).detach(), trained)


def test_queries_are_cut_and_padded() -> None:
    model = learner(max_length=4)
    rows = model.encode(QUERIES)
    assert rows["word"].shape == (4, 4)
    assert rows["present"].sum(1).tolist() == [3, 1, 4, 2]
    assert (rows["tags"] >= 0).equal(rows["present"])
    assert {len(tensor) for tensor in model.encode([]).values()} == {0}


def test_a_query_without_words_still_has_an_intent() -> None:
    model = learner()
    rows = model.encode([query(intent="repair")])
    assert torch.isfinite(model.loss(rows))
    assert model.evaluate(rows)["intent.count"] == 1


def test_loss_is_the_normalised_sum_of_the_tasks() -> None:
    def loss(intent: float, entity: float) -> float:
        model = learner(intent_weight=intent, entity_weight=entity)
        return float(model.loss(model.encode(QUERIES)).detach())

    assert loss(3.0, 1.0) == pytest.approx(0.75 * loss(1.0, 0.0) + 0.25 * loss(0.0, 1.0))
    assert loss(6.0, 2.0) == pytest.approx(loss(3.0, 1.0))
    with pytest.raises(RegionFedError, match="one must be above 0"):
        learner(intent_weight=0.0, entity_weight=0.0)


def test_counts_by_hand() -> None:
    model = learner()
    rows = model.encode(QUERIES)
    intent, entity = logits(model, rows)
    tp = fp = fn = 0
    for row, sample in enumerate(QUERIES):
        for gold, guess in zip(sample.tags, (TAGS[i] for i in entity[row].argmax(-1)), strict=False):
            tp += gold == guess != "O"
            fp += guess not in ("O", gold)
            fn += gold not in ("O", guess)
    counts = model.evaluate(rows)
    assert (counts["entity.tp"], counts["entity.fp"], counts["entity.fn"]) == (tp, fp, fn)
    right = sum(INTENTS[i] == sample.intent for i, sample in zip(intent.argmax(1), QUERIES, strict=True))
    assert (counts["intent.correct"], counts["intent.count"]) == (right, 4)
    single = [float(model.loss(model.encode([sample])).detach()) for sample in QUERIES]
    assert counts["loss.sum"] == pytest.approx(sum(single), rel=1e-5)


def test_counts_add_up_over_parts() -> None:
    model = learner()
    whole = model.evaluate(model.encode(QUERIES))
    parts = add_counts(model.evaluate(model.encode(samples)) for samples in (QUERIES[:1], QUERIES[1:]))
    assert parts == pytest.approx(whole, rel=1e-5)
    assert model.evaluate(model.encode([])) == dict.fromkeys(whole, 0.0)


def test_weights_depend_on_the_seed_alone() -> None:
    state = torch.get_rng_state()
    first = EncoderLearner(INTENTS, TAGS, seed=1).flat.read()
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(5)
    assert torch.equal(EncoderLearner(INTENTS, TAGS, seed=1).flat.read(), first)
    assert not torch.equal(EncoderLearner(INTENTS, TAGS, seed=2).flat.read(), first)


def test_learns_both_tasks() -> None:
    model = learner()
    rows = model.encode(QUERIES)
    optimizer = torch.optim.AdamW([model.flat.vector], lr=1e-2)
    for _ in range(40):
        model.flat.zero_grad()
        model.loss(rows).backward()
        optimizer.step()
    reached = scores(model.evaluate(rows))
    assert reached["intent"] == 1.0 and reached["entity"] == 1.0


def test_words_are_told_apart_by_place_and_ending() -> None:
    model = learner()
    rows = model.encode([query("drilling"), query("drill")])
    assert rows["word"][0] != rows["word"][1] and rows["suffix"][0] != rows["suffix"][1]
    first, second = (logits(model, model.encode([query(*words)]))[0] for words in (("red", "a"), ("a", "red")))
    assert not torch.allclose(first, second)


def test_needs_no_transformers() -> None:
    code = "import sys, regionfed_flwr.models.encoder as _; sys.exit('transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
