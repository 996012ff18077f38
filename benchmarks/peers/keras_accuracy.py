"""Train with Keras 3 to an accuracy: ``keras_accuracy.py FOLDER VARIANT N_THREADS``; a line per test."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import keras_step
import numpy as np
import tensorflow as tf
from keras_step import keras
from serve import say

FOLDER: Path = keras_step.FOLDER


class Rates(keras.optimizers.schedules.LearningRateSchedule):
    """The rate of every step of the plan."""

    def __init__(self, rates: list[float]) -> None:
        self._rates = keras.ops.convert_to_tensor(rates, "float32")

    def __call__(self, step: Any) -> Any:
        return keras.ops.take(self._rates, keras.ops.cast(step, "int32"))


class Report(keras.callbacks.Callback):
    """Prints the accuracy of every test."""

    def __init__(self, interval: int) -> None:
        super().__init__()
        self._interval = interval

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        clock, score = (epoch + 1) * self._interval, float((logs or {})["val_accuracy"])
        say({"clock": clock, "accuracy": score, "time": time.time()})


def samples(split: str, plan: dict[str, float]) -> tuple[np.ndarray, np.ndarray]:
    """Return the images of a split, transformed and channels last, and the labels."""
    images = (np.load(FOLDER / f"{split}_data.npy") - np.load(FOLDER / "mean.npy")) * np.float32(plan["scale"])
    return np.ascontiguousarray(images.transpose(0, 2, 3, 1)), np.load(FOLDER / f"{split}_label.npy")


def main() -> None:
    """Train by the plan, an epoch from test to test."""
    keras.utils.set_random_seed(1)
    plan = json.loads((FOLDER / "plan.json").read_text())
    images, labels = samples("train", plan)
    description = json.loads((FOLDER / "net.json").read_text())
    model, _, _ = keras_step.build(description, images.shape[1:], np.load(FOLDER / "weights.npz"))
    model.compile(
        optimizer=keras.optimizers.SGD(
            Rates(plan["rates"]), momentum=plan["momentum"], weight_decay=plan["weight_decay"]
        ),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    batches = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(len(labels)).repeat()
    model.fit(
        batches.batch(plan["batch_size"]).prefetch(2),
        epochs=len(plan["rates"]) // plan["test_interval"],
        steps_per_epoch=plan["test_interval"],
        validation_data=samples("test", plan),
        validation_batch_size=plan["test_batch_size"],
        callbacks=[Report(plan["test_interval"])],
        verbose=0,
    )


if __name__ == "__main__":
    main()
