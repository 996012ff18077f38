"""Figures of drift against SciPy and loops, and a profile against the images themselves."""

import math

import numpy as np
import pytest
from scipy import stats

from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.ingest.report.profile import chi_square, common_edges, read_profile, stability_index
from tests.reference.ingest_in_process import ingest
from tests.reference.raw_sources import image_bgr, write_images


@pytest.mark.parametrize("seed", range(8))
def test_chi_square_is_that_of_scipy(seed):
    rng = np.random.default_rng(seed)
    old_counts = rng.integers(1, 200, 2 + 3 * seed)
    now = rng.poisson(old_counts * rng.uniform(0.7, 1.3, len(old_counts)))
    statistic, freedom, chance = chi_square([*old_counts, 0], [*now, 0])
    expected = stats.chi2_contingency([old_counts, now], correction=False)
    assert statistic == pytest.approx(expected.statistic)
    assert freedom == expected.dof
    # The cube root is good to some thousandths; with one degree of freedom to a hundredth.
    assert chance == pytest.approx(expected.pvalue, abs=0.005 if freedom > 1 else 0.012)


def test_stability_index_is_the_sum_over_bins():
    old_counts, now = [40, 0, 60, 5], [10, 20, 70, 5]
    expected = 0.0
    for p, q in zip(old_counts, now, strict=True):
        p, q = (p + 0.5) / (sum(old_counts) + 2), (q + 0.5) / (sum(now) + 2)
        expected += (q - p) * math.log(q / p)
    assert stability_index(old_counts, now) == pytest.approx(expected)
    assert stability_index([3, 9], [30, 90]) < 0.01


def test_chi_square_of_nothing_is_no_difference():
    assert chi_square([5], [7]) == (0.0, 0, 1.0)
    assert chi_square([0, 0], [1, 2])[2] == 1.0


def test_few_whole_numbers_have_a_bin_each():
    assert common_edges([np.array([28.0, 32.0]), np.array([32.0])]).tolist() == [28, 32, 33]
    edges = common_edges([np.linspace(0, 1, 50), np.array([2.0])])
    assert (edges[0], edges[-1], len(edges)) == (0, 2, 17)


def test_a_profile_is_of_the_samples_that_count(tmp_path):
    source = write_images(tmp_path / "raw", 30)
    lines = source.read_text().splitlines()
    config = IngestConfig(
        source=source, output=tmp_path / "out", test_fraction=0, samples_per_shard=20, resize_height=4, resize_width=6
    )
    ingest(config, tmp_path / "work")
    source.write_text("\n".join(lines[:12] + lines[13:]) + "\n")
    ingest(config, tmp_path / "work", goes_on=True)
    profile = read_profile(tmp_path / "out")
    assert (profile.version, sum(profile.classes.values()), len(profile.looks)) == (2, 29, 29)
    assert profile.weights.tolist() == [1.0] * 29
    assert set(profile.column("height")[0]) == set(profile.column("width")[0]) == {8.0}  # before the resize
    import cv2

    means = [cv2.resize(image_bgr(i), (6, 4)).mean() for i in range(30) if i != 12]
    np.testing.assert_allclose(sorted(profile.column("mean")[0]), sorted(means), rtol=1e-9)
    spreads = [cv2.resize(image_bgr(i), (6, 4)).std() for i in range(30) if i != 12]
    np.testing.assert_allclose(sorted(profile.column("std")[0]), sorted(spreads), rtol=1e-9)
