"""Train with PyTorch to an accuracy: ``torch_accuracy.py FOLDER VARIANT N_THREADS``; a line per test."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np
import torch
from serve import say
from torch.utils.data import DataLoader, TensorDataset
from torch_step import Net, load_weights


def samples(folder: Path, split: str, plan: dict[str, float]) -> TensorDataset:
    """Return the transformed images of a split, and the labels."""
    images = torch.from_numpy(np.load(folder / f"{split}_data.npy")).float()
    mean = torch.from_numpy(np.load(folder / "mean.npy"))
    return TensorDataset((images - mean) * plan["scale"], torch.from_numpy(np.load(folder / f"{split}_label.npy")))


def main(folder: Path, variant: str, n_threads: int) -> None:
    """Train by the plan, and test at the plan's points."""
    torch.set_num_threads(n_threads)
    torch.manual_seed(1)
    plan = json.loads((folder / "plan.json").read_text())
    description = json.loads((folder / "net.json").read_text())
    layout = torch.channels_last if variant == "channels_last" else torch.contiguous_format
    net = Net(description)
    load_weights(net, description, folder / "weights.npz")
    net = net.to(memory_format=layout)
    trained = samples(folder, "train", plan)
    tests = DataLoader(samples(folder, "test", plan), plan["test_batch_size"])
    solver = torch.optim.SGD(
        net.parameters(), plan["rates"][0], plan["momentum"], weight_decay=plan["weight_decay"], fused=True
    )
    batches = iter(())
    for clock, rate in enumerate(plan["rates"], 1):
        for group in solver.param_groups:
            group["lr"] = rate
        batch = next(batches, None)
        if batch is None:
            batches = iter(DataLoader(trained, plan["batch_size"], shuffle=True, drop_last=True))
            batch = next(batches)
        images, labels = batch
        solver.zero_grad()
        net.train()(images.contiguous(memory_format=layout), labels).backward()
        solver.step()
        if clock % plan["test_interval"] == 0:
            say({"clock": clock, "accuracy": accuracy(net, tests), "time": time.time()})


@torch.inference_mode()
def accuracy(net: Net, tests: DataLoader) -> float:
    """Return the share of the test images with the right class."""
    net.eval()
    hits = sum(int((net(images).argmax(1) == labels).sum()) for images, labels in tests)
    return hits / len(tests.dataset)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
