"""A T5 that learns the three query tasks as text to text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from regionfed_flwr.core.metrics import Counts, add_counts
from regionfed_flwr.core.param_space import FlatModule
from regionfed_flwr.core.seeding import torch_generator
from regionfed_flwr.data.base import Query
from regionfed_flwr.errors import RegionFedError
from regionfed_flwr.models.base import Rows
from regionfed_flwr.models.text_to_text import OUTSIDE, TASKS, RowEncoder, read_tags, tag_counts
from regionfed_flwr.models.weights import TINY_TOKENIZER, tiny_start

if TYPE_CHECKING:
    from tokenizers import Tokenizer

TINY = "t5-tiny"
TINY_SHAPE: dict[str, Any] = {
    "d_model": 64,
    "d_kv": 16,
    "d_ff": 128,
    "num_layers": 2,
    "num_decoder_layers": 2,
    "num_heads": 4,
    "dropout_rate": 0.0,
    "attn_implementation": "eager",  # the fastest for rows this short
}
PAD, END = "<pad>", "</s>"
EVALUATION_ROWS = 256


@dataclass(frozen=True)
class Backbone:
    """A T5 and the tokenizer that it was pretrained with.

    Attributes
    ----------
    module : transformers.T5ForConditionalGeneration
        Without dropout.
    tokenizer : tokenizers.Tokenizer
        Ends every text with the end token.
    """

    module: Any
    tokenizer: Tokenizer

    @property
    def pad(self) -> int:
        """Padding token."""
        return int(self.module.config.pad_token_id)


def new_tiny(tokenizer: Tokenizer, seed: int) -> Backbone:
    """Return a t5-tiny with fresh weights: 2 + 2 layers of width 64, about 260,000 parameters.

    The weights depend on ``seed`` alone; the global generator is left as it is.
    """
    from transformers.models.t5.configuration_t5 import T5Config
    from transformers.models.t5.modeling_t5 import T5ForConditionalGeneration

    pad, end = tokenizer.token_to_id(PAD), tokenizer.token_to_id(END)
    special = {"pad_token_id": pad, "eos_token_id": end, "decoder_start_token_id": pad}
    config = T5Config.from_dict(TINY_SHAPE | special | {"vocab_size": tokenizer.get_vocab_size()})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(torch_generator(seed, "t5-tiny-weights").initial_seed())
        return Backbone(T5ForConditionalGeneration(config), tokenizer)


def load_backbone(name: str) -> Backbone:
    """Return a pretrained T5.

    Parameters
    ----------
    name : str
        ``"t5-tiny"`` (comes with the package), a folder that transformers has saved, or a name on the hub.

    Raises
    ------
    RegionFedError
        When there is no such model or it is not a T5.
    """
    from tokenizers import Tokenizer

    if name != TINY:
        return _from_transformers(name)
    backbone = new_tiny(Tokenizer.from_file(str(TINY_TOKENIZER)), seed=0)
    space, vector = tiny_start()
    flat = FlatModule(backbone.module)
    if flat.space != space:
        raise RegionFedError(
            "The packaged weights of t5-tiny do not fit its tokenizer; `regionfed pretrain` makes both."
        )
    flat.write(vector)
    return backbone


def _from_transformers(name: str) -> Backbone:
    from safetensors import SafetensorError
    from transformers import AutoConfig, AutoTokenizer
    from transformers.models.t5.modeling_t5 import T5ForConditionalGeneration

    try:
        kind = AutoConfig.from_pretrained(name).model_type
        if kind != "t5":
            raise RegionFedError(f"model = '{name}' is a model of type '{kind}', but allowed is a T5.")
        tokenizer = AutoTokenizer.from_pretrained(name)
        module = T5ForConditionalGeneration.from_pretrained(name, dropout_rate=0.0, dtype=torch.float32)
    except (OSError, ValueError, ImportError, SafetensorError) as error:
        raise RegionFedError(
            f"model = '{name}' cannot be loaded: it is neither 't5-tiny', nor a folder with a saved T5 and its "
            "tokenizer, nor the name of one that the hub offers or the cache holds."
        ) from error
    fast = getattr(tokenizer, "backend_tokenizer", None)
    if fast is None or fast.encode("a").ids[-1:] != [module.config.eos_token_id]:
        raise RegionFedError(
            f"model = '{name}' has a tokenizer that cannot be used: allowed is a fast one (tokenizer.json) that ends "
            "each text with the model's end token."
        )
    return Backbone(module, fast)


class T5Learner:
    """Intent, spelling and entities of a query by one T5, each from a prompt of its own.

    Parameters
    ----------
    backbone : Backbone
        Model and tokenizer; the learner's own from now on.
    tags : sequence of str
        Entity tags; they contain ``"O"``.
    intent_weight, spell_weight, entity_weight : float
        Loss weights; a task of weight 0 gets no rows.
    max_source_length, max_target_length : int
        Tokens of a row's input and output that are used; the rest is cut off.
    device : str
        Where the module lives.

    Raises
    ------
    RegionFedError
        When all loss weights are zero.
    """

    def __init__(
        self,
        backbone: Backbone,
        tags: Sequence[str],
        *,
        intent_weight: float = 1.0,
        spell_weight: float = 1.0,
        entity_weight: float = 1.0,
        max_source_length: int = 32,
        max_target_length: int = 32,
        device: str = "cpu",
    ) -> None:
        weights = (intent_weight, spell_weight, entity_weight)
        self.tasks = tuple(task for task, weight in zip(TASKS, weights, strict=True) if weight > 0)
        if not self.tasks:
            raise RegionFedError(
                "The T5 has nothing to learn: intent-weight, spell-weight and entity-weight are all 0; at least one "
                "must be above 0."
            )
        self._device = torch.device(device)
        self._weights = torch.tensor(weights, device=self._device)
        self._tags = tuple(tags)
        self._tokenizer = backbone.tokenizer
        self.module = backbone.module.to(self._device)
        self._pad = backbone.pad
        self._encoder = RowEncoder(
            backbone.tokenizer, self._pad, tags, self.tasks, max_source_length, max_target_length
        )
        self.flat = FlatModule(self.module)

    def encode(self, samples: Sequence[Query]) -> Rows:
        """Tokenise the samples, one row for each query and task (see :class:`RowEncoder`)."""
        return {name: tensor.to(self._device) for name, tensor in self._encoder.encode(samples).items()}

    def loss(self, rows: Rows) -> Tensor:
        """Return the mean over the rows, weighted by task, of each row's mean cross entropy per token."""
        weights = self._weights[rows["task"]]
        return (weights * self._row_losses(rows)).sum() / weights.sum()

    @torch.no_grad()
    def evaluate(self, rows: Rows) -> Counts:
        """Return counts of greedy answers: exact intents, exact spellings, entity tags word by word, weighted loss."""
        count = len(rows["task"])
        parts = [
            self._judge({name: tensor[start : start + EVALUATION_ROWS] for name, tensor in rows.items()})
            for start in range(0, count, EVALUATION_ROWS)
        ]
        return add_counts([dict.fromkeys(self._keys(), 0.0), *parts])

    def _keys(self) -> list[str]:
        fields = {"intent": ("correct", "count"), "spell": ("correct", "count"), "entity": ("tp", "fp", "fn")}
        return [f"{task}.{field}" for task in self.tasks for field in fields[task]] + ["loss.sum", "loss.count"]

    def _trimmed(self, tokens: Tensor) -> Tensor:
        """Leave out the columns that are padding in all rows."""
        return tokens[:, : int((tokens != self._pad).sum(1).max())]

    def _row_losses(self, rows: Rows) -> Tensor:
        """Return the mean cross entropy per token of each row."""
        source, target = self._trimmed(rows["source"]), self._trimmed(rows["target"])
        start = torch.full_like(target[:, :1], self.module.config.decoder_start_token_id)
        logits = self.module(
            input_ids=source,
            attention_mask=(source != self._pad).long(),
            decoder_input_ids=torch.cat([start, target[:, :-1]], dim=1),
            use_cache=False,
        ).logits
        losses = F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=self._pad, reduction="none")
        return losses.view_as(target).sum(1) / (target != self._pad).sum(1)

    def _answers(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """Return greedy answers and targets as token ids, both (rows, tokens), padded to the longest target."""
        source, target = self._trimmed(rows["source"]), self._trimmed(rows["target"])
        answer = self.module.generate(
            source,
            attention_mask=(source != self._pad).long(),
            max_new_tokens=target.shape[1],
            do_sample=False,
            num_beams=1,
        )[:, 1:]
        return F.pad(answer, (0, target.shape[1] - answer.shape[1]), value=self._pad), target

    def _judge(self, rows: Rows) -> Counts:
        answer, target = self._answers(rows)
        exact = (answer == target).all(1)
        counts: Counts = {}
        for task in self.tasks:
            chosen = rows["task"] == TASKS.index(task)
            if task == "entity":
                texts = self._tokenizer.decode_batch(answer[chosen].tolist(), skip_special_tokens=True)
                gold = rows["tags"][chosen].cpu()
                counts |= tag_counts(gold, read_tags(texts, self._tags, gold.shape[1]), self._tags.index(OUTSIDE))
            else:
                counts |= {f"{task}.correct": float(exact[chosen].sum()), f"{task}.count": float(chosen.sum())}
        weights = self._weights[rows["task"]].double()
        losses = (weights * self._row_losses(rows)).sum()
        return counts | {"loss.sum": float(losses), "loss.count": float(weights.sum())}
