"""Figures of evaluation as plain loops, written from their definitions; nothing of the package is used."""

import math
from fractions import Fraction


def slow_roc_auc(scores, targets):
    """Hanley and McNeil 1982: the share of ordered pairs of a positive and a negative, equal pairs count half."""
    pairs = [
        1.0 if high > low else 0.5 if high == low else 0.0
        for high, is_high in zip(scores, targets, strict=True)
        if is_high
        for low, is_low in zip(scores, targets, strict=True)
        if not is_low
    ]
    return sum(pairs) / len(pairs) if pairs else None


def slow_average_precision(scores, targets):
    """Sum over distinct scores, descending, of precision there times the recall gained."""
    n_positives = sum(targets)
    if not n_positives:
        return None
    total = last_recall = 0.0
    for threshold in sorted(set(scores), reverse=True):
        accepted_targets = [target for score, target in zip(scores, targets, strict=True) if score >= threshold]
        recall = sum(accepted_targets) / n_positives
        total += (recall - last_recall) * sum(accepted_targets) / len(accepted_targets)
        last_recall = recall
    return total


def slow_ece(confidences, is_right, n_bins):
    """Guo et al. 2017, equations 1 to 3; returns ECE and the largest error of a bin."""
    total = largest = 0.0
    for m in range(1, n_bins + 1):
        low, high = (m - 1) / n_bins, m / n_bins
        inside = [at for at, value in enumerate(confidences) if low < value <= high or (m == 1 and value == 0.0)]
        if inside:
            accuracy = sum(is_right[at] for at in inside) / len(inside)
            confidence = sum(confidences[at] for at in inside) / len(inside)
            total += len(inside) / len(confidences) * abs(accuracy - confidence)
            largest = max(largest, abs(accuracy - confidence))
    return total, largest


def slow_regression(predicted, true):
    """One output, in exact fractions: a dict of mae, rmse, r2, bias."""
    answers, truth = [Fraction(value) for value in predicted], [Fraction(value) for value in true]
    n = len(truth)
    residuals = [answer - other for answer, other in zip(answers, truth, strict=True)]
    squared = sum(residual * residual for residual in residuals)
    mean = sum(truth) / n
    spread = sum((value - mean) ** 2 for value in truth)
    return {
        "mae": float(sum(abs(residual) for residual in residuals) / n),
        "rmse": math.sqrt(squared / n),
        "bias": float(sum(residuals) / n),
        "r2": float(1 - squared / spread) if spread else None,
    }


def slow_segmentation(predicted, labels, n_classes, ignore_label=None):
    """Long et al. 2015, section 5, over lists of pixels."""
    n = [[0] * n_classes for _ in range(n_classes)]
    for answer, label in zip(predicted, labels, strict=True):
        if label != ignore_label:
            n[label][answer] += 1
    t = [sum(row) for row in n]
    n_predicted = [sum(n[i][j] for i in range(n_classes)) for j in range(n_classes)]
    present = [i for i in range(n_classes) if t[i]]
    classes = [i for i in range(n_classes) if t[i] + n_predicted[i] - n[i][i]]
    iou = {i: n[i][i] / (t[i] + n_predicted[i] - n[i][i]) for i in classes}
    return {
        "confusion": n,
        "pixel_accuracy": sum(n[i][i] for i in range(n_classes)) / sum(t),
        "mean_accuracy": sum(n[i][i] / t[i] for i in present) / len(present),
        "mean_iou": sum(iou.values()) / len(classes),
        "frequency_weighted_iou": sum(t[i] * iou[i] for i in classes) / sum(t),
    }


def slow_verification(distances, is_same):
    """Every threshold tried: best share of right answers, and the equal error rate by bisection on the ROC's lines."""
    n = len(distances)
    n_same = sum(is_same)
    points = [(0.0, 0.0)]
    best = (n - n_same) / n
    for threshold in sorted(set(distances)):
        hits = sum(same for distance, same in zip(distances, is_same, strict=True) if distance <= threshold)
        alarms = sum(not same for distance, same in zip(distances, is_same, strict=True) if distance <= threshold)
        best = max(best, (hits + (n - n_same) - alarms) / n)
        points.append((alarms / (n - n_same), hits / n_same))

    def at(t):
        """A place on the ROC's polyline, t in [0, number of lines]."""
        k = min(int(t), len(points) - 2)
        (x0, y0), (x1, y1) = points[k], points[k + 1]
        return x0 + (t - k) * (x1 - x0), y0 + (t - k) * (y1 - y0)

    low, high = 0.0, float(len(points) - 1)
    for _ in range(200):
        middle = (low + high) / 2
        x, y = at(middle)
        low, high = (low, middle) if x >= 1 - y else (middle, high)
    return best, at(high)[0]


def slow_neighbours(vectors, labels, k):
    """The share of samples with another sample of the same class, with such a sample among the k nearest."""
    hits = []
    for at, (vector, label) in enumerate(zip(vectors, labels, strict=True)):
        neighbours = [other for other in range(len(vectors)) if other != at]
        if all(labels[other] != label for other in neighbours):
            continue
        neighbours.sort(key=lambda other: (math.dist(vector, vectors[other]), other))
        hits.append(any(labels[other] == label for other in neighbours[:k]))
    return sum(hits) / len(hits)


def slow_reconstruction(outputs, targets, peak):
    """Lists of lists: mean MSE, mean MAE, mean PSNR of the samples that are not perfect, and each sample's MSE."""
    mse = [
        sum((x - y) ** 2 for x, y in zip(output, other, strict=True)) / len(output)
        for output, other in zip(outputs, targets, strict=True)
    ]
    mae = [
        sum(abs(x - y) for x, y in zip(output, other, strict=True)) / len(output)
        for output, other in zip(outputs, targets, strict=True)
    ]
    psnr = [10 * math.log10(peak * peak / value) for value in mse if value]
    return {"mse": sum(mse) / len(mse), "mae": sum(mae) / len(mae), "psnr": sum(psnr) / len(psnr), "each": mse}


def slow_multi_label(probabilities, labels, threshold, ignore_label=None):
    """Counts and shares label by label, pair by pair."""
    n_labels = len(labels[0])
    counts = [{"tp": 0, "fp": 0, "fn": 0, "tn": 0} for _ in range(n_labels)]
    wrong = pairs = all_right = samples = 0
    for row, truth in zip(probabilities, labels, strict=True):
        mistakes = counted = 0
        for at in range(n_labels):
            if truth[at] == ignore_label:
                continue
            counted += 1
            answer = row[at] > threshold
            kind = ("t" if answer == bool(truth[at]) else "f") + ("p" if answer else "n")
            counts[at][kind] += 1
            mistakes += answer != bool(truth[at])
        if counted:
            samples += 1
            all_right += not mistakes
            wrong += mistakes
            pairs += counted
    return {"counts": counts, "subset": all_right / samples, "hamming": wrong / pairs}
