"""BatchNorm and MVN as loops over channels, written from Caffe 1.0's batch_norm_layer.cpp and mvn_layer.cpp;
nothing of the package is used."""

import math

import numpy as np


def slow_batch_norm(x, means, variances):
    """Normalise x (N, C, ...) with given statistics (C,), eps already added to the variances."""
    top = np.zeros_like(x)
    for c in range(x.shape[1]):
        top[:, c] = (x[:, c] - means[c]) / math.sqrt(variances[c])
    return top


def slow_channel_statistics(x):
    """Return (means, variances) (C,), divided by the number of values."""
    means, variances = [], []
    for c in range(x.shape[1]):
        values = x[:, c].reshape(-1)
        mean = sum(values) / len(values)
        means.append(mean)
        variances.append(sum((value - mean) ** 2 for value in values) / len(values))
    return np.array(means), np.array(variances)


def slow_mvn(x, *, across_channels, normalize_variance, eps):
    """x (N, C, H, W); eps is added to the standard deviation."""
    top = np.zeros_like(x)
    for n in range(x.shape[0]):
        groups = [x[n]] if across_channels else list(x[n])
        normalized = []
        for group in groups:
            mean = sum(group.reshape(-1)) / group.size
            deviation = math.sqrt(sum((group.reshape(-1) - mean) ** 2) / group.size)
            normalized.append((group - mean) / (deviation + eps) if normalize_variance else group - mean)
        top[n] = normalized[0] if across_channels else np.stack(normalized)
    return top


def slow_moving_sums(sums, batches, fraction):
    """Return a channel's (sum of means, of variances, of weights) after batches of (mean, variance), in order."""
    for mean, variance in batches:
        sums = (fraction * sums[0] + mean, fraction * sums[1] + variance, fraction * sums[2] + 1.0)
    return sums


def slow_batch_norm_scale(x, factors, biases, eps):
    """Return top, means and variances of BatchNorm by the batch, then Scale; x (N, C, H, W)."""
    means, variances = slow_channel_statistics(x)
    return slow_scale(slow_batch_norm(x, means, variances + eps), factors, biases), means, variances


def slow_scale(x, factors, biases):
    """ScaleLayer::Forward_cpu with a bias, per channel."""
    top = np.zeros_like(x)
    for c in range(x.shape[1]):
        top[:, c] = factors[c] * x[:, c] + biases[c]
    return top


def slow_batch_norm_scale_gradients(x, factors, eps, of_top):
    """Return the gradients (of x, of the factors, of the biases), by ScaleLayer's and BatchNormLayer's Backward_cpu."""
    means, variances = slow_channel_statistics(x)
    normalized = slow_batch_norm(x, means, variances + eps)
    of_x = np.zeros_like(x)
    of_factors, of_biases = [], []
    for c in range(x.shape[1]):
        of_factors.append(sum((of_top[:, c] * normalized[:, c]).reshape(-1)))
        of_biases.append(sum(of_top[:, c].reshape(-1)))
        # dE(Y)/dX = (dE/dY - mean(dE/dY) - mean(dE/dY . Y) . Y) / sqrt(var + eps)
        of_normalized = factors[c] * of_top[:, c]
        mean = sum(of_normalized.reshape(-1)) / of_normalized.size
        mean_product = sum((of_normalized * normalized[:, c]).reshape(-1)) / of_normalized.size
        of_x[:, c] = (of_normalized - mean - mean_product * normalized[:, c]) / math.sqrt(variances[c] + eps)
    return of_x, np.array(of_factors), np.array(of_biases)
