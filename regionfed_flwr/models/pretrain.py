"""Pretraining of t5-tiny on generated text that means the same in every region.

It stands for the general pretraining of a large T5: the backbone knows the words, the tasks and common typing
mistakes, but neither a region's senses nor its spellings.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from regionfed_flwr.core.metrics import scores
from regionfed_flwr.core.seeding import numpy_generator, torch_generator
from regionfed_flwr.data.esci import INTENTS, lexicon, neutral_queries, tag_names
from regionfed_flwr.data.esci.corruption import misspell
from regionfed_flwr.errors import RegionFedError
from regionfed_flwr.models.base import Rows
from regionfed_flwr.models.t5 import END, PAD, Backbone, T5Learner, new_tiny
from regionfed_flwr.models.text_to_text import RowEncoder, prefixes
from regionfed_flwr.models.weights import TINY_TOKENIZER, TINY_WEIGHTS, save_weights

if TYPE_CHECKING:
    from tokenizers import Tokenizer

VOCABULARY = 1472
STEPS = 4000
BATCH_ROWS = 32
LEARNING_RATE = 3e-3
WARMUP_STEPS = 100
TYPO_RATE = 0.3
UNKNOWN, SPACE = "<unk>", "▁"

Progress = Callable[[int, int, float], None]
"""Called with the step, the number of steps and the step's loss."""


def build_tokenizer(seed: int) -> Tokenizer:
    """Return t5-tiny's tokenizer.

    Every word of the language, every label and every task's prefix is one token, so that targets are short. Any other
    word, in practice a misspelt one, falls into pieces learnt from misspelt words, down to single letters and digits.

    Parameters
    ----------
    seed : int
        Of the misspelt words.

    Returns
    -------
    tokenizers.Tokenizer
        With ``VOCABULARY`` tokens.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

    special = [PAD, END, UNKNOWN]
    letters = [SPACE, *string.ascii_lowercase, *string.digits]
    schemes = [tag_names("io"), tag_names("bio")]
    labels = [prefix for tags in schemes for prefix in prefixes(tags).values()] + [*INTENTS, *schemes[0], *schemes[1]]
    vocabulary = dict.fromkeys([*special, *letters, *(SPACE + word for word in (*labels, *lexicon()))])
    merges = []
    for left, right in _merges(letters, seed):
        if len(vocabulary) == VOCABULARY:
            break
        merges.append((left, right))
        vocabulary[left + right] = None
    numbers = {token: number for number, token in enumerate(vocabulary)}
    tokenizer = Tokenizer(models.BPE(numbers, merges, unk_token=UNKNOWN, ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing(single=f"$A {END}", special_tokens=[(END, numbers[END])])
    tokenizer.add_special_tokens(special)
    return tokenizer


def _merges(letters: list[str], seed: int) -> list[tuple[str, str]]:
    """Return the pairs that byte-pair encoding joins on misspelt words, the most useful first."""
    import json

    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    generator, words = numpy_generator(seed, "pretraining pieces"), lexicon()
    wrong = [misspell(word, generator, avoid=words) for word in words for _ in range(20)]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=2 * VOCABULARY, initial_alphabet=letters, show_progress=False)
    tokenizer.train_from_iterator(wrong, trainer)
    return [(left, right) for left, right in json.loads(tokenizer.to_str())["model"]["merges"]]


def pretrain(out_dir: Path, seed: int = 0, steps: int = STEPS, progress: Progress | None = None) -> dict[str, float]:
    """Train t5-tiny from scratch and write its tokenizer and weights.

    Parameters
    ----------
    out_dir : Path
        Folder for the two files; the packaged ones lie in ``regionfed_flwr/models/assets``.
    seed : int
    steps : int
        Optimizer steps of 32 rows, at least 1; the learning rate falls to zero over them.
    progress : callable, optional
        See ``Progress``.

    Returns
    -------
    dict
        Scores of the stored model on 500 neutral queries that it has not seen.

    Raises
    ------
    RegionFedError
        When there is no step to make or the folder cannot be made.
    """
    if steps < 1:
        raise RegionFedError(f"Pretraining takes at least 1 step, not {steps}.")
    try:
        out_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RegionFedError(f"The folder '{out_dir}' cannot be made: {error.strerror}.") from error
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # sums depend on the number of threads, and the file shall not
    try:
        return _pretrain(out_dir, seed, steps, progress)
    finally:
        torch.set_num_threads(threads)


def _pretrain(out_dir: Path, seed: int, steps: int, progress: Progress | None) -> dict[str, float]:
    tokenizer = build_tokenizer(seed)
    tokenizer.save(str(out_dir / TINY_TOKENIZER.name))
    backbone = new_tiny(tokenizer, seed)
    learner = T5Learner(backbone, tag_names("io"))
    optimizer = torch.optim.AdamW([learner.flat.vector], LEARNING_RATE, weight_decay=0.0, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / WARMUP_STEPS, 1.0) * (1 - step / steps)
    )
    for step, rows in zip(range(1, steps + 1), _batches(backbone, seed), strict=False):
        loss = learner.loss(rows)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        learner.flat.zero_grad()
        schedule.step()
        if progress:
            progress(step, steps, float(loss.detach()))
    learner.flat.write(learner.flat.read().half().float())  # judged as it is stored
    unseen = learner.encode(neutral_queries(500, numpy_generator(seed, "pretraining test")))
    result = {task: round(score, 4) for task, score in scores(learner.evaluate(unseen)).items()}
    save_weights(out_dir / TINY_WEIGHTS.name, learner.flat.space, learner.flat.read(), _about(seed, steps, result))
    return result


def _about(seed: int, steps: int, result: dict[str, float]) -> dict[str, object]:
    from importlib.metadata import version

    return {
        "model": "t5-tiny",
        "command": f"regionfed pretrain --seed {seed} --steps {steps}",
        "seed": seed,
        "steps": steps,
        "versions": {name: version(name) for name in ("torch", "transformers", "tokenizers", "numpy")},
        "scores_on_neutral_queries": result,
    }


def _batches(backbone: Backbone, seed: int) -> Iterator[Rows]:
    """Yield batches without end: mostly of all tasks, some of BIO tags, some of spelling, which is learnt last."""
    io = RowEncoder(backbone.tokenizer, backbone.pad, tag_names("io"))
    bio = RowEncoder(backbone.tokenizer, backbone.pad, tag_names("bio"), ("entity",))
    spell = RowEncoder(backbone.tokenizer, backbone.pad, (), ("spell",))
    chunk = 0
    while True:
        generator, order = numpy_generator(seed, "pretraining", chunk), torch_generator(seed, "pretraining", chunk)
        parts = [
            io.encode(neutral_queries(384, generator, typo_rate=TYPO_RATE)),
            bio.encode(neutral_queries(192, generator, typo_rate=TYPO_RATE, tag_scheme="bio")),
            spell.encode(neutral_queries(192, generator, typo_rate=TYPO_RATE)),
        ]
        shuffled = [(part, torch.randperm(len(part["task"]), generator=order)) for part in parts]
        places = [(part, place) for part, rows in shuffled for place in torch.split(rows, BATCH_ROWS)]
        for number in torch.randperm(len(places), generator=order):
            part, place = places[number]
            yield {name: tensor[place] for name, tensor in part.items()}
        chunk += 1
