"""Evaluations made of lists of answers, for tests of what compares and promotes models; no net is involved."""

import numpy as np

from deepspark_ops.evaluate.evaluation_folder import Evaluated
from deepspark_ops.evaluate.sample_scores import SAMPLES_NAME, ScoredSamples, write_samples
from deepspark_ops.evaluate.scores import ScoreSum
from deepspark_ops.evaluate.tasks.choice import ChosenTask
from deepspark_ops.evaluate.tasks.classification import build_metrics
from deepspark_ops.evaluate.tasks.metrics_head import ScoredOn, Speed
from deepspark_ops.evaluate.tasks.registry import sum_of
from deepspark_ops.evaluate.tasks.task_sum import ReportHead


def _scored_on(weights, data, **fields) -> ScoredOn:
    return ScoredOn(
        net="n",
        run="r",
        iteration=1,
        weights="w.caffemodel",
        weights_digest=f"sha256:{weights}",
        dataset="/data/d",
        dataset_digest=f"sha256:{data}",
        split="test",
        score_blob="ip",
        **fields,
    )


def evaluation(
    answers,
    labels,
    *,
    n_classes=2,
    names=(),
    data="same",
    weights="w",
    speed=None,
    sureness=0.9,
    content=None,
    split_rule=None,
) -> Evaluated:
    """Return the evaluation of a net that gives ``answers``, each with probability ``sureness``."""
    answers, labels = np.asarray(answers), np.asarray(labels)
    rows = np.full((len(labels), n_classes), (1 - sureness) / max(1, n_classes - 1))
    rows[np.arange(len(labels)), answers] = sureness
    total = ScoreSum(n_classes, worst=3)
    total.add(rows, labels)
    scores = total.result()
    scored = _scored_on(weights, data, split_rule=split_rule)
    timing = None if speed is None else Speed(images_per_s=speed, batch_size=100, machine="m")
    metrics = build_metrics(scores, scored, tuple(names), timing)
    hashes = np.array(range(len(labels)) if content is None else list(content), np.uint64)
    samples = ScoredSamples(scored.dataset_digest, scored.weights_digest, n_classes, scores.answers, hashes)
    return Evaluated(metrics, samples)


def of_pairs(distances, targets, *, weights="w") -> Evaluated:
    """Return the evaluation of a net whose vectors of pair i are ``distances[i]`` apart; 1 of ``targets`` is alike."""
    return of_task(np.asarray(distances)[:, None], targets, task="embedding", weights=weights)


def of_task(answers, targets, *, task="regression", weights="w", data="same") -> Evaluated:
    """Return the evaluation of a net that gives ``answers`` (n, 1) where ``targets`` are true, as another task.

    Of a segmentation each sample is one pixel of two classes.
    """
    is_pair = task == "embedding"  # the second vector of a pair is 0
    n_classes = {"multi_label": 1, "segmentation": 2}.get(task, 0)
    total = sum_of(
        ChosenTask(
            task=task,
            outputs=("ip", "other") if is_pair else ("ip",),
            target="y",
            is_target_fed=True,
            activation="none",
            shape=(1,),
            n_classes=n_classes,
            ignore_label=None,
            found_by="a test",
        )
    )
    outputs = np.asarray(answers, np.float64)
    if task == "segmentation":
        outputs = outputs.reshape(-1, 1, 1, 1)
    total.add([outputs, np.zeros_like(outputs)] if is_pair else [outputs], np.asarray(targets, np.float64), start=0)
    scored = _scored_on(weights, data, target_blob="y")
    metrics = total.metrics(ReportHead(scored))
    hashes = np.arange(len(targets), dtype=np.uint64)
    samples = ScoredSamples(
        scored.dataset_digest, scored.weights_digest, n_classes, total.samples(), hashes, metrics.task
    )
    return Evaluated(metrics, samples)


def answers_with(labels, wrong, *, n_classes=2):
    """Return the labels as answers, but the next class at the positions ``wrong``."""
    answers = np.asarray(labels).copy()
    answers[list(wrong)] = (answers[list(wrong)] + 1) % n_classes
    return answers


def write_evaluation(folder, evaluated: Evaluated):
    """Write the two files as stage evaluate does; return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "metrics.json").write_text(evaluated.metrics.to_json())
    write_samples(folder / SAMPLES_NAME, evaluated.samples)
    return folder
