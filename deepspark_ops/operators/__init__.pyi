"""Written by docs/generate/operators.py (make format) from the config models; do not edit."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from os import PathLike
from typing import Any, Literal

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import Asset, BaseOperator, XComArg

from deepspark_ops.operators.form import form_params as form_params
from deepspark_ops.operators.tasks.run_plan import Places
from deepspark_ops.operators.tasks.stage_arguments import form_templates as form_templates

OPERATOR_MODULES: list[str]
StrPath = str | PathLike[str]
Template = str | XComArg
"""A text with a template of Airflow's, or the output of another task."""

class DeepSparkApproveOperator(ApprovalOperator):
    """Wait until a person approves or refuses; refused, or without an answer in time, what follows is skipped.

    Without ``approval`` the task is skipped, so the promoting task needs a trigger rule for skipped tasks. The waiting
    task holds no worker's slot. The output has the run's paths, ``approved``, ``who`` and ``comment``.

    Example:
        .. code-block:: python

            approve = DeepSparkApproveOperator(task_id="approve", run=export.output, model="digits", approval=True)
            approve >> DeepSparkPromoteOperator(
                task_id="promote", run=export.output, model="digits", approval=True,
                trigger_rule=TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS,
            )
    """

    def __init__(
        self,
        *,
        task_id: str,
        models: StrPath | Template | None = None,
        model: str | Template | None = None,
        metric: Literal['main', 'top1', 'top5', 'loss'] | Template | None = None,
        min_gain: float | Template | None = None,
        confidence: float | Template | None = None,
        max_class_loss: float | Template | None = None,
        keep: int | Template | None = None,
        max_slowdown: float | Template | None = None,
        approval: bool | Template | None = None,
        approval_timeout: str | Template | None = None,
        run: Any = None,
        places: Places | None = None,
        refuse_unknown_conf: bool = False,
        store_conn_id: str | None = None,
        dag_model: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Take the arguments.

        Args:
            models: Folder of models in production
            model: Name of the model in production: at most 64 letters, digits, dots, dashes and underscores
            metric: Figure to improve; main: top1 of a classifier, else the main figure of the task (RMSE, mean IoU,
                ROC-AUC, ...) together with the samples' errors
            min_gain: Smallest gain, in the metric's unit: 0.01 is one point of accuracy
            confidence: Confidence in the gain, by a paired test on the same samples. 0.95: of candidates without a gain
                at most 1 in 20 is promoted; 5 gained samples without a lost sample are just enough (with groups: 5
                groups). 0.5: any better score suffices
            max_class_loss: Keep production if a class' accuracy falls by more than this share, beyond chance; a class
                of fewer than 6 samples is too small for this. 1: no check of classes
            keep: Number of the model's bundles to keep: a promotion removes the oldest further bundles, never the
                bundle in production; default: keep all
            max_slowdown: Keep production if the net scores fewer images/s by more than this share, measured on the same
                machine, beyond the spread of the measurements and 1 ms a batch. 1: no check of speed
            approval: A better model waits for an approval on Airflow's page Required Actions; after a refusal, or
                without an answer, production stays
            approval_timeout: Longest wait, with a unit: 90 min, 24 h, 2 d. The next retraining begins after the end of
                this retraining
            run: Output of another task of ours, or the path of a run's folder. Without it the task starts a new run.
            places: Where runs, datasets and models live; default: those of this Airflow.
            refuse_unknown_conf: Whether a run whose conf has keys that are no param of the DAG is refused.
            store_conn_id: Airflow connection with the credentials of an object store; default: aws_default,
                google_cloud_default or wasb_default, where an argument or the run's dataset is in such a store.
            dag_model: ``model`` and ``models`` as the DAG's author chose them. A run that names another model may
                change what a person who may trigger the DAG may change by the pages: a model of the same folder that no
                other DAG made. Without it a run may name any model.
        """

class DeepSparkCheckOperator(BaseOperator):
    """Start a run: validate the options of all stages, read solver and nets, and decide the folders of the run.

    The arguments are the arguments of all stages; every other task of the run takes the arguments of the task's stage.
    The output has the run's paths: ``run_dir``, the run's folder, ``dataset``, the dataset of ``dataset`` or
    ``source``, and ``production``, the weights in production with ``warm_start``.

    Example:
        .. code-block:: python

            check = DeepSparkCheckOperator(task_id="check", solver="nets/solver.prototxt", source="/data/list.txt")
            ingest = DeepSparkIngestOperator(task_id="ingest", run=check.output, source="/data/list.txt")
    """

    def __init__(
        self,
        *,
        task_id: str,
        solver: StrPath | Template,
        overrides: str | Template | None = None,
        weights: StrPath | Sequence[StrPath] | Template | None = None,
        dataset: StrPath | Template | None = None,
        n_workers: str | int | Template | None = None,
        devices: Literal['auto', 'cpu', 'gpu'] | Template | None = None,
        share_gpus: bool | Template | None = None,
        gpus_per_worker: int | Template | None = None,
        placement: Literal['none', 'auto'] | StrPath | Template | None = None,
        recompute: bool | Template | None = None,
        precision: Literal['float32', 'bfloat16', 'float16'] | Template | None = None,
        memory: bool | Template | None = None,
        memory_limit: int | str | Template | None = None,
        svg: StrPath | Template | None = None,
        task: Literal['auto', 'classification', 'multi_label', 'regression', 'embedding', 'reconstruction', 'segmentation'] | Template | None = None,
        output_blob: str | Template | None = None,
        target_blob: str | Template | None = None,
        parity: bool | Template | None = None,
        parity_cases: StrPath | Template | None = None,
        verify: Literal['auto', 'digests', 'sizes'] | Template | None = None,
        resume: StrPath | Template | None = None,
        strategy: str | Template | None = None,
        strategy_options: str | Template | None = None,
        comm_period: Literal['auto'] | int | str | Template | None = None,
        moving_rate: str | float | Template | None = None,
        rate_scale: Literal['auto', 'none'] | float | Template | None = None,
        lock: Literal['none', 'striped', 'full'] | Template | None = None,
        transport: Literal['auto', 'shm', 'socket'] | Template | None = None,
        overlap: bool | Template | None = None,
        n_servers: int | Template | None = None,
        wire_dtype: Literal['float32', 'float16', 'bfloat16'] | Template | None = None,
        order: Literal['auto', 'file', 'shuffled'] | Template | None = None,
        threads_per_worker: Literal['auto'] | int | Template | None = None,
        tf32: bool | Template | None = None,
        stop_below: str | Template | None = None,
        min_workers: int | Template | None = None,
        min_workers_wait_s: float | Template | None = None,
        worker_tries: int | Template | None = None,
        grant_timeout_s: float | Template | None = None,
        exchange_timeout_s: float | Template | None = None,
        listen_address: str | Template | None = None,
        staging_folder: StrPath | Template | None = None,
        staging_size: int | str | Template | None = None,
        listen_port: int | Template | None = None,
        check_pushes: bool | Template | None = None,
        watch: int | Template | None = None,
        tls: Literal['auto', 'on', 'off', 'mac'] | Template | None = None,
        insecure_network: bool | Template | None = None,
        spark_ui: bool | Template | None = None,
        engine: Literal['auto', 'spark', 'process'] | Template | None = None,
        name: str | Template | None = None,
        tags: str | Template | None = None,
        source: StrPath | Template | None = None,
        test_source: StrPath | Template | None = None,
        test_fraction: float | Template | None = None,
        validation_source: StrPath | Template | None = None,
        validation_fraction: float | Template | None = None,
        split_list: StrPath | Template | None = None,
        split_column: str | Template | None = None,
        source_format: Literal['auto', 'caffe_lmdb', 'caffe_leveldb', 'cifar_binary', 'hdf5', 'tfrecord', 'sequence_file', 'parquet', 'orc', 'avro', 'json_lines', 'csv', 'spark_table', 'idx', 'class_folders', 'image_list'] | Template | None = None,
        root_folder: StrPath | Template | None = None,
        labels: StrPath | Template | None = None,
        cifar_labels: Literal['fine', 'coarse'] | Template | None = None,
        image_column: str | Template | None = None,
        label_column: str | Template | None = None,
        feature_columns: str | Template | None = None,
        id_column: str | Template | None = None,
        weight_column: str | Template | None = None,
        group_column: str | Template | None = None,
        label_kind: Literal['auto', 'class', 'value'] | Template | None = None,
        standardize: bool | Template | None = None,
        missing: Literal['mean', 'zero', 'refuse', 'drop-row'] | Template | None = None,
        query: str | Template | None = None,
        class_names: StrPath | Template | None = None,
        shard_format: Literal['lmdb', 'hdf5'] | Template | None = None,
        encoded: bool | Template | None = None,
        resize_height: int | Template | None = None,
        resize_width: int | Template | None = None,
        gray: bool | Template | None = None,
        scaled_decoding: bool | Template | None = None,
        decode_mib: int | Template | None = None,
        member_mib: int | Template | None = None,
        unpacked_gib: int | Template | None = None,
        max_pixel: int | Template | None = None,
        balance: Literal['none', 'oversample', 'undersample'] | Template | None = None,
        limit: int | Template | None = None,
        n_classes: int | Template | None = None,
        full: bool | Template | None = None,
        shuffle: bool | Template | None = None,
        seed: int | Template | None = None,
        samples_per_shard: int | Template | None = None,
        shards: int | Template | None = None,
        max_rejected_fraction: float | Template | None = None,
        deduplicate: bool | Template | None = None,
        deduplicate_across: bool | Template | None = None,
        stamp: Literal['time', 'digest'] | Template | None = None,
        strict: bool | Template | None = None,
        split: Literal['train', 'validation', 'test'] | Template | None = None,
        batch_size: int | Template | None = None,
        worst: int | Template | None = None,
        saliency: int | Template | None = None,
        slices: str | Template | None = None,
        scores: bool | Template | None = None,
        task_samples: int | Template | None = None,
        check_samples: int | Template | None = None,
        formats: str | Sequence[str] | Template | None = None,
        models: StrPath | Template | None = None,
        model: str | Template | None = None,
        metric: Literal['main', 'top1', 'top5', 'loss'] | Template | None = None,
        min_gain: float | Template | None = None,
        confidence: float | Template | None = None,
        max_class_loss: float | Template | None = None,
        keep: int | Template | None = None,
        max_slowdown: float | Template | None = None,
        approval: bool | Template | None = None,
        approval_timeout: str | Template | None = None,
        places: Places | None = None,
        refuse_unknown_conf: bool = False,
        store_conn_id: str | None = None,
        dag_model: Mapping[str, Any] | None = None,
        warm_start: bool = False,
        dataset_asset: Asset | None = None,
        **kwargs: Any,
    ) -> None:
        """Take the arguments.

        Args:
            solver: Caffe solver prototxt, e.g. nets/lenet_solver.prototxt
            overrides: Solver fields in prototxt, in place of the file's fields, e.g. 'max_iter: 200 base_lr: 0.02'
            weights: Fine-tune: .caffemodel whose blobs are copied by layer name; of several (a,b) the later override
            dataset: Ingested dataset; default: the net's own sources
            n_workers: Training processes, e.g. 4; 4..16: at least 4, more while there are slots; auto: the cores or
                GPUs of a single host, 1..64 on a cluster
            devices: Device of the net; auto: solver_mode's device (Caffe's default is GPU), but the CPU without a
                usable GPU; gpu: refuses to run without a GPU
            share_gpus: Let several workers of a host use the same GPU if there are too few GPUs
            gpus_per_worker: Devices of each worker; without a placement each device computes separate passes, as
                Caffe's -gpu 0,1
            placement: Placement of the layers on a worker's devices; none: every device has all layers; auto:
                consecutive stages of about equal time; or a file of lines 'LAYERS: DEVICE'
            recompute: Keep fewer activations: most layers are computed again for the backward pass. Less memory, up to
                a third more time, the same numbers
            precision: Arithmetic of convolutions and inner products in training; sums, parameters, exchange and losses
                stay float32. float16 scales the loss
            memory: Show the training net's memory by layer, and changes to fit the net into the available memory
            memory_limit: Largest memory of a training step on a device, e.g. 8GiB; default: the available memory
            svg: Draw the training net to this SVG file, or the first test net if there is no training net
            task: Task of the net: classification (one class a sample), multi_label (each class yes or no), regression
                (numbers), embedding (pairs), reconstruction (autoencoder) or segmentation (a class a pixel); auto:
                inferred from the net's losses and outputs
            output_blob: Blob with the net's answers, or two blobs with a comma between for the sides of a pair;
                default: inferred from the net
            target_blob: Blob with the expected answers: labels, or the values to reconstruct; default: inferred from
                the net
            parity: Run the recorded cases of Caffe for the nets' layer types
            parity_cases: Folder of recorded cases; default: the cases in the package
            verify: How the dataset is compared with its manifests before workers start; digests reads every byte, sizes
                walks the pages alone, auto reads every byte up to 1 GiB
            resume: Caffe .solverstate to go on from (not together with weights)
            strategy: Method of exchange between workers and center; auto: by the number of workers, and whether workers
                may differ
            strategy_options: The strategy's own options, e.g. 'block_momentum: 0.5'; deepspark takes its parameter file
                ('period: 50 moving_rate: 0.1 ...') as it is
            comm_period: tau, minibatches between exchanges; auto: the smallest tau with exchanges under 10 % of the
                time; '1@0 10@2000': 1, and from minibatch 2000 of the clock on 10
            moving_rate: alpha of elastic averaging; default 0.45 with 2 workers, 0.3 with more (deepspark: 2.4 /
                n_workers with more than 8); '0.4@0 0.2@2000': by the clock
            rate_scale: Multiplies base_lr; auto makes up for the progress per step (at most 4, but for easgd), warms
                up; with three workers of easgd and more, measured curvature bounds the rates in nets with convolutions
            lock: none: fastest, overlapping pushes may lose a part; striped: every push survives; full: one exchange at
                a time. A strategy with a need for a stronger lock gets the stronger lock
            transport: auto: shared memory for workers on the server's host, else sockets
            overlap: Elastic strategies: compute the next period during the exchange of this period's parameters
            n_servers: Server processes for workers by socket, each with a key range of the center; for large models
            wire_dtype: Format of pushed numbers on a socket; the worker keeps the rounding error of 16 bits. bfloat16
                is faster
            order: Order of samples; auto: file order for one worker (as Caffe), else shuffled
            threads_per_worker: TensorFlow threads of each worker on the CPU; auto: the worker's share of the available
                cores
            tf32: On GPUs, round the factors of convolutions and products to TensorFloat-32 (10 bits of mantissa)
            stop_below: End the training with a snapshot if the first test at or after a clock has a lower accuracy:
                ACCURACY@CLOCK, e.g. 0.3@500 0.6@1000
            min_workers: The run fails if fewer workers have a slot of the cluster for min_workers_wait_s
            min_workers_wait_s: Seconds of waiting for min_workers
            worker_tries: Starts of a worker without an exchange in between, before the worker is given up; 1: no second
                start
            grant_timeout_s: A worker silent for this long loses its grant
            exchange_timeout_s: A worker waits this long for the server, then fails
            listen_address: Address of the driver's host for the workers' connections; auto: 127.0.0.1 for a local
                master, else the host's address towards the master
            staging_folder: Folder on each host's disk for copies of data from an object store or the driver's disk;
                default: deepspark-staging-UID in the system's folder for temporary files
            staging_size: Most bytes of the copies on a host, e.g. 100GiB; the least recently used copies are removed
            listen_port: First port of the driver's servers for workers: the servers of the exchange, then the server of
                the driver's files; 0: chosen by the system
            check_pushes: Refuse a worker's push with numbers that are not finite (NaN, infinity), or a million times as
                long as any push before
            watch: Minibatches between histograms of every blob and its update, and the workers' distances to the center
                by blob, on the page Training; 0: none
            tls: Protection of the exchange by socket; auto: TLS 1.3 unless the server listens on this host alone; mac:
                in clear, but changed messages are refused; off: no protection, on a cluster's network only with
                insecure_network
            insecure_network: Accept a cluster without encryption between driver and executors; even the exchange's
                secret is sent in clear
            spark_ui: Serve Spark's UI while workers train, without a login; with a local master on 127.0.0.1 alone. The
                run's page and log have the address
            engine: Runner of the workers: spark, process (processes of this host), or auto (in a DAG spark; else
                processes unless master or spark_ui is given)
            name: Name in lists, charts and pages; default: net, strategy, workers and minibatches
            tags: Words to find the run by, with commas between them, e.g. 'baseline, paper'
            source: Training data: an image list ('path label' lines), a folder of class folders, either also in an
                archive (ARCHIVE.tar.gz::LIST, ARCHIVE.zip::FOLDER), a table (Parquet, CSV, JSON, ORC, Avro,
                table:db.name), files of MNIST or CIFAR, TFRecord, SequenceFile, HDF5, or a Caffe LMDB or LevelDB
            test_source: Test data of the same format; default: a share test_fraction of source
            test_fraction: Share of the records for the test set, by a hash of each record's name, so no record changes
                sides when the source grows; 0: no test set; unused with test_source
            validation_source: Validation data of the same format; default: a share validation_fraction of source
            validation_fraction: Share of the records for the validation set, by the same hash, taken from the training
                set; the test set stays the same; 0: no validation set
            split_list: Text with a record and the split (train, validation or test) on each line, or a folder with
                lists of records: train.txt, validation.txt, test.txt. Records of a table are listed by id. Replaces the
                shares
            split_column: Column with train, validation or test, in a list with a header line or in a table; replaces
                the shares
            source_format: Format of the source; auto: recognised from the data
            root_folder: Folder of the list's paths (in the archive, for a list in an archive); default: the list's
                folder
            labels: IDX label file of source; default: the file of the usual name beside the images
            cifar_labels: Labels of CIFAR-100: 100 fine or 20 coarse classes
            image_column: Name of the images or features: an HDF5 data set, a feature of a tf.train.Example, a column of
                paths in a list with a header line, a table's column of encoded images or paths; default: the usual
                names (data, image/encoded, ...)
            label_column: Name of the labels, likewise; several of a table: a,b; default: the usual names (label,
                image/class/label, ...)
            feature_columns: A table's columns of features, in this order: names, arrays, f*, first..last, !this;
                default: all numbers but label, id, weight and group; !this alone: the default without this
            id_column: A table's column of row names, stored with the rows; the name's hash decides a row's side of the
                split; default: id
            weight_column: A table's column of sample weights, kept as data set weight
            group_column: A table's column of groups (a customer, a patient); a group stays on the same side of the
                split
            label_kind: Kind of a table's labels: classes, or values to predict; auto: classes if all labels are whole
                numbers from 0 and below 1000, or text
            standardize: Subtract each feature's mean and divide by the standard deviation, both of the training set;
                stored in dataset.json
            missing: Treatment of a table's missing features: the mean, zero, an error, or a row left out
            query: Spark SQL to select the rows, e.g. SELECT * FROM source WHERE age > 17; source is the table of SOURCE
            class_names: Text file with a class name per line, in label order, also ARCHIVE::FILE; sets the order of a
                source's named classes, too
            shard_format: File format of shards; a table of features always has hdf5
            encoded: Keep images compressed in the shards (LMDB only)
            resize_height: Height of stored images in pixels, e.g. 32; 0 keeps the size
            resize_width: Width of stored images in pixels, e.g. 32; 0 keeps the size
            gray: Read images as gray
            scaled_decoding: Decode JPEG images at 1/2, 1/4 or 1/8 of the size before a strong reduction: faster, with
                other pixels (docs/guides/data.md)
            decode_mib: Most memory in MiB for decoding a compressed image: 168 is enough for some 55 megapixels. Larger
                images are rejected
            member_mib: Most MiB of an unpacked file of a zip. Larger files are rejected
            unpacked_gib: Most GiB on the disk for an unpacked tar or file (gzip, bzip2, xz)
            max_pixel: Largest pixel value of the source; scaled to 255 (digits8x8: 16)
            balance: Training set with classes of equal size: oversample repeats records up to the largest class,
                undersample takes the smallest class' number of records from each class; the other sets do not change
            limit: Take this number of records of each source: each class keeps the share, and every run takes the same
                records
            n_classes: Refuse labels outside [0, n_classes); default: from class_names, else from the data
            full: Write every shard anew, even if only some records of an existing dataset have changed
            shuffle: Store samples in a fixed random order
            seed: Decides the split and the order
            samples_per_shard: Upper bound; shards also stay below 2 GiB
            shards: Number of shards of each set, e.g. 1: a single LMDB, a single source for Caffe; after a change of
                the source the whole set is then written anew; default: by samples_per_shard, and several from 500
                images on, so every core has a task
            max_rejected_fraction: More bad records than this share fail the task
            deduplicate: Leave out records with the content of an earlier record of the same set; needs a second reading
                of every record
            deduplicate_across: With deduplicate: also leave out validation and test records with the content of a
                training record
            stamp: Property of a file to recognise changes: time (size and time of change), or digest (the content; an
                ingestion and a DAG's check then read every file)
            strict: Refuse data with a warning: damaged images, duplicates, a class with one sample, ...
            split: Part of the dataset to score
            batch_size: Samples of a forward pass; default: 100, or the net's own number where answers depend on it
                (Reshape, LSTM, BatchNorm without stored statistics)
            worst: Most confident mistakes, or samples with the largest errors, in the report
            saliency: Most confident mistakes of a classification with maps of the answer's pixels in the report
            slices: Properties of samples, with commas; the report has figures for each value. Properties: class,
                folder, shard; for a dataset of a table also group and id, or the columns' names
            scores: Write the scores of all classes of each sample into samples.parquet, too
            task_samples: Most samples of a task of Spark
            check_samples: Number of real samples on which each exported model must agree with the net
            formats: What the bundle holds: saved_model, caffe, keras, onnx, tflite, tflite_float16, tflite_int8, with
                commas between them; default, or all: all that the net can have of saved_model, caffe, keras, onnx,
                tflite. Evaluation and models in production need saved_model and caffe
            models: Folder of models in production
            model: Name of the model in production: at most 64 letters, digits, dots, dashes and underscores
            metric: Figure to improve; main: top1 of a classifier, else the main figure of the task (RMSE, mean IoU,
                ROC-AUC, ...) together with the samples' errors
            min_gain: Smallest gain, in the metric's unit: 0.01 is one point of accuracy
            confidence: Confidence in the gain, by a paired test on the same samples. 0.95: of candidates without a gain
                at most 1 in 20 is promoted; 5 gained samples without a lost sample are just enough (with groups: 5
                groups). 0.5: any better score suffices
            max_class_loss: Keep production if a class' accuracy falls by more than this share, beyond chance; a class
                of fewer than 6 samples is too small for this. 1: no check of classes
            keep: Number of the model's bundles to keep: a promotion removes the oldest further bundles, never the
                bundle in production; default: keep all
            max_slowdown: Keep production if the net scores fewer images/s by more than this share, measured on the same
                machine, beyond the spread of the measurements and 1 ms a batch. 1: no check of speed
            approval: A better model waits for an approval on Airflow's page Required Actions; after a refusal, or
                without an answer, production stays
            approval_timeout: Longest wait, with a unit: 90 min, 24 h, 2 d. The next retraining begins after the end of
                this retraining
            places: Where runs, datasets and models live; default: those of this Airflow.
            refuse_unknown_conf: Whether a run whose conf has keys that are no param of the DAG is refused.
            store_conn_id: Airflow connection with the credentials of an object store; default: aws_default,
                google_cloud_default or wasb_default, where an argument or the run's dataset is in such a store.
            dag_model: ``model`` and ``models`` as the DAG's author chose them. A run that names another model may
                change what a person who may trigger the DAG may change by the pages: a model of the same folder that no
                other DAG made. Without it a run may name any model.
            warm_start: Whether training starts from the model in production, ``model`` in the folder ``models``.
            dataset_asset: The Asset whose events trigger a DAG that retrains. The run is skipped if the events are of
                another source or of data that a candidate was judged on already, and if the timetable's time has
                passed. Events that came since the run was made count, too.
        """

class DeepSparkCleanOperator(BaseOperator):
    """Write ``clean.json`` into the run's folder: what goes and what stays, and why. ``remove=True`` removes it.

    The output has ``run_dir`` and ``report``, that file.

    Example:
        .. code-block:: python

            DeepSparkCleanOperator(task_id="clean", older_than=30, remove=True)
    """

    def __init__(
        self,
        *,
        task_id: str,
        remove: bool | Template | None = None,
        older_than: int | Template | None = None,
        keep_runs: int | Template | None = None,
        keep_datasets: int | Template | None = None,
        models: StrPath | Template | None = None,
        places: Places | None = None,
        refuse_unknown_conf: bool = False,
        store_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        """Take the arguments.

        Args:
            remove: Remove the listed folders; off: only list the folders
            older_than: Only folders without a change for this number of days
            keep_runs: Number of newest runs of each DAG to keep at any age
            keep_datasets: Number of newest datasets to keep at any age
            models: Folder of models in production; the sources of all versions stay. Default: models/ beside runs/. A
                run of Airflow always counts the models of the installation, too
            places: Where runs, datasets and models live; default: those of this Airflow.
            refuse_unknown_conf: Whether a run whose conf has keys that are no param of the DAG is refused.
            store_conn_id: Airflow connection with the credentials of an object store; default: aws_default,
                google_cloud_default or wasb_default, where an argument or the run's dataset is in such a store.
        """

class DeepSparkConvertOperator(BaseOperator):
    """Make a bundle of a net and weights, checked by a run of the net; the task needs no other task.

    The output has ``run_dir``, ``bundle`` (the folder, by default in the run's) and ``digest`` (of the manifest).

    Example:
        .. code-block:: python

            DeepSparkConvertOperator(task_id="convert", net="deploy.prototxt", weights="a.caffemodel", scale=0.00390625)
    """

    def __init__(
        self,
        *,
        task_id: str,
        net: StrPath | Template,
        weights: StrPath | Template,
        output: StrPath | Template | None = None,
        class_names: StrPath | Template | None = None,
        mean: StrPath | Template | None = None,
        mean_values: str | Template | None = None,
        scale: float | Template | None = None,
        dataset: StrPath | Template | None = None,
        check_samples: int | Template | None = None,
        formats: str | Sequence[str] | Template | None = None,
        task: Literal['auto', 'classification', 'multi_label', 'regression', 'embedding', 'reconstruction', 'segmentation'] | Template | None = None,
        output_blob: str | Template | None = None,
        places: Places | None = None,
        refuse_unknown_conf: bool = False,
        store_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        """Take the arguments.

        Args:
            net: Caffe net prototxt: a deploy net, or a training net with its data layers
            weights: The net's .caffemodel or .caffemodel.h5
            output: Bundle folder to write
            class_names: Text file with a class name per line, class 0 first; default: the names in the dataset
            mean: Mean image (.binaryproto) to subtract; default: from the net's data layer
            mean_values: Values to subtract in place of a mean image: a single value, or a value a channel in the order
                blue, green, red, e.g. '104, 117, 123'
            scale: Factor of the pixels 0 to 255 after the subtraction of the mean, e.g. 0.00390625; default: from the
                net's data layer, 1 for a deploy net
            dataset: Ingested dataset with test samples for the check and class names for the bundle; default: the net's
                own sources, for a deploy net random pixels
            check_samples: Number of samples for comparing the exported model with the net
            formats: What the bundle holds: saved_model, caffe, keras, onnx, tflite, tflite_float16, tflite_int8, with
                commas between them; default, or all: all that the net can have of saved_model, caffe, keras, onnx,
                tflite. Evaluation and models in production need saved_model and caffe
            task: Task of the net: classification (one class a sample), multi_label (each class yes or no), regression
                (numbers), embedding (pairs), reconstruction (autoencoder) or segmentation (a class a pixel); auto:
                inferred from the net's losses and outputs
            output_blob: Blob with the net's answers, or two blobs with a comma between for the sides of a pair;
                default: inferred from the net
            places: Where runs, datasets and models live; default: those of this Airflow.
            refuse_unknown_conf: Whether a run whose conf has keys that are no param of the DAG is refused.
            store_conn_id: Airflow connection with the credentials of an object store; default: aws_default,
                google_cloud_default or wasb_default, where an argument or the run's dataset is in such a store.
        """

class DeepSparkDecideOperator(BaseOperator):
    """Compare the run's model with production's; without a gain skip the following tasks.

    The output has the run's paths, ``decision``, the path of decision.json, and the file's ``digest``. The run's
    DeepSparkCheckOperator names the model in production by ``warm_start=True``.

    Example:
        .. code-block:: python

            decide = DeepSparkDecideOperator(task_id="decide", run=evaluate.output, model="digits", min_gain=0.01)
    """

    def __init__(
        self,
        *,
        task_id: str,
        models: StrPath | Template | None = None,
        model: str | Template | None = None,
        metric: Literal['main', 'top1', 'top5', 'loss'] | Template | None = None,
        min_gain: float | Template | None = None,
        confidence: float | Template | None = None,
        max_class_loss: float | Template | None = None,
        keep: int | Template | None = None,
        max_slowdown: float | Template | None = None,
        run: Any = None,
        places: Places | None = None,
        refuse_unknown_conf: bool = False,
        store_conn_id: str | None = None,
        dag_model: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Take the arguments.

        Args:
            models: Folder of models in production
            model: Name of the model in production: at most 64 letters, digits, dots, dashes and underscores
            metric: Figure to improve; main: top1 of a classifier, else the main figure of the task (RMSE, mean IoU,
                ROC-AUC, ...) together with the samples' errors
            min_gain: Smallest gain, in the metric's unit: 0.01 is one point of accuracy
            confidence: Confidence in the gain, by a paired test on the same samples. 0.95: of candidates without a gain
                at most 1 in 20 is promoted; 5 gained samples without a lost sample are just enough (with groups: 5
                groups). 0.5: any better score suffices
            max_class_loss: Keep production if a class' accuracy falls by more than this share, beyond chance; a class
                of fewer than 6 samples is too small for this. 1: no check of classes
            keep: Number of the model's bundles to keep: a promotion removes the oldest further bundles, never the
                bundle in production; default: keep all
            max_slowdown: Keep production if the net scores fewer images/s by more than this share, measured on the same
                machine, beyond the spread of the measurements and 1 ms a batch. 1: no check of speed
            run: Output of another task of ours, or the path of a run's folder. Without it the task starts a new run.
            places: Where runs, datasets and models live; default: those of this Airflow.
            refuse_unknown_conf: Whether a run whose conf has keys that are no param of the DAG is refused.
            store_conn_id: Airflow connection with the credentials of an object store; default: aws_default,
                google_cloud_default or wasb_default, where an argument or the run's dataset is in such a store.
            dag_model: ``model`` and ``models`` as the DAG's author chose them. A run that names another model may
                change what a person who may trigger the DAG may change by the pages: a model of the same folder that no
                other DAG made. Without it a run may name any model.
        """

class DeepSparkEvaluateOperator(SparkSubmitOperator):
    """Score the run's last snapshot, and compare the snapshot in the report with a scored production.

    A child process scores, or with ``engine="spark"`` a Spark application on the connection ``conn_id``; the figures
    are the same. The output has the run's paths, ``metrics``, the path of metrics.json, and the file's ``digest``.

    Example:
        .. code-block:: python

            evaluate = DeepSparkEvaluateOperator(task_id="evaluate", run=train.output, split="test")
            mail_figures(evaluate.output)  # a @task of yours
    """

    def __init__(
        self,
        *,
        task_id: str,
        dataset: StrPath | Template | None = None,
        split: Literal['train', 'validation', 'test'] | Template | None = None,
        weights: StrPath | Template | None = None,
        output: StrPath | Template | None = None,
        devices: Literal['auto', 'cpu', 'gpu'] | Template | None = None,
        batch_size: int | Template | None = None,
        worst: int | Template | None = None,
        saliency: int | Template | None = None,
        task: Literal['auto', 'classification', 'multi_label', 'regression', 'embedding', 'reconstruction', 'segmentation'] | Template | None = None,
        output_blob: str | Template | None = None,
        target_blob: str | Template | None = None,
        slices: str | Template | None = None,
        scores: bool | Template | None = None,
        engine: Literal['auto', 'spark', 'process'] | Template | None = None,
        task_samples: int | Template | None = None,
        listen_address: str | Template | None = None,
        listen_port: int | Template | None = None,
        insecure_network: bool | Template | None = None,
        run: Any = None,
        places: Places | None = None,
        refuse_unknown_conf: bool = False,
        store_conn_id: str | None = None,
        conn_id: str = 'spark_default',
        **kwargs: Any,
    ) -> None:
        """Take the arguments.

        Args:
            dataset: Ingested dataset; default: the run's dataset
            split: Part of the dataset to score
            weights: Score this .caffemodel with the run's net; default: the run's last snapshot
            output: Folder for metrics.json and report.html; default RUN/evaluation
            devices: Device of the net; auto: solver_mode's device (Caffe's default is GPU), but the CPU without a
                usable GPU; gpu: refuses to run without a GPU
            batch_size: Samples of a forward pass; default: 100, or the net's own number where answers depend on it
                (Reshape, LSTM, BatchNorm without stored statistics)
            worst: Most confident mistakes, or samples with the largest errors, in the report
            saliency: Most confident mistakes of a classification with maps of the answer's pixels in the report
            task: Task of the net: classification (one class a sample), multi_label (each class yes or no), regression
                (numbers), embedding (pairs), reconstruction (autoencoder) or segmentation (a class a pixel); auto:
                inferred from the net's losses and outputs
            output_blob: Blob with the net's answers, or two blobs with a comma between for the sides of a pair;
                default: inferred from the net
            target_blob: Blob with the expected answers: labels, or the values to reconstruct; default: inferred from
                the net
            slices: Properties of samples, with commas; the report has figures for each value. Properties: class,
                folder, shard; for a dataset of a table also group and id, or the columns' names
            scores: Write the scores of all classes of each sample into samples.parquet, too
            engine: Place of the scoring: spark (tasks of Spark, for many samples; a DAG uses the Spark connection, a
                command uses master), process (a single process), or auto (a process unless master is given)
            task_samples: Most samples of a task of Spark
            listen_address: Address of the driver's host for the workers' connections; auto: 127.0.0.1 for a local
                master, else the host's address towards the master
            listen_port: First port of the driver's servers for workers: the servers of the exchange, then the server of
                the driver's files; 0: chosen by the system
            insecure_network: Accept a cluster without encryption between driver and executors; even the exchange's
                secret is sent in clear
            run: Output of another task of ours, or the path of a run's folder. Without it the task starts a new run.
            places: Where runs, datasets and models live; default: those of this Airflow.
            refuse_unknown_conf: Whether a run whose conf has keys that are no param of the DAG is refused.
            store_conn_id: Airflow connection with the credentials of an object store; default: aws_default,
                google_cloud_default or wasb_default, where an argument or the run's dataset is in such a store.
            conn_id: Spark connection; its master runs the stage.
        """

class DeepSparkEvaluateProductionOperator(BaseOperator):
    """Score the delivered bundle in production on the samples of the run's net.

    Skipped while nothing is in production. The output has the run's paths, ``metrics``, the path of metrics.json, and
    that file's ``digest``. The run's DeepSparkCheckOperator names the model in production by ``warm_start=True``.

    Example:
        .. code-block:: python

            production = DeepSparkEvaluateProductionOperator(task_id="evaluate_production", run=train.output)
            rule = TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS
            evaluate = DeepSparkEvaluateOperator(task_id="evaluate", run=train.output, trigger_rule=rule)
            production >> evaluate  # one after the other, so that both are timed alone
    """

    def __init__(
        self,
        *,
        task_id: str,
        production_rows: bool | Template | None = None,
        dataset: StrPath | Template | None = None,
        split: Literal['train', 'validation', 'test'] | Template | None = None,
        devices: Literal['auto', 'cpu', 'gpu'] | Template | None = None,
        batch_size: int | Template | None = None,
        task: Literal['auto', 'classification', 'multi_label', 'regression', 'embedding', 'reconstruction', 'segmentation'] | Template | None = None,
        output_blob: str | Template | None = None,
        target_blob: str | Template | None = None,
        run: Any = None,
        places: Places | None = None,
        refuse_unknown_conf: bool = False,
        store_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        """Take the arguments.

        Args:
            production_rows: Write samples.parquet of the bundle in production, too, a row for each sample
            dataset: Ingested dataset; default: the run's dataset
            split: Part of the dataset to score
            devices: Device of the net; auto: solver_mode's device (Caffe's default is GPU), but the CPU without a
                usable GPU; gpu: refuses to run without a GPU
            batch_size: Samples of a forward pass; default: 100, or the net's own number where answers depend on it
                (Reshape, LSTM, BatchNorm without stored statistics)
            task: Task of the net: classification (one class a sample), multi_label (each class yes or no), regression
                (numbers), embedding (pairs), reconstruction (autoencoder) or segmentation (a class a pixel); auto:
                inferred from the net's losses and outputs
            output_blob: Blob with the net's answers, or two blobs with a comma between for the sides of a pair;
                default: inferred from the net
            target_blob: Blob with the expected answers: labels, or the values to reconstruct; default: inferred from
                the net
            run: Output of another task of ours, or the path of a run's folder. Without it the task starts a new run.
            places: Where runs, datasets and models live; default: those of this Airflow.
            refuse_unknown_conf: Whether a run whose conf has keys that are no param of the DAG is refused.
            store_conn_id: Airflow connection with the credentials of an object store; default: aws_default,
                google_cloud_default or wasb_default, where an argument or the run's dataset is in such a store.
        """

class DeepSparkExportOperator(BaseOperator):
    """Export the run's last snapshot.

    The output has the run's paths, ``bundle`` (the folder) and ``digest`` (of the bundle's manifest).

    Example:
        .. code-block:: python

            DeepSparkExportOperator(task_id="export", run=train.output, formats="saved_model,caffe,onnx")
    """

    def __init__(
        self,
        *,
        task_id: str,
        output: StrPath | Template | None = None,
        weights: StrPath | Template | None = None,
        check_samples: int | Template | None = None,
        class_names: StrPath | Template | None = None,
        formats: str | Sequence[str] | Template | None = None,
        task: Literal['auto', 'classification', 'multi_label', 'regression', 'embedding', 'reconstruction', 'segmentation'] | Template | None = None,
        output_blob: str | Template | None = None,
        run: Any = None,
        places: Places | None = None,
        refuse_unknown_conf: bool = False,
        store_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        """Take the arguments.

        Args:
            output: Bundle folder; default RUN/bundle
            weights: Export this .caffemodel instead of the run's last snapshot
            check_samples: Number of real samples on which each exported model must agree with the net
            class_names: Text file with a class name per line, class 0 first; default: the names in the dataset
            formats: What the bundle holds: saved_model, caffe, keras, onnx, tflite, tflite_float16, tflite_int8, with
                commas between them; default, or all: all that the net can have of saved_model, caffe, keras, onnx,
                tflite. Evaluation and models in production need saved_model and caffe
            task: Task of the net: classification (one class a sample), multi_label (each class yes or no), regression
                (numbers), embedding (pairs), reconstruction (autoencoder) or segmentation (a class a pixel); auto:
                inferred from the net's losses and outputs
            output_blob: Blob with the net's answers, or two blobs with a comma between for the sides of a pair;
                default: inferred from the net
            run: Output of another task of ours, or the path of a run's folder. Without it the task starts a new run.
            places: Where runs, datasets and models live; default: those of this Airflow.
            refuse_unknown_conf: Whether a run whose conf has keys that are no param of the DAG is refused.
            store_conn_id: Airflow connection with the credentials of an object store; default: aws_default,
                google_cloud_default or wasb_default, where an argument or the run's dataset is in such a store.
        """

class DeepSparkIngestOperator(SparkSubmitOperator):
    """Ingest raw data into a dataset: ``output``, else the run's dataset, else the dataset of source and options.

    A dataset of the same source and config is used unchanged. Tasks with the same dataset write one after the other.
    Each of the others waits without a worker's slot, at most ``turn_limit``, and finds the dataset afterwards.

    Airflow takes the Asset's event from a successful task, so a task that dies after the commit has announced nothing.
    Therefore the task sends the event of every dataset without an event of the Asset. Two simultaneous ingestions of a
    source may both send the event; no event is lost.

    The output has the run's paths, with the folder as ``dataset``, and the digests of the dataset's manifests.

    Example:
        .. code-block:: python

            ingest = DeepSparkIngestOperator(task_id="ingest", source="/data/train_list.txt", conn_id="our_spark")
            DeepSparkTrainOperator(task_id="train", run=ingest.output, solver="nets/solver.prototxt")
    """

    def __init__(
        self,
        *,
        task_id: str,
        source: StrPath | Template | None = None,
        test_source: StrPath | Template | None = None,
        test_fraction: float | Template | None = None,
        validation_source: StrPath | Template | None = None,
        validation_fraction: float | Template | None = None,
        split_list: StrPath | Template | None = None,
        split_column: str | Template | None = None,
        source_format: Literal['auto', 'caffe_lmdb', 'caffe_leveldb', 'cifar_binary', 'hdf5', 'tfrecord', 'sequence_file', 'parquet', 'orc', 'avro', 'json_lines', 'csv', 'spark_table', 'idx', 'class_folders', 'image_list'] | Template | None = None,
        root_folder: StrPath | Template | None = None,
        labels: StrPath | Template | None = None,
        cifar_labels: Literal['fine', 'coarse'] | Template | None = None,
        image_column: str | Template | None = None,
        label_column: str | Template | None = None,
        feature_columns: str | Template | None = None,
        id_column: str | Template | None = None,
        weight_column: str | Template | None = None,
        group_column: str | Template | None = None,
        label_kind: Literal['auto', 'class', 'value'] | Template | None = None,
        standardize: bool | Template | None = None,
        missing: Literal['mean', 'zero', 'refuse', 'drop-row'] | Template | None = None,
        query: str | Template | None = None,
        class_names: StrPath | Template | None = None,
        shard_format: Literal['lmdb', 'hdf5'] | Template | None = None,
        encoded: bool | Template | None = None,
        resize_height: int | Template | None = None,
        resize_width: int | Template | None = None,
        gray: bool | Template | None = None,
        scaled_decoding: bool | Template | None = None,
        decode_mib: int | Template | None = None,
        member_mib: int | Template | None = None,
        unpacked_gib: int | Template | None = None,
        max_pixel: int | Template | None = None,
        balance: Literal['none', 'oversample', 'undersample'] | Template | None = None,
        limit: int | Template | None = None,
        n_classes: int | Template | None = None,
        output: StrPath | Template | None = None,
        full: bool | Template | None = None,
        shuffle: bool | Template | None = None,
        seed: int | Template | None = None,
        samples_per_shard: int | Template | None = None,
        shards: int | Template | None = None,
        max_rejected_fraction: float | Template | None = None,
        deduplicate: bool | Template | None = None,
        deduplicate_across: bool | Template | None = None,
        stamp: Literal['time', 'digest'] | Template | None = None,
        strict: bool | Template | None = None,
        engine: Literal['auto', 'spark', 'process'] | Template | None = None,
        staging_folder: StrPath | Template | None = None,
        staging_size: int | str | Template | None = None,
        listen_address: str | Template | None = None,
        insecure_network: bool | Template | None = None,
        models: StrPath | Template | None = None,
        model: str | Template | None = None,
        run: Any = None,
        places: Places | None = None,
        refuse_unknown_conf: bool = False,
        store_conn_id: str | None = None,
        asset: Asset | None = None,
        skips_judged_data: bool = False,
        turn_limit: timedelta = ...,
        conn_id: str = 'spark_default',
        **kwargs: Any,
    ) -> None:
        """Take the arguments.

        Args:
            source: Training data: an image list ('path label' lines), a folder of class folders, either also in an
                archive (ARCHIVE.tar.gz::LIST, ARCHIVE.zip::FOLDER), a table (Parquet, CSV, JSON, ORC, Avro,
                table:db.name), files of MNIST or CIFAR, TFRecord, SequenceFile, HDF5, or a Caffe LMDB or LevelDB
            test_source: Test data of the same format; default: a share test_fraction of source
            test_fraction: Share of the records for the test set, by a hash of each record's name, so no record changes
                sides when the source grows; 0: no test set; unused with test_source
            validation_source: Validation data of the same format; default: a share validation_fraction of source
            validation_fraction: Share of the records for the validation set, by the same hash, taken from the training
                set; the test set stays the same; 0: no validation set
            split_list: Text with a record and the split (train, validation or test) on each line, or a folder with
                lists of records: train.txt, validation.txt, test.txt. Records of a table are listed by id. Replaces the
                shares
            split_column: Column with train, validation or test, in a list with a header line or in a table; replaces
                the shares
            source_format: Format of the source; auto: recognised from the data
            root_folder: Folder of the list's paths (in the archive, for a list in an archive); default: the list's
                folder
            labels: IDX label file of source; default: the file of the usual name beside the images
            cifar_labels: Labels of CIFAR-100: 100 fine or 20 coarse classes
            image_column: Name of the images or features: an HDF5 data set, a feature of a tf.train.Example, a column of
                paths in a list with a header line, a table's column of encoded images or paths; default: the usual
                names (data, image/encoded, ...)
            label_column: Name of the labels, likewise; several of a table: a,b; default: the usual names (label,
                image/class/label, ...)
            feature_columns: A table's columns of features, in this order: names, arrays, f*, first..last, !this;
                default: all numbers but label, id, weight and group; !this alone: the default without this
            id_column: A table's column of row names, stored with the rows; the name's hash decides a row's side of the
                split; default: id
            weight_column: A table's column of sample weights, kept as data set weight
            group_column: A table's column of groups (a customer, a patient); a group stays on the same side of the
                split
            label_kind: Kind of a table's labels: classes, or values to predict; auto: classes if all labels are whole
                numbers from 0 and below 1000, or text
            standardize: Subtract each feature's mean and divide by the standard deviation, both of the training set;
                stored in dataset.json
            missing: Treatment of a table's missing features: the mean, zero, an error, or a row left out
            query: Spark SQL to select the rows, e.g. SELECT * FROM source WHERE age > 17; source is the table of SOURCE
            class_names: Text file with a class name per line, in label order, also ARCHIVE::FILE; sets the order of a
                source's named classes, too
            shard_format: File format of shards; a table of features always has hdf5
            encoded: Keep images compressed in the shards (LMDB only)
            resize_height: Height of stored images in pixels, e.g. 32; 0 keeps the size
            resize_width: Width of stored images in pixels, e.g. 32; 0 keeps the size
            gray: Read images as gray
            scaled_decoding: Decode JPEG images at 1/2, 1/4 or 1/8 of the size before a strong reduction: faster, with
                other pixels (docs/guides/data.md)
            decode_mib: Most memory in MiB for decoding a compressed image: 168 is enough for some 55 megapixels. Larger
                images are rejected
            member_mib: Most MiB of an unpacked file of a zip. Larger files are rejected
            unpacked_gib: Most GiB on the disk for an unpacked tar or file (gzip, bzip2, xz)
            max_pixel: Largest pixel value of the source; scaled to 255 (digits8x8: 16)
            balance: Training set with classes of equal size: oversample repeats records up to the largest class,
                undersample takes the smallest class' number of records from each class; the other sets do not change
            limit: Take this number of records of each source: each class keeps the share, and every run takes the same
                records
            n_classes: Refuse labels outside [0, n_classes); default: from class_names, else from the data
            output: Dataset folder to write; an existing dataset with the same options is brought up to date with the
                source
            full: Write every shard anew, even if only some records of an existing dataset have changed
            shuffle: Store samples in a fixed random order
            seed: Decides the split and the order
            samples_per_shard: Upper bound; shards also stay below 2 GiB
            shards: Number of shards of each set, e.g. 1: a single LMDB, a single source for Caffe; after a change of
                the source the whole set is then written anew; default: by samples_per_shard, and several from 500
                images on, so every core has a task
            max_rejected_fraction: More bad records than this share fail the task
            deduplicate: Leave out records with the content of an earlier record of the same set; needs a second reading
                of every record
            deduplicate_across: With deduplicate: also leave out validation and test records with the content of a
                training record
            stamp: Property of a file to recognise changes: time (size and time of change), or digest (the content; an
                ingestion and a DAG's check then read every file)
            strict: Refuse data with a warning: damaged images, duplicates, a class with one sample, ...
            engine: Reader of the records: spark, process (this process alone), or auto (this process if faster than a
                start of Spark)
            staging_folder: Folder on each host's disk for copies of data from an object store or the driver's disk;
                default: deepspark-staging-UID in the system's folder for temporary files
            staging_size: Most bytes of the copies on a host, e.g. 100GiB; the least recently used copies are removed
            listen_address: Address of the driver's host for the workers' connections; auto: 127.0.0.1 for a local
                master, else the host's address towards the master
            insecure_network: Accept a cluster without encryption between driver and executors; even the exchange's
                secret is sent in clear
            models: Folder of models in production
            model: Name of the model in production: at most 64 letters, digits, dots, dashes and underscores
            run: Output of another task of ours, or the path of a run's folder. Without it the task starts a new run.
            places: Where runs, datasets and models live; default: those of this Airflow.
            refuse_unknown_conf: Whether a run whose conf has keys that are no param of the DAG is refused.
            store_conn_id: Airflow connection with the credentials of an object store; default: aws_default,
                google_cloud_default or wasb_default, where an argument or the run's dataset is in such a store.
            asset: Its events announce new datasets.
            skips_judged_data: Whether a run that data have started goes on only with data that no candidate of the
                model ``model``, in the folder ``models``, was judged on.
            turn_limit: How long the task waits at most while another task writes the same dataset; then it fails.
            conn_id: Spark connection; its master runs the stage.
        """

class DeepSparkPredictOperator(SparkSubmitOperator):
    """Write a bundle's answers, a row per input.

    A child process answers, or a Spark application on the connection ``conn_id``: with ``in_spark``, and where input or
    output is a table of Spark's catalog. The output has the run's paths and ``predictions``, the written file, by
    default ``predictions.parquet`` in the run's folder.

    Example:
        .. code-block:: python

            DeepSparkPredictOperator(task_id="predict", bundle=export.output, input="/data/new")
    """

    def __init__(
        self,
        *,
        task_id: str,
        resize_height: int | Template | None = None,
        resize_width: int | Template | None = None,
        max_pixel: int | Template | None = None,
        bundle: StrPath | Template,
        input: StrPath | Template,
        output: StrPath | Template | None = None,
        task_records: int | Template | None = None,
        table_mode: Literal['error', 'append', 'overwrite'] | Template | None = None,
        listen_address: str | Template | None = None,
        listen_port: int | Template | None = None,
        insecure_network: bool | Template | None = None,
        input_format: Literal['auto', 'folder', 'list', 'dataset', 'parquet', 'csv', 'orc', 'avro', 'json_lines'] | Template | None = None,
        root_folder: StrPath | Template | None = None,
        split: Literal['train', 'validation', 'test'] | Template | None = None,
        image_column: str | Template | None = None,
        feature_columns: str | Template | None = None,
        input_columns: str | Template | None = None,
        id_column: str | Template | None = None,
        batch_size: int | Template | None = None,
        devices: Literal['auto', 'cpu', 'gpu'] | Template | None = None,
        threads: int | Template | None = None,
        staging_folder: StrPath | Template | None = None,
        staging_size: int | str | Template | None = None,
        strict: bool | Template | None = None,
        top_k: int | Template | None = None,
        scores: bool | Template | None = None,
        run: Any = None,
        places: Places | None = None,
        refuse_unknown_conf: bool = False,
        store_conn_id: str | None = None,
        in_spark: Any = False,
        conn_id: str = 'spark_default',
        **kwargs: Any,
    ) -> None:
        """Take the arguments.

        Args:
            resize_height: Height that images get; default: as the training images, which the bundle knows of its
                dataset
            resize_width: Width, likewise
            max_pixel: Largest pixel value of these images; scaled to 255; default: as of the training images, else 255
            bundle: Bundle of a model, from deepspark export or convert; or a run with a bundle
            input: One image, a folder of images, a list with one path a line, an ingested dataset, a table (Parquet or
                ORC file or folder, CSV, JSON lines, table:db.name of Spark's catalog), or any other source that
                deepspark ingest reads
            output: Parquet file to write, one row per input; with a Spark master a folder of such files; or
                table:db.name, a table of Spark's catalog
            task_records: Inputs of a Spark task at most
            table_mode: Treatment of an existing output table
            listen_address: Address of the driver's host for the workers' connections; auto: 127.0.0.1 for a local
                master, else the host's address towards the master
            listen_port: First port of the driver's servers for workers: the servers of the exchange, then the server of
                the driver's files; 0: chosen by the system
            insecure_network: Accept a cluster without encryption between driver and executors; even the exchange's
                secret is sent in clear
            input_format: Format of the input; auto: recognised from the data
            root_folder: Folder of the paths in a list or table; default: the folder of the list or table
            split: Part of the dataset to score
            image_column: Column of a table with images (bytes) or paths; default: a usual name
            feature_columns: Columns of a table with the numbers of a sample, in this order: names, f*, first..last,
                !this; or one column of arrays; default: the columns of the training, else all columns of numbers
            input_columns: For a bundle with several inputs: the column of a table for each input, INPUT=COLUMN with
                commas between; default: the columns with the names of the inputs
            id_column: Column of a table with row names; default: the paths, else the rows' numbers from 0 on
            batch_size: Samples of a forward pass; default: 100, or the net's own number where answers depend on it
                (Reshape, LSTM, BatchNorm without stored statistics)
            devices: Device of the net; auto: solver_mode's device (Caffe's default is GPU), but the CPU without a
                usable GPU; gpu: refuses to run without a GPU
            threads: Threads; default: the number of cores
            staging_folder: Folder on each host's disk for copies of data from an object store or the driver's disk;
                default: deepspark-staging-UID in the system's folder for temporary files
            staging_size: Most bytes of the copies on a host, e.g. 100GiB; the least recently used copies are removed
            strict: Refuse an unusable input; off: write a row with the reason
            top_k: Most probable classes of a row
            scores: Write the scores of all classes, too
            run: Output of another task of ours, or the path of a run's folder. Without it the task starts a new run.
            places: Where runs, datasets and models live; default: those of this Airflow.
            refuse_unknown_conf: Whether a run whose conf has keys that are no param of the DAG is refused.
            store_conn_id: Airflow connection with the credentials of an object store; default: aws_default,
                google_cloud_default or wasb_default, where an argument or the run's dataset is in such a store.
            in_spark: Whether tasks of Spark answer.
            conn_id: Spark connection; its master runs the stage.
        """

class DeepSparkPromoteOperator(BaseOperator):
    """Copy the run's bundle among the model's versions and point production at it, if the run's decision says so.

    A run without a DeepSparkDecideOperator is decided here: the candidate is compared with the model in production,
    after a missing score of production. With ``approval`` the task promotes only an approved model
    (DeepSparkApproveOperator). The output has the run's paths, ``model`` (the name), ``version`` (the version's folder)
    and ``digest`` (of the manifest). The event of the asset has the figures, too.

    Example:
        .. code-block:: python

            DeepSparkPromoteOperator(task_id="promote", run=export.output, model="digits", model_asset=Asset("digits"))
    """

    def __init__(
        self,
        *,
        task_id: str,
        models: StrPath | Template | None = None,
        model: str | Template | None = None,
        metric: Literal['main', 'top1', 'top5', 'loss'] | Template | None = None,
        min_gain: float | Template | None = None,
        confidence: float | Template | None = None,
        max_class_loss: float | Template | None = None,
        keep: int | Template | None = None,
        max_slowdown: float | Template | None = None,
        approval: bool | Template | None = None,
        approval_timeout: str | Template | None = None,
        run: Any = None,
        places: Places | None = None,
        refuse_unknown_conf: bool = False,
        store_conn_id: str | None = None,
        dag_model: Mapping[str, Any] | None = None,
        model_asset: Asset | None = None,
        **kwargs: Any,
    ) -> None:
        """Take the arguments.

        Args:
            models: Folder of models in production
            model: Name of the model in production: at most 64 letters, digits, dots, dashes and underscores
            metric: Figure to improve; main: top1 of a classifier, else the main figure of the task (RMSE, mean IoU,
                ROC-AUC, ...) together with the samples' errors
            min_gain: Smallest gain, in the metric's unit: 0.01 is one point of accuracy
            confidence: Confidence in the gain, by a paired test on the same samples. 0.95: of candidates without a gain
                at most 1 in 20 is promoted; 5 gained samples without a lost sample are just enough (with groups: 5
                groups). 0.5: any better score suffices
            max_class_loss: Keep production if a class' accuracy falls by more than this share, beyond chance; a class
                of fewer than 6 samples is too small for this. 1: no check of classes
            keep: Number of the model's bundles to keep: a promotion removes the oldest further bundles, never the
                bundle in production; default: keep all
            max_slowdown: Keep production if the net scores fewer images/s by more than this share, measured on the same
                machine, beyond the spread of the measurements and 1 ms a batch. 1: no check of speed
            approval: A better model waits for an approval on Airflow's page Required Actions; after a refusal, or
                without an answer, production stays
            approval_timeout: Longest wait, with a unit: 90 min, 24 h, 2 d. The next retraining begins after the end of
                this retraining
            run: Output of another task of ours, or the path of a run's folder. Without it the task starts a new run.
            places: Where runs, datasets and models live; default: those of this Airflow.
            refuse_unknown_conf: Whether a run whose conf has keys that are no param of the DAG is refused.
            store_conn_id: Airflow connection with the credentials of an object store; default: aws_default,
                google_cloud_default or wasb_default, where an argument or the run's dataset is in such a store.
            dag_model: ``model`` and ``models`` as the DAG's author chose them. A run that names another model may
                change what a person who may trigger the DAG may change by the pages: a model of the same folder that no
                other DAG made. Without it a run may name any model.
            model_asset: A new model in production is announced as an event of it.
        """

class DeepSparkTrainOperator(SparkSubmitOperator):
    """Train into the run's folder; a retry continues from the folder's last snapshot.

    The workers are a Spark application on the connection ``conn_id``, or with ``engine="process"`` processes of the
    task's host, without Java. The numbers are the same.

    The output has the run's paths (``run_dir``, ``dataset``, ``production``), ``snapshot`` (the last .caffemodel) and
    the snapshot's ``digest``. ``name`` and ``tags`` are those of the run, if no earlier task has given any; ``name`` is
    the name of the Spark application, too.

    Example:
        .. code-block:: python

            DeepSparkTrainOperator(task_id="train", run=check.output, solver="nets/solver.prototxt", n_workers=4)
    """

    def __init__(
        self,
        *,
        task_id: str,
        solver: StrPath | Template,
        overrides: str | Template | None = None,
        dataset: StrPath | Template | None = None,
        verify: Literal['auto', 'digests', 'sizes'] | Template | None = None,
        weights: StrPath | Sequence[StrPath] | Template | None = None,
        resume: StrPath | Template | None = None,
        parity: bool | Template | None = None,
        n_workers: str | int | Template | None = None,
        strategy: str | Template | None = None,
        strategy_options: str | Template | None = None,
        comm_period: Literal['auto'] | int | str | Template | None = None,
        moving_rate: str | float | Template | None = None,
        rate_scale: Literal['auto', 'none'] | float | Template | None = None,
        lock: Literal['none', 'striped', 'full'] | Template | None = None,
        transport: Literal['auto', 'shm', 'socket'] | Template | None = None,
        overlap: bool | Template | None = None,
        n_servers: int | Template | None = None,
        wire_dtype: Literal['float32', 'float16', 'bfloat16'] | Template | None = None,
        order: Literal['auto', 'file', 'shuffled'] | Template | None = None,
        devices: Literal['auto', 'cpu', 'gpu'] | Template | None = None,
        share_gpus: bool | Template | None = None,
        threads_per_worker: Literal['auto'] | int | Template | None = None,
        gpus_per_worker: int | Template | None = None,
        placement: Literal['none', 'auto'] | StrPath | Template | None = None,
        recompute: bool | Template | None = None,
        precision: Literal['float32', 'bfloat16', 'float16'] | Template | None = None,
        tf32: bool | Template | None = None,
        stop_below: str | Template | None = None,
        min_workers: int | Template | None = None,
        min_workers_wait_s: float | Template | None = None,
        worker_tries: int | Template | None = None,
        grant_timeout_s: float | Template | None = None,
        exchange_timeout_s: float | Template | None = None,
        listen_address: str | Template | None = None,
        staging_folder: StrPath | Template | None = None,
        staging_size: int | str | Template | None = None,
        listen_port: int | Template | None = None,
        check_pushes: bool | Template | None = None,
        watch: int | Template | None = None,
        tls: Literal['auto', 'on', 'off', 'mac'] | Template | None = None,
        insecure_network: bool | Template | None = None,
        spark_ui: bool | Template | None = None,
        engine: Literal['auto', 'spark', 'process'] | Template | None = None,
        name: str | Template | None = None,
        tags: str | Template | None = None,
        run: Any = None,
        places: Places | None = None,
        refuse_unknown_conf: bool = False,
        store_conn_id: str | None = None,
        conn_id: str = 'spark_default',
        **kwargs: Any,
    ) -> None:
        """Take the arguments.

        Args:
            solver: Caffe solver prototxt, e.g. nets/lenet_solver.prototxt
            overrides: Solver fields in prototxt, in place of the file's fields, e.g. 'max_iter: 200 base_lr: 0.02'
            dataset: Ingested dataset, in place of source and mean_file of the nets' data layers
            verify: How the dataset is compared with its manifests before workers start; digests reads every byte, sizes
                walks the pages alone, auto reads every byte up to 1 GiB
            weights: Fine-tune: .caffemodel whose blobs are copied by layer name; of several (a,b) the later override
            resume: Caffe .solverstate to go on from (not together with weights)
            parity: First run the recorded cases of Caffe for the layer types of the nets; RUN/parity.json keeps them
            n_workers: Training processes, e.g. 4; 4..16: at least 4, more while there are slots; auto: the cores or
                GPUs of a single host, 1..64 on a cluster
            strategy: Method of exchange between workers and center; auto: by the number of workers, and whether workers
                may differ
            strategy_options: The strategy's own options, e.g. 'block_momentum: 0.5'; deepspark takes its parameter file
                ('period: 50 moving_rate: 0.1 ...') as it is
            comm_period: tau, minibatches between exchanges; auto: the smallest tau with exchanges under 10 % of the
                time; '1@0 10@2000': 1, and from minibatch 2000 of the clock on 10
            moving_rate: alpha of elastic averaging; default 0.45 with 2 workers, 0.3 with more (deepspark: 2.4 /
                n_workers with more than 8); '0.4@0 0.2@2000': by the clock
            rate_scale: Multiplies base_lr; auto makes up for the progress per step (at most 4, but for easgd), warms
                up; with three workers of easgd and more, measured curvature bounds the rates in nets with convolutions
            lock: none: fastest, overlapping pushes may lose a part; striped: every push survives; full: one exchange at
                a time. A strategy with a need for a stronger lock gets the stronger lock
            transport: auto: shared memory for workers on the server's host, else sockets
            overlap: Elastic strategies: compute the next period during the exchange of this period's parameters
            n_servers: Server processes for workers by socket, each with a key range of the center; for large models
            wire_dtype: Format of pushed numbers on a socket; the worker keeps the rounding error of 16 bits. bfloat16
                is faster
            order: Order of samples; auto: file order for one worker (as Caffe), else shuffled
            devices: Device of the net; auto: solver_mode's device (Caffe's default is GPU), but the CPU without a
                usable GPU; gpu: refuses to run without a GPU
            share_gpus: Let several workers of a host use the same GPU if there are too few GPUs
            threads_per_worker: TensorFlow threads of each worker on the CPU; auto: the worker's share of the available
                cores
            gpus_per_worker: Devices of each worker; without a placement each device computes separate passes, as
                Caffe's -gpu 0,1
            placement: Placement of the layers on a worker's devices; none: every device has all layers; auto:
                consecutive stages of about equal time; or a file of lines 'LAYERS: DEVICE'
            recompute: Keep fewer activations: most layers are computed again for the backward pass. Less memory, up to
                a third more time, the same numbers
            precision: Arithmetic of convolutions and inner products in training; sums, parameters, exchange and losses
                stay float32. float16 scales the loss
            tf32: On GPUs, round the factors of convolutions and products to TensorFloat-32 (10 bits of mantissa)
            stop_below: End the training with a snapshot if the first test at or after a clock has a lower accuracy:
                ACCURACY@CLOCK, e.g. 0.3@500 0.6@1000
            min_workers: The run fails if fewer workers have a slot of the cluster for min_workers_wait_s
            min_workers_wait_s: Seconds of waiting for min_workers
            worker_tries: Starts of a worker without an exchange in between, before the worker is given up; 1: no second
                start
            grant_timeout_s: A worker silent for this long loses its grant
            exchange_timeout_s: A worker waits this long for the server, then fails
            listen_address: Address of the driver's host for the workers' connections; auto: 127.0.0.1 for a local
                master, else the host's address towards the master
            staging_folder: Folder on each host's disk for copies of data from an object store or the driver's disk;
                default: deepspark-staging-UID in the system's folder for temporary files
            staging_size: Most bytes of the copies on a host, e.g. 100GiB; the least recently used copies are removed
            listen_port: First port of the driver's servers for workers: the servers of the exchange, then the server of
                the driver's files; 0: chosen by the system
            check_pushes: Refuse a worker's push with numbers that are not finite (NaN, infinity), or a million times as
                long as any push before
            watch: Minibatches between histograms of every blob and its update, and the workers' distances to the center
                by blob, on the page Training; 0: none
            tls: Protection of the exchange by socket; auto: TLS 1.3 unless the server listens on this host alone; mac:
                in clear, but changed messages are refused; off: no protection, on a cluster's network only with
                insecure_network
            insecure_network: Accept a cluster without encryption between driver and executors; even the exchange's
                secret is sent in clear
            spark_ui: Serve Spark's UI while workers train, without a login; with a local master on 127.0.0.1 alone. The
                run's page and log have the address
            engine: Runner of the workers: spark, process (processes of this host), or auto (in a DAG spark; else
                processes unless master or spark_ui is given)
            name: Name in lists, charts and pages; default: net, strategy, workers and minibatches
            tags: Words to find the run by, with commas between them, e.g. 'baseline, paper'
            run: Output of another task of ours, or the path of a run's folder. Without it the task starts a new run.
            places: Where runs, datasets and models live; default: those of this Airflow.
            refuse_unknown_conf: Whether a run whose conf has keys that are no param of the DAG is refused.
            store_conn_id: Airflow connection with the credentials of an object store; default: aws_default,
                google_cloud_default or wasb_default, where an argument or the run's dataset is in such a store.
            conn_id: Spark connection; its master runs the stage.
        """
