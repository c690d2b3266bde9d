import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regionfed_flwr.core.metrics import scores
from regionfed_flwr.data.base import Query
from regionfed_flwr.models.text_to_text import NO_WORD, prefixes, prompt, read_tags, tag_counts, target

TAGS = ("O", "BRAND", "PRODUCT")
QUERY = Query(("red", "shoes"), ("red", "sheos"), "find_product", ("O", "PRODUCT"), "fashion")


@pytest.mark.parametrize(
    ("task", "source", "answer"),
    [
        ("intent", "intent: red shoes", "find_product"),
        ("spell", "spell: red sheos", "red shoes"),
        ("entity", "entity: red shoes", "O PRODUCT"),
    ],
)
def test_prompts_and_targets(task, source, answer):
    assert prompt(task, QUERY, prefixes(TAGS)[task]) == source
    assert target(task, QUERY) == answer


def test_the_prompt_tells_the_tag_schemes_apart():
    io, bio = prefixes(TAGS), prefixes(("O", "B-BRAND", "I-BRAND"))
    assert {task for task in io if io[task] != bio[task]} == {"entity"}
    assert len({*io.values(), *bio.values()}) == 4


def test_a_query_without_words_keeps_its_prompt():
    empty = Query((), (), "find_product", (), "fashion")
    assert [prompt("spell", empty, "spell:"), target("spell", empty)] == ["spell:", ""]


def test_short_answers_are_filled_and_long_ones_cut():
    found = read_tags(["PRODUCT", "O BRAND PRODUCT", "", "O shoes"], TAGS, 2)
    assert found.tolist() == [[2, 0], [0, 1], [0, 0], [0, 3]]


def test_counts_by_hand():
    gold = torch.tensor([[1, 2, 0, 2], [2, 0, NO_WORD, NO_WORD]])
    found = torch.tensor([[1, 1, 2, 0], [3, 0, 2, 2]])
    # row 1: hit; wrong tag (fp and fn); invented (fp); missed (fn). row 2: no tag at all (fp and fn); right "O"
    assert tag_counts(gold, found, 0) == {"entity.tp": 1.0, "entity.fp": 3.0, "entity.fn": 3.0}


@given(st.lists(st.lists(st.sampled_from(TAGS), max_size=5), min_size=1, max_size=5), st.integers(0, 2**32))
def test_counts_agree_with_sets_of_tagged_words(rows, seed):
    words = max(map(len, rows))
    gold = torch.full((len(rows), words), NO_WORD)
    for line, tags in zip(gold, rows, strict=True):
        line[: len(tags)] = torch.tensor(list(map(TAGS.index, tags)), dtype=torch.long)
    found = torch.randint(0, 4, gold.shape, generator=torch.Generator().manual_seed(seed))
    flat = list(zip(gold.flatten().tolist(), found.flatten().tolist(), strict=True))
    wanted = {(i, g) for i, (g, _) in enumerate(flat) if g > 0}
    got = {(i, f) for i, (g, f) in enumerate(flat) if g != NO_WORD and f > 0}
    counts = tag_counts(gold, found, 0)
    assert counts == {
        "entity.tp": len(wanted & got),
        "entity.fp": len(got - wanted),
        "entity.fn": len(wanted - got),
    }
    perfect = tag_counts(gold, gold, 0)
    assert scores(perfect).get("entity", 1.0) == 1.0
