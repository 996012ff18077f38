"""Classification scores as plain loops over samples and classes, written from Caffe 1.0's accuracy_layer.cpp and
softmax_loss_layer.cpp; nothing of the package is used."""

import math

FLT_MIN = 1.1754943508222875e-38


def slow_softmax(row):
    largest = max(row)
    powers = [math.exp(value - largest) for value in row]
    total = sum(powers)
    return [power / total for power in powers]


def slow_scores(probabilities, labels, ignore_label=None):
    """Return a dict of top1, top5, loss, confusion and mistakes (index, label, predicted, probability)."""
    n_classes = len(probabilities[0])
    confusion = [[0] * n_classes for _ in range(n_classes)]
    correct = correct5 = n = 0
    loss = 0.0
    mistakes = []
    for index, (row, label) in enumerate(zip(probabilities, labels, strict=True)):
        if label == ignore_label:
            continue
        n += 1
        better = [k for k in range(n_classes) if k != label and row[k] >= row[label]]
        predicted = label
        if better:
            predicted = better[0]
            for k in better:
                if row[k] > row[predicted]:
                    predicted = k
            mistakes.append((index, label, predicted, row[predicted]))
        confusion[label][predicted] += 1
        correct += not better
        correct5 += len(better) < 5
        loss -= math.log(max(row[label], FLT_MIN))
    mistakes.sort(key=lambda mistake: (-mistake[3], mistake[0]))
    return {"top1": correct / n, "top5": correct5 / n, "loss": loss / n, "confusion": confusion, "mistakes": mistakes}
