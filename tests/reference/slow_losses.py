"""Loss layers as loops over positions, written from Caffe 1.0's *_loss_layer.cpp; nothing of the package is used.

Floors under logarithms are left out: separate tests use the values near the floors.
"""

import math

import numpy as np


def slow_softmax(x, axis):
    """Along an axis, a line of values at a time."""
    moved = np.moveaxis(x, axis, -1)
    top = np.zeros_like(moved)
    for index in np.ndindex(*moved.shape[:-1]):
        powers = [math.exp(value - max(moved[index])) for value in moved[index]]
        for k, power in enumerate(powers):
            top[(*index, k)] = power / sum(powers)
    return np.moveaxis(top, -1, axis)


def slow_normalizer(mode, *, n_all, n_counted, n_samples):
    return max({"FULL": n_all, "VALID": n_counted, "BATCH_SIZE": n_samples, "NONE": 1}[mode], 1)


def slow_class_loss(x, labels, axis, per_position, *, ignore=None, mode="VALID"):
    """Sum ``per_position(probabilities, label)`` over the positions that count, divided."""
    moved = np.moveaxis(slow_softmax(x, axis), axis, -1)
    flat = moved.reshape(-1, moved.shape[-1])
    total, counted = 0.0, 0
    for probabilities, label in zip(flat, np.asarray(labels).reshape(-1), strict=True):
        if ignore is not None and int(label) == ignore:
            continue
        total += per_position(probabilities, int(label))
        counted += 1
    n_samples = int(np.prod(x.shape[:axis]))
    return total / slow_normalizer(mode, n_all=len(flat), n_counted=counted, n_samples=n_samples)


def slow_softmax_loss(x, labels, axis=1, **options):
    return slow_class_loss(x, labels, axis, lambda p, label: -math.log(p[label]), **options)


def slow_infogain_loss(x, labels, matrix, axis=1, **options):
    def of(p, label):
        return -sum(matrix[label][k] * math.log(p[k]) for k in range(len(p)))

    return slow_class_loss(x, labels, axis, of, **options)


def slow_sigmoid_cross_entropy(x, targets, *, ignore=None, mode="BATCH_SIZE"):
    total, counted = 0.0, 0
    for value, target in zip(x.reshape(-1), np.asarray(targets).reshape(-1), strict=True):
        if ignore is not None and int(target) == ignore:
            continue
        p = 1 / (1 + math.exp(-value))
        total -= target * math.log(p) + (1 - target) * math.log(1 - p)
        counted += 1
    return total / slow_normalizer(mode, n_all=x.size, n_counted=counted, n_samples=x.shape[0])


def slow_hinge_loss(x, labels, *, norm):
    flat = x.reshape(x.shape[0], -1)
    total = 0.0
    for n, k in np.ndindex(*flat.shape):
        margin = max(0.0, 1 + (-flat[n, k] if k == int(labels[n]) else flat[n, k]))
        total += margin if norm == 1 else margin**2
    return total / x.shape[0]


def slow_euclidean_loss(a, b):
    return sum((p - q) ** 2 for p, q in zip(a.reshape(-1), b.reshape(-1), strict=True)) / (2 * a.shape[0])


def slow_multinomial_loss(p, labels):
    flat = p.reshape(p.shape[0], -1)
    return -sum(math.log(flat[n, int(label)]) for n, label in enumerate(np.reshape(labels, -1))) / p.shape[0]


def slow_contrastive_loss(a, b, similar, *, margin, legacy):
    total = 0.0
    for n in range(a.shape[0]):
        squared = sum((p - q) ** 2 for p, q in zip(a[n].reshape(-1), b[n].reshape(-1), strict=True))
        if int(np.reshape(similar, -1)[n]):
            total += squared
        elif legacy:
            total += max(margin - squared, 0.0)
        else:
            total += max(margin - math.sqrt(squared), 0.0) ** 2
    return total / (2 * a.shape[0])


def slow_accuracy(x, labels, axis=1, *, top_k=1, ignore=None):
    """Return (accuracy, per class), AccuracyLayer::Forward_cpu."""
    moved = np.moveaxis(x, axis, -1)
    flat = moved.reshape(-1, moved.shape[-1])
    hits, counts = np.zeros(flat.shape[1]), np.zeros(flat.shape[1])
    for scores, label in zip(flat, np.asarray(labels).reshape(-1).astype(int), strict=True):
        if ignore is not None and label == ignore:
            continue
        counts[label] += 1
        n_better = -1  # the true class finds itself
        for score in scores:
            if score >= scores[label]:
                n_better += 1
        hits[label] += n_better < top_k
    per_class = [0.0 if counts[k] == 0 else hits[k] / counts[k] for k in range(len(counts))]
    return (hits.sum() / counts.sum() if counts.sum() else 0.0), np.array(per_class)
