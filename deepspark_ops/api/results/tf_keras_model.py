"""Loads a bundle's model.keras into this process, on a person's request for the Keras model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from caffe_import.extras import require


def load_keras(file: Path) -> Any:
    """Return the model.

    Raises:
        MissingExtra: Keras is not installed.
    """
    require("keras", part="bundle.keras()")
    import keras

    return keras.saving.load_model(file, compile=False, safe_mode=True)
