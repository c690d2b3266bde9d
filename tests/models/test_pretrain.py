import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from regionfed_flwr.core.metrics import scores
from regionfed_flwr.core.seeding import numpy_generator
from regionfed_flwr.data.esci import INTENTS, lexicon, neutral_queries, tag_names
from regionfed_flwr.errors import RegionFedError
from regionfed_flwr.models.pretrain import VOCABULARY, build_tokenizer, pretrain
from regionfed_flwr.models.t5 import T5Learner, load_backbone
from regionfed_flwr.models.text_to_text import prefixes
from regionfed_flwr.models.weights import TINY_TOKENIZER, TINY_WEIGHTS, load_weights

WORDS = st.text("abcdefghijklmnopqrstuvwxyz0123456789", min_size=1, max_size=12)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(TINY_TOKENIZER))


def test_the_same_seed_gives_the_same_bytes(tmp_path):
    threads, state = torch.get_num_threads(), torch.random.get_rng_state()
    seen = []
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        result = pretrain(tmp_path / name, seed, 20, lambda step, steps, loss: seen.append((step, steps, loss)))
        assert set(result) == {"intent", "spell", "entity", "overall", "loss"}
    assert torch.equal(torch.random.get_rng_state(), state)
    for file in (TINY_TOKENIZER.name, TINY_WEIGHTS.name):
        first, again, other = ((tmp_path / name / file).read_bytes() for name in "abc")
        assert first == again
        assert first != other
    assert [step for step, _, _ in seen] == [*range(1, 21)] * 3
    assert {steps for _, steps, _ in seen} == {20}
    assert seen[19][2] < seen[0][2]
    assert torch.get_num_threads() == threads


def test_what_cannot_be_done_is_one_sentence(tmp_path):
    with pytest.raises(RegionFedError, match="at least 1 step, not 0"):
        pretrain(tmp_path, steps=0)
    (tmp_path / "file").touch()
    with pytest.raises(RegionFedError, match="cannot be made"):
        pretrain(tmp_path / "file", steps=1)


def test_packaged_tokenizer_can_be_made_again(tokenizer):
    _, _, about = load_weights(TINY_WEIGHTS)
    assert build_tokenizer(about["seed"]).to_str() == tokenizer.to_str()
    assert about["command"] == f"regionfed pretrain --seed {about['seed']} --steps {about['steps']}"


def test_words_and_labels_are_single_tokens(tokenizer):
    schemes = (tag_names("io"), tag_names("bio"))
    labels = [word for tags in schemes for word in (*tags, *prefixes(tags).values())]
    for word in (*lexicon(), *INTENTS, *labels):
        assert len(tokenizer.encode(word).ids) == 2, word  # and the end token
    assert tokenizer.get_vocab_size() == VOCABULARY


@settings(deadline=None)
@given(st.lists(WORDS, min_size=1, max_size=6))
def test_any_word_can_be_spelt(words):
    tokenizer = Tokenizer.from_file(str(TINY_TOKENIZER))
    encoding = tokenizer.encode(" ".join(words))
    assert "<unk>" not in encoding.tokens
    assert tokenizer.decode(encoding.ids) == " ".join(words)


def test_other_characters_are_unknown_but_harmless(tokenizer):
    assert tokenizer.encode("naïve").tokens.count("<unk>") == 1


def test_packaged_weights_score_what_their_file_says():
    _, _, about = load_weights(TINY_WEIGHTS)
    learner = T5Learner(load_backbone("t5-tiny"), tag_names("io"))
    rows = learner.encode(neutral_queries(500, numpy_generator(about["seed"], "pretraining test")))
    measured = scores(learner.evaluate(rows))
    for task, score in about["scores_on_neutral_queries"].items():
        assert measured[task] == pytest.approx(score, abs=0.01), task
    assert measured["intent"] > 0.9
