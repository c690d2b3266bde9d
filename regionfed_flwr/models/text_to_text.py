"""The three tasks of a query as text in and text out, and how an answer is read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from regionfed_flwr.core.metrics import Counts
from regionfed_flwr.data.base import Query
from regionfed_flwr.models.base import Rows

if TYPE_CHECKING:
    from tokenizers import Tokenizer

TASKS = ("intent", "spell", "entity")
OUTSIDE = "O"
NO_WORD = -1
"""Number in a row of tags where the query has no further word."""


def prefixes(tags: Sequence[str]) -> dict[str, str]:
    """Return the first word of each task's prompt; it tells the two tag schemes apart."""
    bio = any(tag.startswith("B-") for tag in tags)
    return {"intent": "intent:", "spell": "spell:", "entity": "entity-bio:" if bio else "entity:"}


def prompt(task: str, query: Query, prefix: str) -> str:
    """Return the model's input: the prefix and the query, as typed where the spelling is asked for."""
    words = query.typed if task == "spell" else query.tokens
    return " ".join((prefix, *words))


def target(task: str, query: Query) -> str:
    """Return the model's output: the intent, the query as it should be spelt, or one tag for each word."""
    answers = {"intent": (query.intent,), "spell": query.tokens, "entity": query.tags}
    return " ".join(answers[task])


def read_tags(texts: Sequence[str], tags: Sequence[str], words: int) -> Tensor:
    """Read decoded entity answers word by word.

    Parameters
    ----------
    texts : sequence of str
        One answer for each row.
    tags : sequence of str
        All tags, ``"O"`` among them.
    words : int
        Number of columns.

    Returns
    -------
    Tensor of int64, shape (len(texts), words)
        Places in ``tags``. A missing word is "O", surplus words are left out, and a word that is no tag gets
        ``len(tags)``, which is always wrong.
    """
    places = {tag: i for i, tag in enumerate(tags)}
    found = torch.full((len(texts), words), tags.index(OUTSIDE), dtype=torch.long)
    for row, text in zip(found, texts, strict=True):
        numbers = [places.get(word, len(tags)) for word in text.split()[:words]]
        row[: len(numbers)] = torch.tensor(numbers, dtype=torch.long)
    return found


def tag_counts(gold: Tensor, found: Tensor, outside: int) -> Counts:
    """Count entity tags word by word, for a micro-F1 over all tags but "O".

    Parameters
    ----------
    gold, found : Tensor of int64, shape (rows, words)
        Numbers of the tags; ``gold`` is ``NO_WORD`` behind the end of a query.
    outside : int
        Number of "O".

    Returns
    -------
    Counts
        ``entity.tp`` (found as in gold, not "O"), ``entity.fp`` (found wrongly, not "O") and ``entity.fn`` (in gold,
        not "O", and not found so); a wrong tag on a tagged word counts in both.
    """
    word, right = gold != NO_WORD, gold == found
    tagged, guessed = word & (gold != outside), word & (found != outside)
    return {
        "entity.tp": float((tagged & right).sum()),
        "entity.fp": float((guessed & ~right).sum()),
        "entity.fn": float((tagged & ~right).sum()),
    }


class RowEncoder:
    """Tokenises samples, one row for each query and task.

    Parameters
    ----------
    tokenizer : tokenizers.Tokenizer
        Ends every text with the end token.
    pad : int
        Padding token; no text contains it.
    tags : sequence of str
        Entity tags.
    tasks : sequence of str
        Some of ``TASKS``.
    max_source_length, max_target_length : int
        Tokens of an input and of an output that are used; the rest is cut off.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        pad: int,
        tags: Sequence[str],
        tasks: Sequence[str] = TASKS,
        max_source_length: int = 32,
        max_target_length: int = 32,
    ) -> None:
        self._tokenizer, self._pad, self._tasks = tokenizer, pad, tuple(tasks)
        self._places = {tag: i for i, tag in enumerate(tags)}
        self._limits = (max_source_length, max_target_length)
        self._prefixes = prefixes(tags)

    def encode(self, samples: Sequence[Query]) -> Rows:
        """Return the rows, padded to the longest.

        Returns
        -------
        Rows
            ``source`` and ``target`` (rows, tokens), ``task`` (rows; place in ``TASKS``) and ``tags`` (rows, words;
            gold tags of an entity row, else ``NO_WORD``).
        """
        pairs = [(task, sample) for sample in samples for task in self._tasks]
        words = max((len(sample.tags) for sample in samples), default=0)
        tags = torch.full((len(pairs), words), NO_WORD, dtype=torch.long)
        for row, (task, sample) in zip(tags, pairs, strict=True):
            if task == "entity":
                row[: len(sample.tags)] = torch.tensor([self._places[tag] for tag in sample.tags], dtype=torch.long)
        return {
            "source": self._tokens([prompt(t, sample, self._prefixes[t]) for t, sample in pairs], self._limits[0]),
            "target": self._tokens([target(t, sample) for t, sample in pairs], self._limits[1]),
            "task": torch.tensor([TASKS.index(task) for task, _ in pairs], dtype=torch.long),
            "tags": tags,
        }

    def _tokens(self, texts: list[str], limit: int) -> Tensor:
        """Return padded token ids, shape (texts, longest text); no text gives width 1."""
        self._tokenizer.enable_truncation(limit)
        self._tokenizer.enable_padding(pad_id=self._pad)
        ids = [encoding.ids for encoding in self._tokenizer.encode_batch(texts)]
        return torch.tensor(ids, dtype=torch.long) if ids else torch.zeros((0, 1), dtype=torch.long)
