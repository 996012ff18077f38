import numpy as np
import pytest

from deepspark_ops.errors import DataError
from deepspark_ops.evaluate.figures.reconstruction import ReconstructionSum
from tests.reference.slow_figures import slow_reconstruction
from tests.unit.deepspark_ops.evaluate.figures.batched_sum import sum_in_batches


def reconstructions(n, seed):
    rng = np.random.default_rng(seed)
    inputs = rng.random((n, 1, 3, 4)).astype(np.float32)
    outputs = (inputs + 0.2 * rng.random((n, 1, 1, 1)) * rng.standard_normal(inputs.shape)).astype(np.float32)
    outputs[5] = inputs[5]
    return outputs, inputs


def test_figures_are_those_of_the_definitions():
    outputs, inputs = reconstructions(50, 1)
    result = sum_in_batches(ReconstructionSum(shown=3), outputs, inputs).result()
    range_ = float(inputs.max()) - float(inputs.min())
    rows = [values.reshape(50, -1).astype(np.float64).tolist() for values in (outputs, inputs)]
    expected = slow_reconstruction(*rows, range_)
    assert result.mse == pytest.approx(expected["mse"], rel=1e-12)
    assert result.mae == pytest.approx(expected["mae"], rel=1e-12)
    assert result.psnr == pytest.approx(expected["psnr"], rel=1e-12)
    assert (result.n_samples, result.n_perfect) == (50, 1)
    each = np.array(expected["each"])
    assert [sample.index for sample in result.worst] == np.argsort(-each)[:3].tolist()
    assert [sample.index for sample in result.best] == np.argsort(each)[:3].tolist()
    assert sum(result.errors.counts) + result.errors.below + result.errors.above == 50


def test_batches_and_processes_do_not_matter():
    outputs, inputs = reconstructions(60, 2)
    total = sum_in_batches(ReconstructionSum(shown=3), outputs, inputs, batch=60)
    first = ReconstructionSum(shown=3)
    for row in range(59, 19, -1):
        first.add(outputs[row : row + 1], inputs[row : row + 1], start=row)
    first.merge(sum_in_batches(ReconstructionSum(shown=3), outputs[:20], inputs[:20]))
    assert first.result() == total.result()


def test_perfect_samples_have_no_psnr():
    total = ReconstructionSum()
    total.add(np.eye(2), np.eye(2))
    assert (total.result().mse, total.result().psnr, total.result().n_perfect) == (0.0, None, 2)


def test_bad_numbers_are_named():
    with pytest.raises(DataError, match=r"^sample 9: a value that the net gave back is inf, not a finite number"):
        ReconstructionSum().add(np.array([[[1.0]], [[np.inf]]]), np.ones((2, 1, 1)), start=8)
    with pytest.raises(DataError, match=r"^no sample to give back$"):
        ReconstructionSum().result()
