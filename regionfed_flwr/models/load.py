"""From a run configuration to a model."""

from __future__ import annotations

import torch

from regionfed_flwr.config import RunConfig
from regionfed_flwr.errors import RegionFedError
from regionfed_flwr.models.base import Learner


def pick_device(config: RunConfig) -> str:
    """Return where users train: cuda when there is one, unless the configuration says otherwise."""
    if config.device == "cuda" and not torch.cuda.is_available():
        raise RegionFedError("Configuration key 'device' is 'cuda', but this machine has no CUDA device; use 'auto'.")
    if config.device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return config.device


def load_learner(config: RunConfig) -> Learner:
    """Return the model that a configuration names, at its starting parameters.

    Raises
    ------
    RegionFedError
        When a named model cannot be found.
    """
    device = pick_device(config)
    if config.model == "cnn":
        from regionfed_flwr.data.femnist import CLASSES
        from regionfed_flwr.models.cnn import CnnLearner

        return CnnLearner(len(CLASSES), seed=config.seed, device=device)
    from regionfed_flwr.data.esci import INTENTS, tag_names

    tags = tag_names(config.tag_scheme)
    if config.model == "encoder-tiny":
        from regionfed_flwr.models.encoder import EncoderLearner

        return EncoderLearner(
            INTENTS,
            tags,
            intent_weight=config.intent_weight,
            entity_weight=config.entity_weight,
            seed=config.seed,
            device=device,
            max_length=config.max_source_length,
        )
    from regionfed_flwr.models.t5 import T5Learner, load_backbone

    return T5Learner(
        load_backbone(config.model),
        tags,
        intent_weight=config.intent_weight,
        spell_weight=config.spell_weight,
        entity_weight=config.entity_weight,
        max_source_length=config.max_source_length,
        max_target_length=config.max_target_length,
        device=device,
    )
