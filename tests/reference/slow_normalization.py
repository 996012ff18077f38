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
        done = []
        for group in groups:
            mean = sum(group.reshape(-1)) / group.size
            deviation = math.sqrt(sum((group.reshape(-1) - mean) ** 2) / group.size)
            done.append((group - mean) / (deviation + eps) if normalize_variance else group - mean)
        top[n] = done[0] if across_channels else np.stack(done)
    return top


def slow_moving_sums(sums, batches, fraction):
    """Return one channel's (sum of means, of variances, of weights) after batches of (mean, variance), one by one."""
    for mean, variance in batches:
        sums = (fraction * sums[0] + mean, fraction * sums[1] + variance, fraction * sums[2] + 1.0)
    return sums
