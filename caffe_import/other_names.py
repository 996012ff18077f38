"""Caffe's names of what other frameworks call differently, for messages about unknown fields."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

_CAFFE_NAMES: Final = {
    "base_lr lr_mult": "learning_rate lr initial_lr",
    "max_iter": "epochs n_epochs num_epochs max_epoch max_epochs steps max_steps num_steps",
    "momentum": "beta1 beta_1",
    "momentum2": "beta2 beta_2",
    "delta": "eps epsilon",
    "weight_decay decay_mult": "l2 l2_regularization wd",
    "type": "optimizer optim",
    "lr_policy": "scheduler lr_scheduler",
    "gamma": "lr_decay decay_rate",
    "stepvalue": "milestones",
    "random_seed": "seed",
    "clip_gradients": "clip_norm clipnorm grad_clip gradient_clip max_grad_norm",
    "iter_size": "accumulation_steps gradient_accumulation_steps",
    "test_interval": "validation_interval val_interval eval_interval",
    "snapshot": "checkpoint checkpoint_interval save_interval",
    "num_output": "filters num_filters out_channels units out_features",
    "group": "groups",
    "bias_term": "bias use_bias",
    "dropout_ratio": "rate p prob",
}
"""Caffe's fields, the first that a message has counts -> names in Keras, PyTorch and other frameworks."""
_FIELDS: Final = {name: fields.split() for fields, names in _CAFFE_NAMES.items() for name in names.split()}
_FEWEST_LETTERS: Final = 3
"""Of a part that shortens a word, such as ``max`` for ``maximum``."""


def caffe_name(written: str, allowed: Collection[str]) -> str:
    """Return the field of ``allowed`` for a name of another framework, or in whole words; else an empty text.

    Example:
        >>> caffe_name("learning_rate", ["base_lr", "lr_policy"]), caffe_name("filters", ["num_output", "pad"])
        ('base_lr', 'num_output')
        >>> caffe_name("base_learning_rate", ["base_lr"]), caffe_name("maximum_iterations", ["max_iter"])
        ('base_lr', 'max_iter')
    """
    listed = next((field for field in _FIELDS.get(written.lower(), ()) if field in allowed), "")
    words = [word for word in written.lower().split("_") if word]
    return listed or min((field for field in allowed if _shortens(field.split("_"), words)), key=len, default="")


def _shortens(parts: Sequence[str], words: Sequence[str]) -> bool:
    """Return whether each part is a word, its beginning, or the initials of several words, in order."""
    if not parts or not words:
        return not parts and not words
    part, word = parts[0], words[0]
    is_beginning = word.startswith(part) and len(part) >= _FEWEST_LETTERS
    if (part == word or is_beginning) and _shortens(parts[1:], words[1:]):
        return True
    n = len(part)
    initials = "".join(word[0] for word in words[:n])
    return n > 1 and part == initials and _shortens(parts[1:], words[n:])
