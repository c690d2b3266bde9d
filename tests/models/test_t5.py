import subprocess
import sys
from math import prod

import pytest
import torch
import torch.nn.functional as F

from regionfed_flwr.core.metrics import add_counts
from regionfed_flwr.core.param_space import FlatModule
from regionfed_flwr.core.seeding import numpy_generator, torch_generator
from regionfed_flwr.data.base import Query
from regionfed_flwr.data.esci import EsciFederation, EsciSpec, neutral_queries, tag_names
from regionfed_flwr.errors import RegionFedError
from regionfed_flwr.models.t5 import Backbone, T5Learner, load_backbone, new_tiny
from regionfed_flwr.models.text_to_text import NO_WORD, TASKS, read_tags, tag_counts
from regionfed_flwr.models.weights import tiny_start

TAGS = tag_names("io")
QUERIES = (
    Query(("red", "hammer"), ("red", "hamer"), "product_search", ("MODIFIER", "PRODUCT"), "Tools"),
    Query(("sony",), ("sony",), "brand_lookup", ("BRAND",), "Electronics"),
    Query(
        ("is", "wooden", "picture", "frame", "in", "stock"),
        ("is", "wooxen", "pcture", "frame", "in", "stok"),
        "availability_check",
        ("O", "MODIFIER", "PRODUCT", "PRODUCT", "O", "O"),
        "Home",
    ),
)


def _learner(**options) -> T5Learner:
    return T5Learner(load_backbone("t5-tiny"), TAGS, **options)


@pytest.fixture(scope="module")
def learner() -> T5Learner:
    return _learner()


@pytest.fixture(autouse=True)
def _start_weights(learner):
    learner.flat.write(tiny_start()[1])


def _pick(rows, places):
    return {name: tensor[places] for name, tensor in rows.items()}


def _wider(rows, columns):
    return rows | {name: F.pad(rows[name], (0, columns), value=0) for name in ("source", "target")}


def _fit(learner, rows, steps, seed=0):
    optimizer = torch.optim.AdamW([learner.flat.vector], 3e-3, weight_decay=0.0)
    generator = torch_generator(seed, "test order")
    for _ in range(steps):
        for places in torch.split(torch.randperm(len(rows["task"]), generator=generator), 32):
            learner.loss(_pick(rows, places)).backward()
            optimizer.step()
            learner.flat.zero_grad()


def _save_t5(folder, tokenizer=None):
    """Save a small T5 as a user may have it: with dropout, and a tokenizer of its own."""
    from transformers import PreTrainedTokenizerFast
    from transformers.models.t5.modeling_t5 import T5ForConditionalGeneration

    tiny = load_backbone("t5-tiny")
    config = tiny.module.config
    config.update({"d_model": 16, "d_kv": 8, "num_heads": 2, "num_layers": 1, "num_decoder_layers": 1})
    config.dropout_rate = 0.1
    with torch.random.fork_rng():
        torch.manual_seed(0)
        T5ForConditionalGeneration(config).save_pretrained(folder)
    special = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer or tiny.tokenizer, **special).save_pretrained(folder)
    return folder


# Parameters


def test_each_tied_tensor_lies_in_the_vector_once(learner):
    space = learner.flat.space
    unique = {id(p): p for p in learner.module.parameters()}.values()
    assert space.size == sum(prod(p.shape) for p in unique)
    assert [name for name in space.names if "embed_tokens" in name or "lm_head" in name] == []
    learner.flat.write(torch.full_like(learner.flat.read(), 0.5))
    for tied in (learner.module.lm_head, learner.module.encoder.embed_tokens, learner.module.decoder.embed_tokens):
        assert (tied.weight == 0.5).all()


def test_the_flat_gradient_is_the_slope_of_the_loss(learner):
    rows, start = learner.encode(QUERIES), learner.flat.read()
    learner.flat.zero_grad()
    learner.loss(rows).backward()
    gradient = learner.flat.vector.grad.clone()
    learner.flat.zero_grad()
    direction, slope = gradient / gradient.norm(), float(gradient.norm())  # steepest: least drowned by rounding
    losses = []
    for step in (1e-3, -1e-3):
        learner.flat.write(start + step * direction)
        losses.append(float(learner.loss(rows).detach()))
    assert (losses[0] - losses[1]) / 2e-3 == pytest.approx(slope, rel=0.02)


def test_t5_tiny_starts_from_the_packaged_weights():
    state = torch.random.get_rng_state()
    learner = _learner()
    space, vector = tiny_start()
    assert learner.flat.space == space
    assert torch.equal(learner.flat.read(), vector)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_fresh_weights_depend_on_the_seed_alone():
    tokenizer = load_backbone("t5-tiny").tokenizer
    first, again, other = (FlatModule(new_tiny(tokenizer, seed).module).read() for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_neither_import_nor_start_vector_needs_transformers():
    code = (
        "import sys, regionfed_flwr.models.t5, regionfed_flwr.models.weights as w; w.tiny_start();"
        "print([m for m in ('transformers', 'tokenizers', 'ray', 'datasets', 'matplotlib') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# Rows


def test_three_rows_for_each_query(learner):
    rows = learner.encode(QUERIES)
    assert {len(tensor) for tensor in rows.values()} == {9}
    assert rows["task"].tolist() == [0, 1, 2] * 3
    decode = load_backbone("t5-tiny").tokenizer.decode_batch
    assert decode(rows["source"].tolist())[6:] == [
        "intent: is wooden picture frame in stock",
        "spell: is wooxen pcture frame in stok",
        "entity: is wooden picture frame in stock",
    ]
    assert decode(rows["target"].tolist())[:3] == ["product_search", "red hammer", "MODIFIER PRODUCT"]
    assert rows["tags"][2].tolist() == [TAGS.index("MODIFIER"), TAGS.index("PRODUCT")] + [NO_WORD] * 4
    assert (rows["tags"][rows["task"] != TASKS.index("entity")] == NO_WORD).all()


def test_a_task_without_weight_gets_no_rows():
    learner = _learner(spell_weight=0.0)
    rows = learner.encode(QUERIES)
    assert learner.tasks == ("intent", "entity")
    assert rows["task"].tolist() == [0, 2] * 3
    assert not any(key.startswith("spell") for key in learner.evaluate(rows))


def test_rows_are_cut_at_the_longest_lengths():
    learner = _learner(max_source_length=5, max_target_length=4)
    rows = learner.encode(QUERIES)
    full = _learner().encode(QUERIES)
    assert (rows["source"].shape[1], rows["target"].shape[1]) == (5, 4)
    assert (rows["source"][:, 4] == 1).any()  # an input that was cut still ends with the end token
    assert torch.equal(rows["target"][0, :2], full["target"][0, :2])


def test_no_samples_give_no_rows(learner):
    rows = learner.encode([])
    assert {len(tensor) for tensor in rows.values()} == {0}
    counts = learner.evaluate(rows)
    assert set(counts.values()) == {0.0}
    assert counts.keys() == learner.evaluate(learner.encode(QUERIES[:1])).keys()


# Loss


def test_loss_is_the_weighted_mean_of_the_rows_own_losses():
    weights = {"intent_weight": 0.5, "spell_weight": 2.0, "entity_weight": 1.25}
    learner = _learner(**weights)
    rows = learner.encode(QUERIES)
    total = weight_sum = 0.0
    for row in range(9):
        source, target = (rows[name][row : row + 1] for name in ("source", "target"))
        source, target = source[source != 0][None], target[target != 0][None]
        weight = weights[f"{TASKS[int(rows['task'][row])]}_weight"]
        total += weight * float(learner.module(input_ids=source, labels=target).loss.detach())
        weight_sum += weight
    assert float(learner.loss(rows).detach()) == pytest.approx(total / weight_sum, rel=1e-5)
    counts = learner.evaluate(rows)
    assert counts["loss.sum"] == pytest.approx(total, rel=1e-5)
    assert counts["loss.count"] == pytest.approx(weight_sum)


def test_padding_and_order_do_not_matter(learner):
    rows = learner.encode(QUERIES)
    shuffled = _pick(rows, torch.randperm(9, generator=torch_generator(0, "shuffle")))
    expected = float(learner.loss(rows).detach())
    assert float(learner.loss(_wider(rows, 5)).detach()) == expected
    assert float(learner.loss(shuffled).detach()) == pytest.approx(expected, rel=1e-5)
    assert learner.evaluate(_wider(rows, 5)) == learner.evaluate(rows)


def test_training_mode_draws_nothing(learner):
    rows = learner.encode(QUERIES)
    learner.module.train()
    first = learner.loss(rows)
    assert float(first.detach()) == float(learner.loss(rows).detach())
    learner.module.eval()
    assert float(first.detach()) == float(learner.loss(rows).detach())


# Answers


def _greedy(learner, source, steps):
    """Decode one row without cache, mask or batch."""
    answer = torch.zeros((1, 1), dtype=torch.long)
    for _ in range(steps):
        with torch.no_grad():
            logits = learner.module(input_ids=source, decoder_input_ids=answer).logits
        answer = torch.cat([answer, logits[:, -1:].argmax(-1)], dim=1)
        if answer[0, -1] == 1:
            break
    return answer[0, 1:].tolist()


def test_counts_are_those_of_plain_greedy_decoding(learner):
    queries = neutral_queries(12, numpy_generator(5, "test queries"), typo_rate=0.5)
    learner.flat.write(learner.flat.read() * 0.9)  # so that there are mistakes to count
    rows = learner.encode(queries)
    tokenizer = load_backbone("t5-tiny").tokenizer
    expected = dict.fromkeys(("intent.correct", "spell.correct"), 0.0)
    texts = []
    for row, task in enumerate(rows["task"].tolist()):
        source, target = (rows[name][row][rows[name][row] != 0] for name in ("source", "target"))
        answer = _greedy(learner, source[None], rows["target"].shape[1])
        if TASKS[task] == "entity":
            texts.append(tokenizer.decode(answer))
        else:
            expected[f"{TASKS[task]}.correct"] += answer == target.tolist()
    gold = rows["tags"][rows["task"] == TASKS.index("entity")]
    expected |= tag_counts(gold, read_tags(texts, TAGS, gold.shape[1]), 0)
    counts = learner.evaluate(rows)
    assert {key: counts[key] for key in expected} == expected
    assert counts["intent.count"] == counts["spell.count"] == 12
    assert 0 < counts["spell.correct"] < 12


def test_counts_add_up_over_parts(learner, monkeypatch):
    rows = learner.encode(neutral_queries(20, numpy_generator(6, "test queries"), typo_rate=0.5))
    whole = learner.evaluate(rows)
    parts = add_counts(learner.evaluate(_pick(rows, slice(start, start + 7))) for start in range(0, 60, 7))
    monkeypatch.setattr("regionfed_flwr.models.t5.EVALUATION_ROWS", 16)
    for other in (parts, learner.evaluate(rows)):
        assert other.keys() == whole.keys()
        for key, value in whole.items():
            assert other[key] == pytest.approx(value, rel=1e-5), key


def test_a_fitted_model_answers_its_own_queries(learner):
    rows = learner.encode(QUERIES)
    _fit(learner, rows, 60)
    counts = learner.evaluate(rows)
    assert (counts["intent.correct"], counts["spell.correct"]) == (3.0, 3.0)
    assert (counts["entity.tp"], counts["entity.fp"], counts["entity.fn"]) == (6.0, 0.0, 0.0)


def test_local_training_of_a_user_is_stable(learner):
    user = EsciFederation(EsciSpec(users_per_region=1, samples_per_user=60)).user(3)
    rows = learner.encode(user.train)
    before = learner.evaluate(rows)
    _fit(learner, rows, 5)
    after = learner.evaluate(rows)
    assert after["loss.sum"] < 0.5 * before["loss.sum"]
    assert torch.isfinite(learner.flat.vector).all()


# Other models


def test_a_saved_t5_is_loaded_without_dropout_and_learns(tmp_path):
    learner = T5Learner(load_backbone(str(_save_t5(tmp_path / "model"))), TAGS)
    rows = learner.encode(QUERIES)
    learner.module.train()
    before = float(learner.loss(rows).detach())
    assert before == float(learner.loss(rows).detach())
    _fit(learner, rows, 5)
    assert float(learner.loss(rows).detach()) < before
    assert learner.evaluate(rows)["intent.count"] == 3.0
    assert all(dropout.p == 0 for dropout in learner.module.modules() if isinstance(dropout, torch.nn.Dropout))


def test_bio_tags_have_a_prompt_of_their_own():
    learner = T5Learner(load_backbone("t5-tiny"), tag_names("bio"))
    queries = neutral_queries(40, numpy_generator(7, "test queries"), tag_scheme="bio")
    rows = learner.encode(queries)
    assert load_backbone("t5-tiny").tokenizer.decode(rows["source"][2].tolist()).startswith("entity-bio: ")
    counts = learner.evaluate(rows)
    assert counts["entity.tp"] > counts["entity.fp"] + counts["entity.fn"]


def test_models_that_cannot_be_used_are_refused_in_one_sentence(tmp_path):
    from tokenizers.processors import TemplateProcessing
    from transformers import BertConfig

    with pytest.raises(RegionFedError, match=r"model = '.*none' cannot be loaded"):
        load_backbone(str(tmp_path / "none"))
    BertConfig().save_pretrained(tmp_path / "bert")
    with pytest.raises(RegionFedError, match="of type 'bert', but allowed is a T5"):
        load_backbone(str(tmp_path / "bert"))
    other = load_backbone("t5-tiny").tokenizer
    other.post_processor = TemplateProcessing(single="$A")
    with pytest.raises(RegionFedError, match="has a tokenizer that cannot be used"):
        load_backbone(str(_save_t5(tmp_path / "endless", tokenizer=other)))
    (tmp_path / "endless" / "model.safetensors").write_bytes(b"cut off")
    with pytest.raises(RegionFedError, match="cannot be loaded"):
        load_backbone(str(tmp_path / "endless"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(RegionFedError, match="cannot be loaded"):
        load_backbone(str(tmp_path / "empty"))


def test_all_weights_zero_is_refused():
    backbone = Backbone(None, None)
    with pytest.raises(RegionFedError, match="nothing to learn"):
        T5Learner(backbone, TAGS, intent_weight=0.0, spell_weight=0.0, entity_weight=0.0)
