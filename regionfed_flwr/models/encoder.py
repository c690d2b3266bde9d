"""A small transformer encoder with an intent head and an entity head ("encoder-tiny"), in plain PyTorch."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regionfed_flwr.core.metrics import Counts
from regionfed_flwr.core.param_space import FlatModule
from regionfed_flwr.core.seeding import torch_generator
from regionfed_flwr.data.base import Query
from regionfed_flwr.errors import RegionFedError
from regionfed_flwr.models.base import Rows

WORD_BUCKETS = 1024
SUFFIX_BUCKETS = 256
SUFFIX_LENGTH = 3
WIDTH = 32
HEADS = 2
PADDING_TAG = -100


class _Layer(nn.Module):
    """Pre-norm self-attention and feed-forward block without dropout."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.attention_in = nn.Linear(width, 3 * width)
        self.attention_out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.feed_in = nn.Linear(width, 2 * width)
        self.feed_out = nn.Linear(2 * width, width)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Map ``x`` (rows, words, width); ``mask`` (rows, 1, 1, words) is true where a word may be looked at."""
        rows, words, width = x.shape
        packed = self.attention_in(self.norm1(x)).view(rows, words, 3, self.heads, width // self.heads)
        query, key, value = packed.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        x = x + self.attention_out(mixed.transpose(1, 2).reshape(rows, words, width))
        fed: Tensor = self.feed_out(F.relu(self.feed_in(self.norm2(x))))
        return x + fed


class _Encoder(nn.Module):
    """Embeddings of word, suffix and position, the layers, and the two heads."""

    def __init__(self, intents: int, tags: int, max_length: int, layers: int = 1) -> None:
        super().__init__()
        self.word = nn.Embedding(WORD_BUCKETS, WIDTH)
        self.suffix = nn.Embedding(SUFFIX_BUCKETS, WIDTH)
        self.position = nn.Embedding(max_length, WIDTH)
        self.layers = nn.ModuleList(_Layer(WIDTH, HEADS) for _ in range(layers))
        self.norm = nn.LayerNorm(WIDTH)
        self.intent_head = nn.Linear(WIDTH, intents)
        self.entity_head = nn.Linear(WIDTH, tags)

    def initialise(self, generator: torch.Generator) -> None:
        """Draw all weights anew; norms start at the identity, biases at zero."""
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif "norm" in name:
                nn.init.ones_(parameter)
            elif name.split(".")[0] in ("word", "suffix", "position"):
                nn.init.normal_(parameter, std=0.3, generator=generator)
            else:
                nn.init.xavier_uniform_(parameter, generator=generator)

    def forward(self, word: Tensor, suffix: Tensor, present: Tensor) -> tuple[Tensor, Tensor]:
        """Return intent logits (rows, intents) and tag logits (rows, words, tags)."""
        x = self.word(word) + self.suffix(suffix) + self.position.weight[: word.shape[1]]
        mask = present[:, None, None, :]
        for layer in self.layers:
            x = layer(x, mask)
        x = self.norm(x)
        weight = present.to(x.dtype)[..., None]
        pooled = (x * weight).sum(1) / weight.sum(1)
        return self.intent_head(pooled), self.entity_head(x)


def _bucket(text: str, buckets: int) -> int:
    return zlib.crc32(text.encode()) % buckets


class EncoderLearner:
    """Intent and entity recognition on the words as they should be spelt.

    Words are hashed, so there is no vocabulary to share between users.

    Parameters
    ----------
    intents, tags : sequence of str
        Labels of the two tasks; the tags contain ``"O"``.
    intent_weight, entity_weight : float
        Loss weights; divided by their sum.
    seed : int
        The initial weights depend on it alone.
    device : str
        Where the module lives.
    max_length : int
        Words of a query that are used; the rest is cut off.

    Raises
    ------
    RegionFedError
        When both loss weights are zero.
    """

    tasks: tuple[str, ...] = ("intent", "entity")

    def __init__(
        self,
        intents: Sequence[str],
        tags: Sequence[str],
        *,
        intent_weight: float = 1.0,
        entity_weight: float = 1.0,
        seed: int,
        device: str = "cpu",
        max_length: int = 32,
    ) -> None:
        total = intent_weight + entity_weight
        if total <= 0:
            raise RegionFedError(
                "encoder-tiny has nothing to learn: intent-weight and entity-weight are both 0; one must be above 0."
            )
        self._weights = (intent_weight / total, entity_weight / total)
        self._intents = {intent: i for i, intent in enumerate(intents)}
        self._tags = {tag: i for i, tag in enumerate(tags)}
        self._outside = self._tags["O"]
        self._max_length = max_length
        self._device = torch.device(device)
        with torch.device("meta"):  # draws nothing from the global generator
            module = _Encoder(len(intents), len(tags), max_length)
        module.to_empty(device="cpu")
        module.initialise(torch_generator(seed, "encoder-weights"))
        self.module: nn.Module = module.to(self._device)
        self.flat = FlatModule(self.module)

    def encode(self, samples: Sequence[Query]) -> Rows:
        """Return word and suffix buckets, padding mask, tags (rows, words) and intents (rows,)."""
        length = max((min(len(s.tokens), self._max_length) for s in samples), default=0)
        shape = (len(samples), max(length, 1))
        word = torch.zeros(shape, dtype=torch.long)
        suffix, present = torch.zeros_like(word), torch.zeros(shape, dtype=torch.bool)
        tags = torch.full(shape, PADDING_TAG, dtype=torch.long)
        for row, sample in enumerate(samples):
            words = sample.tokens[: self._max_length]
            count = len(words)
            word[row, :count] = torch.tensor([_bucket(w, WORD_BUCKETS) for w in words], dtype=torch.long)
            endings = [_bucket(w[-SUFFIX_LENGTH:], SUFFIX_BUCKETS) for w in words]
            suffix[row, :count] = torch.tensor(endings, dtype=torch.long)
            tags[row, :count] = torch.tensor([self._tags[t] for t in sample.tags[:count]], dtype=torch.long)
            present[row, : max(count, 1)] = True  # a query without words is read as one word of bucket 0
        intents = torch.tensor([self._intents[s.intent] for s in samples], dtype=torch.long)
        rows = {"word": word, "suffix": suffix, "present": present, "tags": tags, "intent": intents}
        return {name: tensor.to(self._device) for name, tensor in rows.items()}

    def _forward(self, rows: Rows) -> tuple[Tensor, Tensor]:
        logits: tuple[Tensor, Tensor] = self.module(rows["word"], rows["suffix"], rows["present"])
        return logits

    def loss(self, rows: Rows) -> Tensor:
        """Return the weighted sum of the mean intent loss and the mean tag loss per word."""
        intent, entity = self._forward(rows)
        tags = rows["tags"].flatten()
        per_word = F.cross_entropy(entity.flatten(0, 1), tags, ignore_index=PADDING_TAG, reduction="sum")
        words = (tags != PADDING_TAG).sum().clamp(min=1)
        return self._weights[0] * F.cross_entropy(intent, rows["intent"]) + self._weights[1] * per_word / words

    @torch.no_grad()
    def evaluate(self, rows: Rows) -> Counts:
        """Return intent accuracy and token-level entity micro-F1 counts, and the sum of the rows' own losses."""
        keys = ("intent.correct", "intent.count", "entity.tp", "entity.fp", "entity.fn", "loss.sum", "loss.count")
        count = len(rows["intent"])
        if count == 0:
            return dict.fromkeys(keys, 0.0)
        intent, entity = self._forward(rows)
        tags = rows["tags"]
        gold, found = (tags != self._outside) & (tags != PADDING_TAG), entity.argmax(-1)
        guessed = (found != self._outside) & (tags != PADDING_TAG)
        right = found == tags
        per_word = F.cross_entropy(entity.transpose(1, 2), tags, ignore_index=PADDING_TAG, reduction="none")
        word_loss = per_word.sum(1) / (tags != PADDING_TAG).sum(1).clamp(min=1)
        intent_loss = F.cross_entropy(intent, rows["intent"], reduction="none")
        values: tuple[Tensor | int, ...] = (
            (intent.argmax(1) == rows["intent"]).sum(),
            count,
            (gold & right).sum(),
            (guessed & ~right).sum(),
            (gold & ~right).sum(),
            (self._weights[0] * intent_loss + self._weights[1] * word_loss).double().sum(),
            count,
        )
        return {key: float(value) for key, value in zip(keys, values, strict=True)}
