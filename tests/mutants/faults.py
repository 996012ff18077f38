"""The faults that ``make mutants`` plants: at least one per folder of the packages, each the kind that slips in."""

from __future__ import annotations

from dataclasses import dataclass

from tests.paths import ROOT

_UNIT = "tests/unit"
_IMPORTER = f"{_UNIT}/caffe_import"
_PIPELINE = f"{_UNIT}/deepspark_ops"


@dataclass(frozen=True)
class Fault:
    """One change of one place in the code.

    Attributes:
        name: What is wrong then, in words without spaces.
        file: Path below the repository.
        old: Text that stands in the file exactly once.
        new: What it is replaced by.
        tests: Files or folders of tests that must turn red.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def count(self) -> int:
        """Return how often the text is in the file; 0 for a file that is gone."""
        path = ROOT / self.file
        return path.read_text().count(self.old) if path.is_file() else 0


FAULTS = (
    Fault(
        "what-a-segment-reads-is-not-counted",
        "caffe_import/devices/layer_memory.py",
        "needed = found.kept if inside is None else (*found.kept, *found.reads)",
        "needed = found.kept",
        (f"{_IMPORTER}/devices/test_step_memory.py",),
    ),
    Fault(
        "cuts-inside-in-place-chains",
        "caffe_import/devices/segments.py",
        "return [at for at in range(len(net.layers) + 1) if at not in closed]",
        "return [*range(len(net.layers) + 1)]",
        (f"{_IMPORTER}/devices/test_segments.py",),
    ),
    Fault(
        "recomputed-dropout-draws-anew",
        "caffe_import/tf_graph/recompute.py",
        "reads = [tf.identity(tensor) for tensor in first]",
        "reads = [tensor + tf.cast(tensor.dtype.is_integer, tensor.dtype) for tensor in first]",
        (f"{_IMPORTER}/tf_graph/test_recompute.py",),
    ),
    Fault(
        "largest-batch-size-is-one-too-large",
        "deepspark_ops/preflight/memory_table.py",
        "        return low\n",
        "        return low + 1\n",
        (f"{_PIPELINE}/preflight/test_memory_table.py",),
    ),
    Fault(
        "pooling-drops-no-last-window",
        "caffe_import/net/shapes/pooled_windows.py",
        "* stride >= size[axis] + pad:\n        pooled -= 1",
        "* stride >= size[axis] + pad:\n        pooled -= 0",
        (f"{_IMPORTER}/layers/test_pooling.py",),
    ),
    Fault(
        "average-pooling-divides-by-the-part-inside-the-image",
        "caffe_import/tf_graph/layers/pooling.py",
        "return np.minimum(stop, size + pad) - start",
        "return np.minimum(stop, size) - start",
        (f"{_IMPORTER}/layers/test_pooling.py",),
    ),
    Fault(
        "lrn-divides-by-nothing",
        "caffe_import/tf_graph/layers/lrn.py",
        "weight = options.alpha / options.local_size",
        "weight = options.alpha",
        (f"{_IMPORTER}/layers/test_lrn.py",),
    ),
    Fault(
        "mirror-flips-upside-down",
        "caffe_import/data/transform.py",
        "out[i] = scratch[0, :, :, ::-1]",
        "out[i] = scratch[0, :, ::-1, :]",
        (f"{_IMPORTER}/data/test_transform.py",),
    ),
    Fault(
        "test-crop-is-one-pixel-off",
        "caffe_import/data/transform.py",
        "return [(height - crop) // 2] * n, [(width - crop) // 2] * n",
        "return [(height - crop + 1) // 2] * n, [(width - crop) // 2] * n",
        (f"{_IMPORTER}/data/test_transform.py",),
    ),
    Fault(
        "solverstate-forgets-the-rate-counter",
        "caffe_import/files/solverstate.py",
        "current_step=state.current_step,",
        "current_step=0,",
        (f"{_IMPORTER}/files/test_solverstate.py",),
    ),
    Fault(
        "max-level-is-exclusive",
        "caffe_import/net/phases.py",
        'rule.HasField("max_level") and state.level > rule.max_level',
        'rule.HasField("max_level") and state.level >= rule.max_level',
        (f"{_IMPORTER}/net/test_phases.py",),
    ),
    Fault(
        "softmax-loss-definition-takes-one-bottom",
        "caffe_import/layers/softmax_with_loss.py",
        "bottoms=(2, 2)",
        "bottoms=(1, 2)",
        ("tests/architecture/test_readme.py", f"{_IMPORTER}/layers/test_softmax_with_loss.py"),
    ),
    Fault(
        "multistep-passes-two-steps-in-one-update",
        "caffe_import/solver/lr_policies.py",
        "earliest = passed_at + 1",
        "earliest = passed_at",
        (f"{_IMPORTER}/solver/test_lr_policies.py",),
    ),
    Fault(
        "clipping-sees-the-divided-sum",
        "caffe_import/tf_graph/step/solver_update.py",
        "limit = tf.constant(self.solver.clip_gradients, tf.float32)",
        "limit = tf.constant(self.solver.clip_gradients / self.solver.iter_size, tf.float32)",
        (f"{_IMPORTER}/tf_graph/test_clip_norm.py", f"{_IMPORTER}/tf_graph/test_train_step.py"),
    ),
    Fault(
        "replica-goes-on-with-the-first-ones-statistics",
        "caffe_import/tf_graph/step/device_step.py",
        "            for position, tensor in moves.items() if replica else ():",
        "            for position, tensor in statistics[0].items() if replica else ():",
        (f"{_IMPORTER}/tf_graph/step/test_device_step.py",),
    ),
    Fault(
        "pipeline-has-all-passes-in-work-at-once",
        "caffe_import/tf_graph/step/device_step.py",
        "        with tf.control_dependencies(gate):",
        "        with tf.control_dependencies(gate[:0]):",
        (f"{_IMPORTER}/tf_graph/step/test_device_step.py",),
    ),
    Fault(
        "shares-of-a-split-layer-change-places",
        "caffe_import/devices/pieces.py",
        "    for device, (start, stop) in zip(devices, shares_of(entry.shape[axis], len(devices)), strict=True):",
        "    for device, (start, stop) in zip(devices, shares_of(entry.shape[axis], len(devices))[::-1], strict=True):",
        (f"{_IMPORTER}/devices/test_pieces.py",),
    ),
    Fault(
        "recorded-case-with-other-numbers-passes",
        "caffe_import/parity/findings.py",
        "if not error <= bound:",
        "if error != error:",
        (f"{_IMPORTER}/parity",),
    ),
    Fault(
        "easgd-pushes-to-the-wrong-side",
        "deepspark_ops/exchange/strategies/easgd.py",
        "np.subtract(local, push, out=new_local)",
        "np.add(local, push, out=new_local)",
        (f"{_PIPELINE}/exchange/strategies/test_easgd.py",),
    ),
    Fault(
        "striped-lock-locks-nothing",
        "deepspark_ops/exchange/center/locks.py",
        'if self.mode != "striped":',
        'if self.mode != "full":',
        (f"{_PIPELINE}/exchange/center/test_locks.py",),
    ),
    Fault(
        "a-lost-workers-samples-are-not-read-again",
        "deepspark_ops/exchange/state/leases.py",
        "self._return(piece, piece.skip)",
        "self._return(piece, self._count(piece))",
        (f"{_PIPELINE}/exchange/state/test_leases.py",),
    ),
    Fault(
        "a-replaced-process-ends-its-exchange",
        "deepspark_ops/exchange/center/center.py",
        "if self.sessions[worker] != context.session:",
        "if not context.session:",
        (f"{_PIPELINE}/exchange/center/test_center.py",),
    ),
    Fault(
        "a-push-that-a-kill-cut-short-is-not-settled",
        "deepspark_ops/exchange/center/pushes.py",
        "if noted and int(center.counts[position]) == n_before:",
        "if noted and int(center.counts[position]) != n_before:",
        (f"{_PIPELINE}/exchange/center/test_pushes.py",),
    ),
    Fault(
        "a-wrong-secret-is-let-in",
        "deepspark_ops/exchange/transport/handshake.py",
        "if not hmac.compare_digest(proof, ",
        "if not hmac.compare_digest(proof, proof) and not hmac.compare_digest(proof, ",
        ("tests/integration/exchange/test_bad_peers.py", f"{_PIPELINE}/exchange/transport/test_handshake.py"),
    ),
    Fault(
        "rate-warms-up-from-the-start-of-time",
        "deepspark_ops/train/worker/rate_scale.py",
        "max(0, clock - self.origin) / self.warmup",
        "max(0, clock) / self.warmup",
        (f"{_PIPELINE}/train/worker/test_rate_scale.py",),
    ),
    Fault(
        "top-five-counts-six",
        "deepspark_ops/evaluate/scores.py",
        "np.count_nonzero(rank < TOP_K)",
        "np.count_nonzero(rank <= TOP_K)",
        (f"{_PIPELINE}/evaluate/test_scores.py",),
    ),
    Fault(
        "exported-model-takes-blue-first",
        "deepspark_ops/export/served_input.py",
        "values = values[:, ::-1]",
        "values = values[:, ::1]",
        (f"{_PIPELINE}/export", "tests/integration/export/test_bundle.py"),
    ),
    Fault(
        "production-is-scored-with-red-and-blue-swapped",
        "deepspark_ops/export/scores/bundle_scores.py",
        'values[:, ::-1] if contract.channels == "RGB"',
        'values[:, ::1] if contract.channels == "RGB"',
        ("tests/integration/export/test_scores.py",),
    ),
    Fault(
        "a-sample-that-is-lost-is-shown-as-gained",
        "deepspark_ops/evaluate/comparison/section.py",
        "gained = np.flatnonzero((mine.rank == 0) & (theirs.rank != 0))",
        "gained = np.flatnonzero((mine.rank != 0) & (theirs.rank == 0))",
        (f"{_PIPELINE}/evaluate/comparison/test_section.py",),
    ),
    Fault(
        "a-note-of-a-person-is-lost",
        "deepspark_ops/operators/run_note.py",
        'f"{note}\\n\\n{reason}" if note else reason',
        "reason",
        (f"{_PIPELINE}/operators/test_run_note.py",),
    ),
    Fault(
        "luck-promotes",
        "deepspark_ops/evaluate/comparison/paired.py",
        "fewer = min(n_lost, n_gained - 1)",
        "fewer = min(n_lost, n_gained) - 1",
        (f"{_PIPELINE}/evaluate/comparison/test_paired.py",),
    ),
    Fault(
        "production-is-scored-on-what-it-was-trained-on",
        "deepspark_ops/shards/manifest.py",
        "self.test_fraction > earlier.test_fraction",
        "self.test_fraction < earlier.test_fraction",
        (f"{_PIPELINE}/registry/test_gate.py",),
    ),
    Fault(
        "what-is-in-production-is-removed",
        "deepspark_ops/registry/changes.py",
        "if production is None or record.version != production.version]",
        "if production is None or record.version != production.previous]",
        (f"{_PIPELINE}/registry/test_changes.py",),
    ),
    Fault(
        "a-promotion-that-never-took-effect-is-told",
        "deepspark_ops/registry/journal.py",
        "entry.change <= last_change and ",
        "entry.change <= last_change + 1 and ",
        (f"{_PIPELINE}/registry/test_changes.py",),
    ),
    Fault(
        "a-worse-class-goes-unseen",
        "deepspark_ops/registry/gate.py",
        "change.p_worse <= CLASS_ALARM / len(present)",
        "change.p_worse >= CLASS_ALARM / len(present)",
        (f"{_PIPELINE}/registry/test_gate.py",),
    ),
    Fault(
        "a-sample-is-dropped-at-each-shards-end",
        "deepspark_ops/ingest/shard_assignment.py",
        "bounds = [n_samples * i // n_shards for i in range(n_shards + 1)]",
        "bounds = [n_samples * i // n_shards for i in range(n_shards)] + [n_samples - 1]",
        (f"{_PIPELINE}/ingest/test_shard_assignment.py",),
    ),
    Fault(
        "hdf5-shard-overwrites-its-first-rows",
        "deepspark_ops/shards/hdf5_shard.py",
        "label[n_rows:stop] = labels",
        "label[: stop - n_rows] = labels",
        (f"{_PIPELINE}/shards/test_hdf5_shard.py",),
    ),
    Fault(
        "the-first-error-line-of-several-is-lost",
        "deepspark_ops/processes/job_log.py",
        "self._error, self._error_is_open = [text], True",
        "self._error, self._error_is_open = [], True",
        (f"{_PIPELINE}/processes/test_job_log.py",),
    ),
    Fault(
        "two-runs-share-a-folder",
        "deepspark_ops/operators/run_plan.py",
        'return f"{safe}-{hashlib.sha256(run_id.encode()).hexdigest()[:8]}"',
        "return safe",
        (f"{_PIPELINE}/operators/test_run_plan.py", "deepspark_ops/operators/run_plan.py"),
    ),
    Fault(
        "statistics-lie-one-place-further",
        "deepspark_ops/param_vector.py",
        "(s.factor, s.factor + 1)",
        "(s.factor + 1, s.factor + 2)",
        (f"{_PIPELINE}/test_param_vector.py",),
    ),
    Fault(
        "softmax-sums-over-the-batch",
        "caffe_import/tf_graph/layers/softmax.py",
        "bottom.caffe, axis=options.axis",
        "bottom.caffe, axis=0",
        (f"{_IMPORTER}/layers/test_softmax.py",),
    ),
    Fault(
        "nesterov-looks-back",
        "caffe_import/solver/update_rules.py",
        "(1 + momentum) * moved - momentum * history",
        "(1 + momentum) * moved + momentum * history",
        (f"{_IMPORTER}/solver/test_update_rules.py", f"{_IMPORTER}/tf_graph/test_train_step.py"),
    ),
    Fault(
        "an-option-of-the-command-is-always-required",
        "deepspark_ops/command/options.py",
        "is_required = info.is_required() and panel is None",
        "is_required = True",
        (f"{_PIPELINE}/command/test_cli.py",),
    ),
    Fault(
        "a-schedule-may-begin-late",
        "deepspark_ops/config/schedules.py",
        "if clocks[0] != 0 or clocks",
        "if clocks",
        (f"{_PIPELINE}/exchange", f"{_PIPELINE}/command", f"{_PIPELINE}/train/setup"),
    ),
    Fault(
        "saturation-forgets-the-exchange-itself",
        "deepspark_ops/planning/simulator.py",
        "return (comm_period * step_s + cost.alone_s) / cost.service_s",
        "return comm_period * step_s / cost.service_s",
        (f"{_PIPELINE}/planning/test_simulator.py",),
    ),
    Fault(
        "the-driver-forecast-forgets-the-workers-histories",
        "deepspark_ops/preflight/memory.py",
        "(_DRIVER_VECTORS_PER_SLOT + n_workers - 1) * n_slots",
        "_DRIVER_VECTORS_PER_SLOT * n_slots",
        (f"{_PIPELINE}/preflight/test_memory.py",),
    ),
    Fault(
        "a-round-ends-before-all-have-pushed",
        "deepspark_ops/exchange/rounds/rounds.py",
        "missing = set(live) - self._idle - self._waiting.keys()",
        "missing = set[int]()",
        (f"{_PIPELINE}/exchange/rounds/test_rounds.py",),
    ),
    Fault(
        "a-restarted-worker-gets-its-predecessors-statistics",
        "deepspark_ops/exchange/server/statistics_exchange.py",
        "if (known_session, known_sequence) == (session, sequence):",
        "if known_sequence == sequence:",
        (f"{_PIPELINE}/exchange/server/test_statistics_exchange.py",),
    ),
    Fault(
        "reading-stops-at-a-shards-end",
        "deepspark_ops/train/data/sample_cache.py",
        "piece = min(count, self._firsts[shard + 1] - position)",
        "piece = min(count, self._firsts[shard + 1] - position + 1)",
        (f"{_PIPELINE}/train/data/test_sample_cache.py",),
    ),
    Fault(
        "a-run-that-applied-nothing-is-a-success",
        "deepspark_ops/train/driver/run_end.py",
        "if status.applied == 0:",
        "if status.applied < 0:",
        (f"{_PIPELINE}/train/driver/test_run_end.py",),
    ),
    Fault(
        "overlap-is-allowed-without-a-moving-rate",
        "deepspark_ops/train/setup/strategy_plan.py",
        "if config.overlap and not strategy.has_moving_rate:",
        "if config.overlap and strategy.has_moving_rate:",
        (f"{_PIPELINE}/train/setup/test_strategy_plan.py",),
    ),
    Fault(
        "a-dag-of-somebody-else-is-overwritten",
        "deepspark_ops/local_airflow/dag_files.py",
        "if path.exists() and _BUILDERS not in",
        "if not path.exists() and _BUILDERS not in",
        (f"{_PIPELINE}/local_airflow/test_dag_files.py",),
    ),
    Fault(
        "a-snapshot-says-it-is-one-step-older",
        "deepspark_ops/train/snapshots/snapshot.py",
        "current_step=step_counter(self.solver, snapshot.iteration)",
        "current_step=step_counter(self.solver, snapshot.iteration - 1)",
        (f"{_PIPELINE}/train/snapshots/test_snapshot.py",),
    ),
    Fault(
        "parameters-go-through-the-host-at-every-call",
        "caffe_import/tf_graph/train_step.py",
        "rates *= np.float32(rate_scale)",
        "rates, state = rates * np.float32(rate_scale), replace(state, params=to_host(state.params))",
        (f"{_IMPORTER}/tf_graph/test_device_copies.py",),
    ),
    Fault(
        "what-is-ahead-counts-as-used",
        "deepspark_ops/train/data/device_batches.py",
        "        for uses in self._block.uses[first:stop]:",
        "        for uses in self._block.uses[first:]:",
        (f"{_PIPELINE}/train/data/test_device_batches.py",),
    ),
    Fault(
        "the-first-line-of-a-placement-counts",
        "caffe_import/devices/placement_file.py",
        "named.update((layer.name, line) for layer in layers)",
        "named = {layer.name: line for layer in layers} | named",
        (f"{_IMPORTER}/devices/test_placement_file.py",),
    ),
    Fault(
        "stages-are-balanced-by-time-alone",
        "caffe_import/devices/stages.py",
        "allowed = MEMORY_SLACK * least",
        "allowed = inf",
        (f"{_IMPORTER}/devices/test_stages.py",),
    ),
    Fault(
        "replicas-do-not-multiply-the-passes",
        "deepspark_ops/devices/compute_plan.py",
        "solver.iter_size * plan.n_replicas",
        "solver.iter_size",
        (f"{_PIPELINE}/devices/test_compute_plan.py",),
    ),
    Fault(
        "every-worker-of-a-host-gets-its-first-gpu",
        "deepspark_ops/devices/dealing.py",
        "starts = (first + worker * wanted.per_worker for worker in range(n_workers))",
        "starts = (first for worker in range(n_workers))",
        (f"{_PIPELINE}/devices/test_dealing.py",),
    ),
    Fault(
        "a-task-does-not-hide-the-gpus-of-others",
        "deepspark_ops/train/worker/spark_task.py",
        "    show_only(devices, os.environ, sys.modules)\n",
        "",
        (f"{_PIPELINE}/train/worker/test_spark_task.py",),
    ),
    Fault(
        "spark-settings-of-the-cluster-are-overridden",
        "deepspark_ops/devices/spark_resources.py",
        "if name not in settings or name == YARN_FILES",
        "if name",
        (f"{_PIPELINE}/devices/test_spark_resources.py",),
    ),
    Fault(
        "the-comparison-with-caffe-ignores-its-device",
        "caffe_import/parity/setting.py",
        "return (self.device,) if self.device else ()",
        "return ()",
        (f"{_IMPORTER}/parity/test_setting.py",),
    ),
    Fault(
        "a-16-bit-bias-gradient-is-added-up-in-16-bits",
        "caffe_import/tf_graph/bias.py",
        "out_backprop=tf.cast(of_sum, tf.float32)",
        "out_backprop=of_sum",
        (f"{_IMPORTER}/tf_graph/test_precision.py",),
    ),
    Fault(
        "average-pooling-keeps-16-bits",
        "caffe_import/devices/precision_types.py",
        'options.method == "MAX" and not options.has_mask',
        "not options.has_mask",
        (f"{_IMPORTER}/tf_graph/test_precision.py",),
    ),
    Fault(
        "a-step-without-a-finite-gradient-is-made",
        "caffe_import/tf_graph/step/loss_scaling.py",
        "tf.where(is_made, new, old)",
        "new",
        (f"{_IMPORTER}/tf_graph/step/test_loss_scaling.py",),
    ),
    Fault(
        "a-retry-begins-with-the-first-loss-scale",
        "deepspark_ops/train/worker/tf_model.py",
        "(state.loss_scale or fresh.loss_scale)",
        "fresh.loss_scale",
        ("tests/integration/train/test_precision.py",),
    ),
    Fault(
        "workers-that-share-a-gpu-have-it-whole",
        "deepspark_ops/devices/worker_rows.py",
        "        elif config.share_gpus:",
        "        elif not config.share_gpus:",
        (f"{_PIPELINE}/devices/test_worker_rows.py",),
    ),
    Fault(
        "passes-in-flight-keep-nothing",
        "caffe_import/devices/device_memory.py",
        "(step.n_in_flight - 1) * self._kept_bytes",
        "0 * self._kept_bytes",
        (f"{_IMPORTER}/devices/test_device_memory.py",),
    ),
    Fault(
        "a-half-written-event-is-passed-over",
        "deepspark_ops/run_view/event_tail.py",
        '        *lines, _ = piece.split(b"\\n")\n',
        '        lines = piece.split(b"\\n")\n',
        (f"{_PIPELINE}/run_view/test_event_tail.py",),
    ),
    Fault(
        "curves-keep-what-a-later-start-threw-away",
        "deepspark_ops/run_view/series.py",
        "            table.cut(clock)",
        "            continue",
        (f"{_PIPELINE}/run_view/test_series.py",),
    ),
    Fault(
        "a-thinned-out-line-loses-its-peaks",
        "deepspark_ops/run_view/thin_out.py",
        "greatest = order[np.concatenate((edges - 1, [len(order) - 1]))]",
        "greatest = least",
        (f"{_PIPELINE}/run_view/test_thin_out.py",),
    ),
    Fault(
        "a-retry-shows-the-workers-of-the-try-before",
        "deepspark_ops/run_view/state.py",
        "    if not progress.started or is_earlier or",
        "    if not progress.started or",
        (f"{_PIPELINE}/run_view/test_state.py",),
    ),
    Fault(
        "a-page-begins-anew-at-every-question",
        "deepspark_ops/run_view/reading.py",
        "if self.series.cut_at <= int(offset) <=",
        "if self.series.cut_at > int(offset) >=",
        (f"{_PIPELINE}/run_view/test_reading.py",),
    ),
    Fault(
        "a-killed-stage-is-noted-as-finished",
        "deepspark_ops/operators/stage_run.py",
        '        file.end("failed", str(error) or type(error).__name__)',
        '        file.end("finished")',
        (f"{_PIPELINE}/operators/test_operators.py",),
    ),
    Fault(
        "names-in-a-page-are-markup",
        "deepspark_ops/operators/pages/templates.py",
        "        autoescape=True,",
        "        autoescape=False,",
        ("tests/integration/airflow/test_pages.py",),
    ),
    Fault(
        "everybody-with-a-login-reads-every-dag",
        "deepspark_ops/operators/pages/app.py",
        'may_read = [Depends(requires_access_dag("GET"))]',
        "may_read: list[object] = []",
        ("tests/integration/airflow/test_pages.py",),
    ),
    Fault(
        "a-converted-net-ignores-the-mean-it-was-given",
        "deepspark_ops/export/convert/from_files.py",
        "        transform.mean_file = str(config.mean)\n",
        "        pass\n",
        (f"{_PIPELINE}/export/convert",),
    ),
    Fault(
        "what-a-run-that-stays-uses-is-removed",
        "deepspark_ops/retention/clean.py",
        "    _follow(stays, {stored.path: stored for stored in [*runs, *datasets]})\n",
        "",
        (f"{_PIPELINE}/retention",),
    ),
)
