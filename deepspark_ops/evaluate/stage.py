"""Stage evaluate: score a trained net on data and write ``metrics.json`` and ``report.html``."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from deepspark_ops.config.evaluate import EvaluateConfig
from deepspark_ops.config.shared_options.task import TaskName
from deepspark_ops.devices.worker_events import devices_text
from deepspark_ops.evaluate.comparison.mistake_pictures import (
    PICTURE_PIXELS,
    kept_errors,
    kept_mistakes,
    write_mistake_pictures,
)
from deepspark_ops.evaluate.comparison.section import ComparisonSection, make_section
from deepspark_ops.evaluate.evaluation_folder import Evaluated, read_evaluation
from deepspark_ops.evaluate.metrics import METRICS_NAME, REPORT_NAME, classes_of
from deepspark_ops.evaluate.part_scores import Scored, score_range
from deepspark_ops.evaluate.per_sample.each_batch import rows_folder, write_rows
from deepspark_ops.evaluate.per_sample.properties import check_properties, sample_groups
from deepspark_ops.evaluate.report import render_report
from deepspark_ops.evaluate.saliency.mistake_maps import mistake_maps
from deepspark_ops.evaluate.sample_scores import SAMPLES_NAME, read_samples, write_samples
from deepspark_ops.evaluate.samples import Samples
from deepspark_ops.evaluate.scores import Answers, SampleLosses
from deepspark_ops.evaluate.scoring import Answer, measure_speed, report_of, scored_samples
from deepspark_ops.evaluate.task_pages.examples import make_examples, stored_pictures, wanted_examples
from deepspark_ops.evaluate.task_pages.sample_groups import groups_behind_figures
from deepspark_ops.evaluate.tasks.choice import ChosenTask, choose_tasks, task_wish
from deepspark_ops.evaluate.tasks.metrics_head import MetricsReport, ScoredOn, Speed
from deepspark_ops.evaluate.tf_predict import Answers as AnswersOf
from deepspark_ops.evaluate.tf_predict import open_answers
from deepspark_ops.evaluate.trained_net import TrainedNet, open_run
from deepspark_ops.events import read_events
from deepspark_ops.run_label.label import RunLabel, read_label
from deepspark_ops.run_label.names import TRAINING, default_name
from deepspark_ops.run_paths import RunPaths, write_text_whole
from deepspark_ops.run_view.curves import read_curves
from deepspark_ops.shards.files.picture_archive import EncodedPicture
from deepspark_ops.shards.manifest import sha256_of_file
from deepspark_ops.shards.thumbnail import (
    SMALL_PIXELS,
    Picture,
    encoded,
    shrunk,
    side_by_side,
    small_picture,
)

_log = logging.getLogger(__name__)
MISTAKE_QUALITY = 80
"""Of the JPEGs that are kept of mistakes: enough for a look, half the bytes."""


@dataclass(frozen=True)
class Evaluation:
    """A finished evaluation.

    Attributes:
        metrics: What was found.
        metrics_path: Where it is written.
        report_path: The page.
    """

    metrics: MetricsReport
    metrics_path: Path
    report_path: Path


ScoreAll = Callable[[EvaluateConfig, TrainedNet, Sequence[ChosenTask], Answer, Path | None], Scored]
"""Scores every sample: config, net, its results, what gives them in this process, folder for files of rows."""


def score_here(
    config: EvaluateConfig, trained: TrainedNet, tasks: Sequence[ChosenTask], answer: Answer, rows: Path | None
) -> Scored:
    """Score every sample in this process."""
    return score_range(config, trained.samples, tasks, answer, rows)


def run_evaluate(config: EvaluateConfig, score: ScoreAll = score_here) -> Evaluation:
    """Score a run's net and write metrics, report and samples; each is replaced whole, metrics last.

    Raises:
        DeepSparkError, CaffeImportError: What the user can correct; nothing is written then.
    """
    output = config.output or RunPaths(config.run_dir).evaluation
    with open_run(config) as trained, rows_folder(output) as rows:
        tasks = choose_tasks(trained.net, task_wish(config.task, config.output_blob, config.target_blob))
        _log.info("samples: %s of %s", f"{trained.samples.n_samples:,}", trained.data_name)
        for task in tasks:
            _log.info("result: %s", task.text())
        check_properties(config.slice_columns, trained.samples, tasks)
        ready = open_answers(trained, tasks, config, n_threads=len(os.sched_getaffinity(0)))
        answers = ready.answers
        scored = score(config, trained, tasks, ready.answer, rows)
        metrics = report_of(
            scored.sums,
            ScoredOn(
                net=trained.net.name,
                run=trained.run.root.name,
                iteration=trained.weights.iteration,
                weights=trained.weights.path.name,
                weights_digest=f"sha256:{sha256_of_file(trained.weights.path)}",
                dataset=trained.data_name,
                dataset_digest=scored.digest.text(),
                split=config.split,
                score_blob=tasks[0].output,
                split_rule=trained.samples.split_rule,
            ),
            trained.samples.answer_names(tasks[0].task),
            _speed(answers, trained.samples, ready.device),
            scored.slices,
        )
        samples = scored_samples(metrics, scored.sums[0], scored.digest, sample_groups(trained.samples))
        section = _section(config, Evaluated(metrics, samples))
        mistakes = _mistake_pictures(trained.samples, tasks[0], answers, samples.answers)
        classes = classes_of(metrics)
        shown = {*(mistake.index for mistake in classes.mistakes)} if classes else set()
        shown |= {*section.shown_samples()} if section else set()
        groups = groups_behind_figures(metrics, samples.answers, rows)
        shown |= {*groups.texts}
        explained = classes.mistakes[: config.saliency] if classes else ()
        maps = mistake_maps(trained, tasks[0], answers, explained)
        label = read_label(trained.run.root)
        page = render_report(
            metrics,
            curves=read_curves(read_events(trained.run.events)),
            pictures=_pictures(trained.samples, sorted(shown), tasks[0].task),
            settings=_settings(trained),
            section=section,
            examples=make_examples(trained.samples, tasks[0], answers, wanted_examples(metrics)),
            groups=groups,
            sample_names=_names(trained.samples, sorted(groups.texts)),
            mistake_maps=maps,
            name=_run_name(trained, label),
            tags=label.tags,
        )
        evaluation = Evaluation(metrics, output / METRICS_NAME, output / REPORT_NAME)
        write_text_whole(evaluation.report_path, page)
        write_samples(output / SAMPLES_NAME, samples)
        write_rows(output, rows, metrics.scored.weights_digest)
        write_mistake_pictures(output, samples, mistakes)
        write_text_whole(evaluation.metrics_path, metrics.to_json())
    return evaluation


def _section(config: EvaluateConfig, evaluated: Evaluated) -> ComparisonSection | None:
    if config.production is None:
        return None
    production_samples = config.production_samples
    return make_section(
        evaluated,
        read_evaluation(config.production),
        known_content=read_samples(production_samples).content if production_samples is not None else None,
    )


def _speed(answers: AnswersOf, samples: Samples, device: str) -> Speed:
    feeds = next(samples.batches()).feeds
    batch_size = len(next(iter(feeds.values())))
    return measure_speed(lambda: answers(feeds), batch_size=batch_size, device=device)


def _mistake_pictures(
    samples: Samples, chosen: ChosenTask, answers: AnswersOf, losses: SampleLosses
) -> dict[int, EncodedPicture]:
    """Return small pictures of a classification's mistakes; for another task, of the largest errors."""
    if not isinstance(losses, Answers):
        return _error_pictures(samples, chosen, answers, kept_errors(losses))
    return {
        index: small_picture(picture, PICTURE_PIXELS, quality=MISTAKE_QUALITY)
        for index, picture in _pictures(samples, kept_mistakes(losses), chosen.task).items()
    }


def _error_pictures(
    samples: Samples, chosen: ChosenTask, answers: AnswersOf, indices: Sequence[int]
) -> dict[int, EncodedPicture]:
    """Return small pictures of samples beside the net's output; empty if samples are no pictures.

    A batch at a time: the answers of a net for pixels are large.
    """
    encoded_pictures: dict[int, EncodedPicture] = {}
    for start in range(0, len(indices), samples.batch_size):
        chunk = make_examples(samples, chosen, answers, indices[start : start + samples.batch_size])
        parts = {
            index: [picture for _, picture in example.pictures] for index, example in chunk.items() if example.pictures
        }
        if not parts:
            break
        for index, pictures in parts.items():
            is_photo = max(pictures[0].shape[:2]) > SMALL_PIXELS
            small = side_by_side([shrunk(picture, PICTURE_PIXELS) for picture in pictures])
            encoded_pictures[index] = encoded(small, is_photo=is_photo, quality=MISTAKE_QUALITY)
    return encoded_pictures


def _pictures(samples: Samples, indices: Sequence[int], task: TaskName) -> Mapping[int, Picture]:
    """Return the samples' pictures, those of a pair side by side, if the samples are pictures."""
    pictures = {index: [side for _, side in stored_pictures(task, samples.stored(index))] for index in indices}
    return {index: sides[0] if len(sides) == 1 else side_by_side(sides) for index, sides in pictures.items() if sides}


def _names(samples: Samples, indices: Sequence[int]) -> dict[int, str]:
    """Return the samples' files or keys, if the source has names."""
    names = {index: samples.names(index, 1) for index in indices}
    return {index: of_sample[0] for index, of_sample in names.items() if of_sample}


def _run_name(trained: TrainedNet, label: RunLabel) -> str:
    """Return the name of the run in lists."""
    config = trained.config
    return label.name or default_name(
        work=TRAINING,
        net=trained.net.name,
        solver=config.solver.name,
        strategy=config.strategy,
        n_workers=int(config.n_workers),
        max_iter=trained.solver.max_iter,
    )


def _settings(trained: TrainedNet) -> dict[str, str]:
    config, solver = trained.config, trained.solver
    workers = "1 worker" if config.n_workers == 1 else f"{config.n_workers} workers, {config.strategy}"
    devices = devices_text(read_events(trained.run.events))
    return {
        "Trained by": workers,
        **({"Trained on": devices} if devices else {}),
        "Solver": f"{solver.type}, base_lr {solver.base_lr:g}, {solver.lr_policy}, max_iter {solver.max_iter}",
        "Parameters": f"{trained.net.params.n_params:,}",
    }
