"""Written by docs/generate/python.py (make format) from the config models; do not edit."""

from collections.abc import Sequence
from typing import Literal

from deepspark_ops.api.results.bundle import Bundle
from deepspark_ops.api.results.check_report import CheckReport
from deepspark_ops.api.results.comparison import Comparison
from deepspark_ops.api.results.dataset import Dataset
from deepspark_ops.api.results.evaluation import Evaluation
from deepspark_ops.api.results.predictions import Predictions
from deepspark_ops.api.results.result_folder import StrPath
from deepspark_ops.api.results.run import Run
from deepspark_ops.api.results.simulation import Simulation
from deepspark_ops.processes.worker_archive import WorkerArchive

def check(
    solver: StrPath,
    *,
    overrides: str = '',
    weights: StrPath | Sequence[StrPath] | None = None,
    dataset: StrPath | None = None,
    source: StrPath | None = None,
    test_source: StrPath | None = None,
    test_fraction: float = 0.2,
    validation_source: StrPath | None = None,
    validation_fraction: float = 0.0,
    split_list: StrPath | None = None,
    split_column: str | None = None,
    source_format: Literal['auto', 'caffe_lmdb', 'caffe_leveldb', 'cifar_binary', 'hdf5', 'tfrecord', 'sequence_file', 'parquet', 'orc', 'avro', 'json_lines', 'csv', 'spark_table', 'idx', 'class_folders', 'image_list'] = 'auto',
    root_folder: StrPath | None = None,
    labels: StrPath | None = None,
    cifar_labels: Literal['fine', 'coarse'] = 'fine',
    image_column: str | None = None,
    label_column: str | None = None,
    feature_columns: str | None = None,
    id_column: str | None = None,
    weight_column: str | None = None,
    group_column: str | None = None,
    label_kind: Literal['auto', 'class', 'value'] = 'auto',
    standardize: bool = True,
    missing: Literal['mean', 'zero', 'refuse', 'drop-row'] = 'mean',
    query: str | None = None,
    class_names: StrPath | None = None,
    shard_format: Literal['lmdb', 'hdf5'] = 'lmdb',
    encoded: bool = False,
    resize_height: int = 0,
    resize_width: int = 0,
    gray: bool = False,
    scaled_decoding: bool = False,
    decode_mib: int = 168,
    member_mib: int = 256,
    unpacked_gib: int = 64,
    max_pixel: int = 255,
    balance: Literal['none', 'oversample', 'undersample'] = 'none',
    limit: int | None = None,
    n_classes: int | None = None,
    n_workers: str | int = 2,
    devices: Literal['auto', 'cpu', 'gpu'] = 'auto',
    share_gpus: bool = False,
    gpus_per_worker: int = 1,
    placement: Literal['none', 'auto'] | StrPath = 'none',
    recompute: bool = False,
    precision: Literal['float32', 'bfloat16', 'float16'] = 'float32',
    memory: bool = False,
    memory_limit: int | str | None = None,
    svg: StrPath | None = None,
    task: Literal['auto', 'classification', 'multi_label', 'regression', 'embedding', 'reconstruction', 'segmentation'] = 'auto',
    output_blob: str | None = None,
    target_blob: str | None = None,
    parity: bool = False,
    parity_cases: StrPath | None = None,
    run_dir: StrPath | None = None,
    allowed_root: StrPath | Sequence[StrPath] = (),
    confined: bool = False,
    allow_python_layers: bool = False,
    python_layers: str | Sequence[str] = (),
) -> CheckReport:
    """Read a solver and its nets and report layers, shapes, cost and problems.

    Args:
        solver: Caffe solver prototxt, e.g. nets/lenet_solver.prototxt.
        overrides: Solver fields in prototxt, in place of the file's fields, e.g. 'max_iter: 200 base_lr: 0.02'.
        weights: Fine-tune: .caffemodel whose blobs are copied by layer name; of several (a,b) the later override.
        dataset: Ingested dataset; default: the net's own sources.
        source: Training data: an image list ('path label' lines), a folder of class folders, either also in an
            archive (ARCHIVE.tar.gz::LIST, ARCHIVE.zip::FOLDER), a table (Parquet, CSV, JSON, ORC, Avro,
            table:db.name), files of MNIST or CIFAR, TFRecord, SequenceFile, HDF5, or a Caffe LMDB or LevelDB.
        test_source: Test data of the same format; default: a share test_fraction of source.
        test_fraction: Share of the records for the test set, by a hash of each record's name, so no record changes
            sides when the source grows; 0: no test set; unused with test_source.
        validation_source: Validation data of the same format; default: a share validation_fraction of source.
        validation_fraction: Share of the records for the validation set, by the same hash, taken from the training
            set; the test set stays the same; 0: no validation set.
        split_list: Text with a record and the split (train, validation or test) on each line, or a folder with
            lists of records: train.txt, validation.txt, test.txt. Records of a table are listed by id. Replaces the
            shares.
        split_column: Column with train, validation or test, in a list with a header line or in a table; replaces
            the shares.
        source_format: Format of the source; auto: recognised from the data.
        root_folder: Folder of the list's paths (in the archive, for a list in an archive); default: the list's
            folder.
        labels: IDX label file of source; default: the file of the usual name beside the images.
        cifar_labels: Labels of CIFAR-100: 100 fine or 20 coarse classes.
        image_column: Name of the images or features: an HDF5 data set, a feature of a tf.train.Example, a column of
            paths in a list with a header line, a table's column of encoded images or paths; default: the usual
            names (data, image/encoded, ...).
        label_column: Name of the labels, likewise; several of a table: a,b; default: the usual names (label,
            image/class/label, ...).
        feature_columns: A table's columns of features, in this order: names, arrays, f*, first..last, !this;
            default: all numbers but label, id, weight and group; !this alone: the default without this.
        id_column: A table's column of row names, stored with the rows; the name's hash decides a row's side of the
            split; default: id.
        weight_column: A table's column of sample weights, kept as data set weight.
        group_column: A table's column of groups (a customer, a patient); a group stays on the same side of the
            split.
        label_kind: Kind of a table's labels: classes, or values to predict; auto: classes if all labels are whole
            numbers from 0 and below 1000, or text.
        standardize: Subtract each feature's mean and divide by the standard deviation, both of the training set;
            stored in dataset.json.
        missing: Treatment of a table's missing features: the mean, zero, an error, or a row left out.
        query: Spark SQL to select the rows, e.g. SELECT * FROM source WHERE age > 17; source is the table of
            SOURCE.
        class_names: Text file with a class name per line, in label order, also ARCHIVE::FILE; sets the order of a
            source's named classes, too.
        shard_format: File format of shards; a table of features always has hdf5.
        encoded: Keep images compressed in the shards (LMDB only).
        resize_height: Height of stored images in pixels, e.g. 32; 0 keeps the size.
        resize_width: Width of stored images in pixels, e.g. 32; 0 keeps the size.
        gray: Read images as gray.
        scaled_decoding: Decode JPEG images at 1/2, 1/4 or 1/8 of the size before a strong reduction: faster, with
            other pixels (docs/guides/data.md).
        decode_mib: Most memory in MiB for decoding a compressed image: 168 is enough for some 55 megapixels. Larger
            images are rejected.
        member_mib: Most MiB of an unpacked file of a zip. Larger files are rejected.
        unpacked_gib: Most GiB on the disk for an unpacked tar or file (gzip, bzip2, xz).
        max_pixel: Largest pixel value of the source; scaled to 255 (digits8x8: 16).
        balance: Training set with classes of equal size: oversample repeats records up to the largest class,
            undersample takes the smallest class' number of records from each class; the other sets do not change.
        limit: Take this number of records of each source: each class keeps the share, and every run takes the same
            records.
        n_classes: Refuse labels outside [0, n_classes); default: from class_names, else from the data.
        n_workers: Training processes, e.g. 4; 4..16: at least 4, more while there are slots; auto: the cores or
            GPUs of a single host, 1..64 on a cluster.
        devices: Device of the net; auto: solver_mode's device (Caffe's default is GPU), but the CPU without a
            usable GPU; gpu: refuses to run without a GPU.
        share_gpus: Let several workers of a host use the same GPU if there are too few GPUs.
        gpus_per_worker: Devices of each worker; without a placement each device computes separate passes, as
            Caffe's -gpu 0,1.
        placement: Placement of the layers on a worker's devices; none: every device has all layers; auto:
            consecutive stages of about equal time; or a file of lines 'LAYERS: DEVICE'.
        recompute: Keep fewer activations: most layers are computed again for the backward pass. Less memory, up to
            a third more time, the same numbers.
        precision: Arithmetic of convolutions and inner products in training; sums, parameters, exchange and losses
            stay float32. float16 scales the loss.
        memory: Show the training net's memory by layer, and changes to fit the net into the available memory.
        memory_limit: Largest memory of a training step on a device, e.g. 8GiB; default: the available memory.
        svg: Draw the training net to this SVG file, or the first test net if there is no training net.
        task: Task of the net: classification (one class a sample), multi_label (each class yes or no), regression
            (numbers), embedding (pairs), reconstruction (autoencoder) or segmentation (a class a pixel); auto:
            inferred from the net's losses and outputs.
        output_blob: Blob with the net's answers, or two blobs with a comma between for the sides of a pair;
            default: inferred from the net.
        target_blob: Blob with the expected answers: labels, or the values to reconstruct; default: inferred from
            the net.
        parity: Run the recorded cases of Caffe for the nets' layer types.
        parity_cases: Folder of recorded cases; default: the cases in the package.
        run_dir: Folder of the run to write the comparison into, as parity.json.
        allowed_root: Folder for the files of a net, a solver and lists, besides the folders of solver and data; can
            be given several times.
        confined: Refuse a named file outside of the allowed folders; off: a warning per folder.
        allow_python_layers: Import any module of a net's Python layers: the module's code runs with your rights.
        python_layers: Modules of Python layers that may be imported, with commas.
    """

def ingest(
    source: StrPath,
    output: StrPath,
    *,
    test_source: StrPath | None = None,
    test_fraction: float = 0.2,
    validation_source: StrPath | None = None,
    validation_fraction: float = 0.0,
    split_list: StrPath | None = None,
    split_column: str | None = None,
    source_format: Literal['auto', 'caffe_lmdb', 'caffe_leveldb', 'cifar_binary', 'hdf5', 'tfrecord', 'sequence_file', 'parquet', 'orc', 'avro', 'json_lines', 'csv', 'spark_table', 'idx', 'class_folders', 'image_list'] = 'auto',
    root_folder: StrPath | None = None,
    labels: StrPath | None = None,
    cifar_labels: Literal['fine', 'coarse'] = 'fine',
    image_column: str | None = None,
    label_column: str | None = None,
    feature_columns: str | None = None,
    id_column: str | None = None,
    weight_column: str | None = None,
    group_column: str | None = None,
    label_kind: Literal['auto', 'class', 'value'] = 'auto',
    standardize: bool = True,
    missing: Literal['mean', 'zero', 'refuse', 'drop-row'] = 'mean',
    query: str | None = None,
    class_names: StrPath | None = None,
    shard_format: Literal['lmdb', 'hdf5'] = 'lmdb',
    encoded: bool = False,
    resize_height: int = 0,
    resize_width: int = 0,
    gray: bool = False,
    scaled_decoding: bool = False,
    decode_mib: int = 168,
    member_mib: int = 256,
    unpacked_gib: int = 64,
    max_pixel: int = 255,
    balance: Literal['none', 'oversample', 'undersample'] = 'none',
    limit: int | None = None,
    n_classes: int | None = None,
    previous: StrPath | None = None,
    full: bool = False,
    shuffle: bool = True,
    seed: int = 1,
    samples_per_shard: int = 10000,
    shards: int | None = None,
    max_rejected_fraction: float = 0.01,
    deduplicate: bool = False,
    deduplicate_across: bool = False,
    stamp: Literal['time', 'digest'] = 'time',
    strict: bool = False,
    allowed_root: StrPath | Sequence[StrPath] = (),
    confined: bool = False,
    engine: Literal['auto', 'spark', 'process'] = 'auto',
    staging_folder: StrPath | None = None,
    staging_size: int | str = '20GiB',
    listen_address: str = 'auto',
    insecure_network: bool = False,
    master: str = 'local[*]',
    progress: bool = True,
) -> Dataset:
    """Turn raw files into shards that Caffe reads.

    Args:
        source: Training data: an image list ('path label' lines), a folder of class folders, either also in an
            archive (ARCHIVE.tar.gz::LIST, ARCHIVE.zip::FOLDER), a table (Parquet, CSV, JSON, ORC, Avro,
            table:db.name), files of MNIST or CIFAR, TFRecord, SequenceFile, HDF5, or a Caffe LMDB or LevelDB.
        output: Dataset folder to write; an existing dataset with the same options is brought up to date with the
            source.
        test_source: Test data of the same format; default: a share test_fraction of source.
        test_fraction: Share of the records for the test set, by a hash of each record's name, so no record changes
            sides when the source grows; 0: no test set; unused with test_source.
        validation_source: Validation data of the same format; default: a share validation_fraction of source.
        validation_fraction: Share of the records for the validation set, by the same hash, taken from the training
            set; the test set stays the same; 0: no validation set.
        split_list: Text with a record and the split (train, validation or test) on each line, or a folder with
            lists of records: train.txt, validation.txt, test.txt. Records of a table are listed by id. Replaces the
            shares.
        split_column: Column with train, validation or test, in a list with a header line or in a table; replaces
            the shares.
        source_format: Format of the source; auto: recognised from the data.
        root_folder: Folder of the list's paths (in the archive, for a list in an archive); default: the list's
            folder.
        labels: IDX label file of source; default: the file of the usual name beside the images.
        cifar_labels: Labels of CIFAR-100: 100 fine or 20 coarse classes.
        image_column: Name of the images or features: an HDF5 data set, a feature of a tf.train.Example, a column of
            paths in a list with a header line, a table's column of encoded images or paths; default: the usual
            names (data, image/encoded, ...).
        label_column: Name of the labels, likewise; several of a table: a,b; default: the usual names (label,
            image/class/label, ...).
        feature_columns: A table's columns of features, in this order: names, arrays, f*, first..last, !this;
            default: all numbers but label, id, weight and group; !this alone: the default without this.
        id_column: A table's column of row names, stored with the rows; the name's hash decides a row's side of the
            split; default: id.
        weight_column: A table's column of sample weights, kept as data set weight.
        group_column: A table's column of groups (a customer, a patient); a group stays on the same side of the
            split.
        label_kind: Kind of a table's labels: classes, or values to predict; auto: classes if all labels are whole
            numbers from 0 and below 1000, or text.
        standardize: Subtract each feature's mean and divide by the standard deviation, both of the training set;
            stored in dataset.json.
        missing: Treatment of a table's missing features: the mean, zero, an error, or a row left out.
        query: Spark SQL to select the rows, e.g. SELECT * FROM source WHERE age > 17; source is the table of
            SOURCE.
        class_names: Text file with a class name per line, in label order, also ARCHIVE::FILE; sets the order of a
            source's named classes, too.
        shard_format: File format of shards; a table of features always has hdf5.
        encoded: Keep images compressed in the shards (LMDB only).
        resize_height: Height of stored images in pixels, e.g. 32; 0 keeps the size.
        resize_width: Width of stored images in pixels, e.g. 32; 0 keeps the size.
        gray: Read images as gray.
        scaled_decoding: Decode JPEG images at 1/2, 1/4 or 1/8 of the size before a strong reduction: faster, with
            other pixels (docs/guides/data.md).
        decode_mib: Most memory in MiB for decoding a compressed image: 168 is enough for some 55 megapixels. Larger
            images are rejected.
        member_mib: Most MiB of an unpacked file of a zip. Larger files are rejected.
        unpacked_gib: Most GiB on the disk for an unpacked tar or file (gzip, bzip2, xz).
        max_pixel: Largest pixel value of the source; scaled to 255 (digits8x8: 16).
        balance: Training set with classes of equal size: oversample repeats records up to the largest class,
            undersample takes the smallest class' number of records from each class; the other sets do not change.
        limit: Take this number of records of each source: each class keeps the share, and every run takes the same
            records.
        n_classes: Refuse labels outside [0, n_classes); default: from class_names, else from the data.
        previous: Dataset to go on from, in place of the dataset in output: unchanged files are shared.
        full: Write every shard anew, even if only some records of an existing dataset have changed.
        shuffle: Store samples in a fixed random order.
        seed: Decides the split and the order.
        samples_per_shard: Upper bound; shards also stay below 2 GiB.
        shards: Number of shards of each set, e.g. 1: a single LMDB, a single source for Caffe; after a change of
            the source the whole set is then written anew; default: by samples_per_shard, and several from 500
            images on, so every core has a task.
        max_rejected_fraction: More bad records than this share fail the task.
        deduplicate: Leave out records with the content of an earlier record of the same set; needs a second reading
            of every record.
        deduplicate_across: With deduplicate: also leave out validation and test records with the content of a
            training record.
        stamp: Property of a file to recognise changes: time (size and time of change), or digest (the content; an
            ingestion and a DAG's check then read every file).
        strict: Refuse data with a warning: damaged images, duplicates, a class with one sample, .
        allowed_root: Folder for the files of a net, a solver and lists, besides the folders of solver and data; can
            be given several times.
        confined: Refuse a named file outside of the allowed folders; off: a warning per folder.
        engine: Reader of the records: spark, process (this process alone), or auto (this process if faster than a
            start of Spark).
        staging_folder: Folder on each host's disk for copies of data from an object store or the driver's disk;
            default: deepspark-staging-UID in the system's folder for temporary files.
        staging_size: Most bytes of the copies on a host, e.g. 100GiB; the least recently used copies are removed.
        listen_address: Address of the driver's host for the workers' connections; auto: 127.0.0.1 for a local
            master, else the host's address towards the master.
        insecure_network: Accept a cluster without encryption between driver and executors; even the exchange's
            secret is sent in clear.
        master: Spark master.
        progress: Show how far the stage is: on a terminal, in a notebook, else as lines on stderr.
    """

def train(
    solver: StrPath,
    *,
    run_dir: StrPath,
    overrides: str = '',
    dataset: StrPath | None = None,
    verify: Literal['auto', 'digests', 'sizes'] = 'auto',
    weights: StrPath | Sequence[StrPath] | None = None,
    resume: StrPath | None = None,
    parity: bool = False,
    n_workers: str | int = 2,
    strategy: str = 'easgd',
    strategy_options: str = '',
    comm_period: Literal['auto'] | int | str = 'auto',
    moving_rate: str | float | None = None,
    rate_scale: Literal['auto', 'none'] | float = 'auto',
    lock: Literal['none', 'striped', 'full'] = 'none',
    transport: Literal['auto', 'shm', 'socket'] = 'auto',
    overlap: bool = False,
    n_servers: int = 1,
    wire_dtype: Literal['float32', 'float16', 'bfloat16'] = 'float32',
    order: Literal['auto', 'file', 'shuffled'] = 'auto',
    devices: Literal['auto', 'cpu', 'gpu'] = 'auto',
    share_gpus: bool = False,
    threads_per_worker: Literal['auto'] | int = 'auto',
    gpus_per_worker: int = 1,
    placement: Literal['none', 'auto'] | StrPath = 'none',
    recompute: bool = False,
    precision: Literal['float32', 'bfloat16', 'float16'] = 'float32',
    tf32: bool = False,
    stop_below: str = '',
    min_workers: int = 1,
    min_workers_wait_s: float = 600.0,
    worker_tries: int = 4,
    grant_timeout_s: float = 120.0,
    exchange_timeout_s: float = 30.0,
    listen_address: str = 'auto',
    staging_folder: StrPath | None = None,
    staging_size: int | str = '20GiB',
    listen_port: int = 0,
    check_pushes: bool = True,
    watch: int = 0,
    tls: Literal['auto', 'on', 'off', 'mac'] = 'auto',
    insecure_network: bool = False,
    spark_ui: bool = False,
    allowed_root: StrPath | Sequence[StrPath] = (),
    confined: bool = False,
    allow_python_layers: bool = False,
    python_layers: str | Sequence[str] = (),
    engine: Literal['auto', 'spark', 'process'] = 'auto',
    master: str = 'local[*]',
    name: str = '',
    tags: str = '',
    progress: bool = True,
) -> Run:
    """Train the solver's net with N workers that exchange parameters with a center.

    Ctrl-C and a notebook's interrupt take a snapshot and end the run; the same call goes on from the last snapshot.

    Args:
        solver: Caffe solver prototxt, e.g. nets/lenet_solver.prototxt.
        overrides: Solver fields in prototxt, in place of the file's fields, e.g. 'max_iter: 200 base_lr: 0.02'.
        dataset: Ingested dataset, in place of source and mean_file of the nets' data layers.
        run_dir: Folder of the run: snapshots, events, resolved net and solver.
        verify: How the dataset is compared with its manifests before workers start; digests reads every byte, sizes
            walks the pages alone, auto reads every byte up to 1 GiB.
        weights: Fine-tune: .caffemodel whose blobs are copied by layer name; of several (a,b) the later override.
        resume: Caffe .solverstate to go on from (not together with weights).
        parity: First run the recorded cases of Caffe for the layer types of the nets; RUN/parity.json keeps them.
        n_workers: Training processes, e.g. 4; 4..16: at least 4, more while there are slots; auto: the cores or
            GPUs of a single host, 1..64 on a cluster.
        strategy: Method of exchange between workers and center; auto: by the number of workers, and whether workers
            may differ.
        strategy_options: The strategy's own options, e.g. 'block_momentum: 0.5'; deepspark takes its parameter file
            ('period: 50 moving_rate: 0.1 ...') as it is.
        comm_period: tau, minibatches between exchanges; auto: the smallest tau with exchanges under 10 % of the
            time; '1@0 10@2000': 1, and from minibatch 2000 of the clock on 10.
        moving_rate: alpha of elastic averaging; default 0.45 with 2 workers, 0.3 with more (deepspark: 2.4 /
            n_workers with more than 8); '0.4@0 0.2@2000': by the clock.
        rate_scale: Multiplies base_lr; auto makes up for the progress per step (at most 4, but for easgd), warms
            up; with three workers of easgd and more, measured curvature bounds the rates in nets with convolutions.
        lock: none: fastest, overlapping pushes may lose a part; striped: every push survives; full: one exchange at
            a time. A strategy with a need for a stronger lock gets the stronger lock.
        transport: auto: shared memory for workers on the server's host, else sockets.
        overlap: Elastic strategies: compute the next period during the exchange of this period's parameters.
        n_servers: Server processes for workers by socket, each with a key range of the center; for large models.
        wire_dtype: Format of pushed numbers on a socket; the worker keeps the rounding error of 16 bits. bfloat16
            is faster.
        order: Order of samples; auto: file order for one worker (as Caffe), else shuffled.
        devices: Device of the net; auto: solver_mode's device (Caffe's default is GPU), but the CPU without a
            usable GPU; gpu: refuses to run without a GPU.
        share_gpus: Let several workers of a host use the same GPU if there are too few GPUs.
        threads_per_worker: TensorFlow threads of each worker on the CPU; auto: the worker's share of the available
            cores.
        gpus_per_worker: Devices of each worker; without a placement each device computes separate passes, as
            Caffe's -gpu 0,1.
        placement: Placement of the layers on a worker's devices; none: every device has all layers; auto:
            consecutive stages of about equal time; or a file of lines 'LAYERS: DEVICE'.
        recompute: Keep fewer activations: most layers are computed again for the backward pass. Less memory, up to
            a third more time, the same numbers.
        precision: Arithmetic of convolutions and inner products in training; sums, parameters, exchange and losses
            stay float32. float16 scales the loss.
        tf32: On GPUs, round the factors of convolutions and products to TensorFloat-32 (10 bits of mantissa).
        stop_below: End the training with a snapshot if the first test at or after a clock has a lower accuracy:
            ACCURACY@CLOCK, e.g. 0.3@500 0.6@1000.
        min_workers: The run fails if fewer workers have a slot of the cluster for min_workers_wait_s.
        min_workers_wait_s: Seconds of waiting for min_workers.
        worker_tries: Starts of a worker without an exchange in between, before the worker is given up; 1: no second
            start.
        grant_timeout_s: A worker silent for this long loses its grant.
        exchange_timeout_s: A worker waits this long for the server, then fails.
        listen_address: Address of the driver's host for the workers' connections; auto: 127.0.0.1 for a local
            master, else the host's address towards the master.
        staging_folder: Folder on each host's disk for copies of data from an object store or the driver's disk;
            default: deepspark-staging-UID in the system's folder for temporary files.
        staging_size: Most bytes of the copies on a host, e.g. 100GiB; the least recently used copies are removed.
        listen_port: First port of the driver's servers for workers: the servers of the exchange, then the server of
            the driver's files; 0: chosen by the system.
        check_pushes: Refuse a worker's push with numbers that are not finite (NaN, infinity), or a million times as
            long as any push before.
        watch: Minibatches between histograms of every blob and its update, and the workers' distances to the center
            by blob, on the page Training; 0: none.
        tls: Protection of the exchange by socket; auto: TLS 1.3 unless the server listens on this host alone; mac:
            in clear, but changed messages are refused; off: no protection, on a cluster's network only with
            insecure_network.
        insecure_network: Accept a cluster without encryption between driver and executors; even the exchange's
            secret is sent in clear.
        spark_ui: Serve Spark's UI while workers train, without a login; with a local master on 127.0.0.1 alone. The
            run's page and log have the address.
        allowed_root: Folder for the files of a net, a solver and lists, besides the folders of solver and data; can
            be given several times.
        confined: Refuse a named file outside of the allowed folders; off: a warning per folder.
        allow_python_layers: Import any module of a net's Python layers: the module's code runs with your rights.
        python_layers: Modules of Python layers that may be imported, with commas.
        engine: Runner of the workers: spark, process (processes of this host), or auto (in a DAG spark; else
            processes unless master or spark_ui is given).
        master: Spark master.
        name: Name in lists, charts and pages; default: net, strategy, workers and minibatches.
        tags: Words to find the run by, with commas between them, e.g. 'baseline, paper'.
        progress: Show how far the stage is: on a terminal, in a notebook, else as lines on stderr.
    """

def evaluate(
    run_dir: StrPath,
    *,
    dataset: StrPath | None = None,
    split: Literal['train', 'validation', 'test'] = 'test',
    weights: StrPath | None = None,
    output: StrPath | None = None,
    devices: Literal['auto', 'cpu', 'gpu'] = 'auto',
    batch_size: int | None = None,
    production: StrPath | None = None,
    production_samples: StrPath | None = None,
    worst: int = 24,
    saliency: int = 4,
    task: Literal['auto', 'classification', 'multi_label', 'regression', 'embedding', 'reconstruction', 'segmentation'] = 'auto',
    output_blob: str | None = None,
    target_blob: str | None = None,
    slices: str | None = None,
    scores: bool = False,
    engine: Literal['auto', 'spark', 'process'] = 'auto',
    master: str | None = None,
    task_samples: int = 20000,
    listen_address: str = 'auto',
    listen_port: int = 0,
    insecure_network: bool = False,
    progress: bool = True,
) -> Evaluation:
    """Score a run's last snapshot.

    Args:
        run_dir: Run whose last snapshot is scored.
        dataset: Ingested dataset; default: the run's dataset.
        split: Part of the dataset to score.
        weights: Score this .caffemodel with the run's net; default: the run's last snapshot.
        output: Folder for metrics.json and report.html; default RUN/evaluation.
        devices: Device of the net; auto: solver_mode's device (Caffe's default is GPU), but the CPU without a
            usable GPU; gpu: refuses to run without a GPU.
        batch_size: Samples of a forward pass; default: 100, or the net's own number where answers depend on it
            (Reshape, LSTM, BatchNorm without stored statistics).
        production: Folder with another net's evaluation on the same samples, to compare in the report.
        production_samples: samples.h5 of the other net's set at the promotion; the report counts new samples.
        worst: Most confident mistakes, or samples with the largest errors, in the report.
        saliency: Most confident mistakes of a classification with maps of the answer's pixels in the report.
        task: Task of the net: classification (one class a sample), multi_label (each class yes or no), regression
            (numbers), embedding (pairs), reconstruction (autoencoder) or segmentation (a class a pixel); auto:
            inferred from the net's losses and outputs.
        output_blob: Blob with the net's answers, or two blobs with a comma between for the sides of a pair;
            default: inferred from the net.
        target_blob: Blob with the expected answers: labels, or the values to reconstruct; default: inferred from
            the net.
        slices: Properties of samples, with commas; the report has figures for each value. Properties: class,
            folder, shard; for a dataset of a table also group and id, or the columns' names.
        scores: Write the scores of all classes of each sample into samples.parquet, too.
        engine: Place of the scoring: spark (tasks of Spark, for many samples; a DAG uses the Spark connection, a
            command uses master), process (a single process), or auto (a process unless master is given).
        master: Spark master of engine=spark; default local[*].
        task_samples: Most samples of a task of Spark.
        listen_address: Address of the driver's host for the workers' connections; auto: 127.0.0.1 for a local
            master, else the host's address towards the master.
        listen_port: First port of the driver's servers for workers: the servers of the exchange, then the server of
            the driver's files; 0: chosen by the system.
        insecure_network: Accept a cluster without encryption between driver and executors; even the exchange's
            secret is sent in clear.
        progress: Show how far the stage is: on a terminal, in a notebook, else as lines on stderr.
    """

def export(
    run_dir: StrPath,
    *,
    output: StrPath | None = None,
    weights: StrPath | None = None,
    check_samples: int = 32,
    class_names: StrPath | None = None,
    formats: str | Sequence[str] | None = None,
    task: Literal['auto', 'classification', 'multi_label', 'regression', 'embedding', 'reconstruction', 'segmentation'] = 'auto',
    output_blob: str | None = None,
    progress: bool = True,
) -> Bundle:
    """Write a run's bundle: SavedModel, Keras, ONNX, Caffe's files, labels and a manifest, checked.

    Args:
        run_dir: Run to export.
        output: Bundle folder; default RUN/bundle.
        weights: Export this .caffemodel instead of the run's last snapshot.
        check_samples: Number of real samples on which each exported model must agree with the net.
        class_names: Text file with a class name per line, class 0 first; default: the names in the dataset.
        formats: What the bundle holds: saved_model, caffe, keras, onnx, tflite, tflite_float16, tflite_int8, with
            commas between them; default, or all: all that the net can have of saved_model, caffe, keras, onnx,
            tflite. Evaluation and models in production need saved_model and caffe.
        task: Task of the net: classification (one class a sample), multi_label (each class yes or no), regression
            (numbers), embedding (pairs), reconstruction (autoencoder) or segmentation (a class a pixel); auto:
            inferred from the net's losses and outputs.
        output_blob: Blob with the net's answers, or two blobs with a comma between for the sides of a pair;
            default: inferred from the net.
        progress: Show how far the stage is: on a terminal, in a notebook, else as lines on stderr.
    """

def predict(
    bundle: StrPath,
    input: StrPath,
    output: StrPath,
    *,
    resize_height: int = 0,
    resize_width: int = 0,
    max_pixel: int | None = None,
    master: str | None = None,
    task_records: int = 5000,
    table_mode: Literal['error', 'append', 'overwrite'] = 'error',
    listen_address: str = 'auto',
    listen_port: int = 0,
    insecure_network: bool = False,
    input_format: Literal['auto', 'folder', 'list', 'dataset', 'parquet', 'csv', 'orc', 'avro', 'json_lines'] = 'auto',
    root_folder: StrPath | None = None,
    split: Literal['train', 'validation', 'test'] = 'test',
    image_column: str | None = None,
    feature_columns: str | None = None,
    input_columns: str | None = None,
    id_column: str | None = None,
    batch_size: int | None = None,
    devices: Literal['auto', 'cpu', 'gpu'] = 'auto',
    threads: int | None = None,
    staging_folder: StrPath | None = None,
    staging_size: int | str = '20GiB',
    strict: bool = False,
    top_k: int = 5,
    scores: bool = True,
    allowed_root: StrPath | Sequence[StrPath] = (),
    confined: bool = False,
    progress: bool = True,
) -> Predictions:
    """Write a bundle's classes and scores for images, a list, a dataset or a table to a Parquet file, a row each.

    Args:
        bundle: Bundle of a model, from deepspark export or convert; or a run with a bundle.
        input: One image, a folder of images, a list with one path a line, an ingested dataset, a table (Parquet or
            ORC file or folder, CSV, JSON lines, table:db.name of Spark's catalog), or any other source that
            deepspark ingest reads.
        output: Parquet file to write, one row per input; with a Spark master a folder of such files; or
            table:db.name, a table of Spark's catalog.
        resize_height: Height that images get; default: as the training images, which the bundle knows of its
            dataset.
        resize_width: Width, likewise.
        max_pixel: Largest pixel value of these images; scaled to 255; default: as of the training images, else 255.
        master: Spark master, to answer in tasks of Spark, for many inputs; default: in this process.
        task_records: Inputs of a Spark task at most.
        table_mode: Treatment of an existing output table.
        listen_address: Address of the driver's host for the workers' connections; auto: 127.0.0.1 for a local
            master, else the host's address towards the master.
        listen_port: First port of the driver's servers for workers: the servers of the exchange, then the server of
            the driver's files; 0: chosen by the system.
        insecure_network: Accept a cluster without encryption between driver and executors; even the exchange's
            secret is sent in clear.
        input_format: Format of the input; auto: recognised from the data.
        root_folder: Folder of the paths in a list or table; default: the folder of the list or table.
        split: Part of the dataset to score.
        image_column: Column of a table with images (bytes) or paths; default: a usual name.
        feature_columns: Columns of a table with the numbers of a sample, in this order: names, f*, first..last,
            !this; or one column of arrays; default: the columns of the training, else all columns of numbers.
        input_columns: For a bundle with several inputs: the column of a table for each input, INPUT=COLUMN with
            commas between; default: the columns with the names of the inputs.
        id_column: Column of a table with row names; default: the paths, else the rows' numbers from 0 on.
        batch_size: Samples of a forward pass; default: 100, or the net's own number where answers depend on it
            (Reshape, LSTM, BatchNorm without stored statistics).
        devices: Device of the net; auto: solver_mode's device (Caffe's default is GPU), but the CPU without a
            usable GPU; gpu: refuses to run without a GPU.
        threads: Threads; default: the number of cores.
        staging_folder: Folder on each host's disk for copies of data from an object store or the driver's disk;
            default: deepspark-staging-UID in the system's folder for temporary files.
        staging_size: Most bytes of the copies on a host, e.g. 100GiB; the least recently used copies are removed.
        strict: Refuse an unusable input; off: write a row with the reason.
        top_k: Most probable classes of a row.
        scores: Write the scores of all classes, too.
        allowed_root: Folder for the files of a net, a solver and lists, besides the folders of solver and data; can
            be given several times.
        confined: Refuse a named file outside of the allowed folders; off: a warning per folder.
        progress: Show how far the stage is: on a terminal, in a notebook, else as lines on stderr.
    """

def compare(
    solver: StrPath,
    *,
    run_dir: StrPath,
    overrides: str = '',
    dataset: StrPath | None = None,
    verify: Literal['auto', 'digests', 'sizes'] = 'auto',
    weights: StrPath | Sequence[StrPath] | None = None,
    resume: StrPath | None = None,
    parity: bool = False,
    n_workers: str | int = 2,
    strategy: str = 'easgd',
    strategy_options: str = '',
    comm_period: Literal['auto'] | int | str = 'auto',
    moving_rate: str | float | None = None,
    rate_scale: Literal['auto', 'none'] | float = 'auto',
    lock: Literal['none', 'striped', 'full'] = 'none',
    transport: Literal['auto', 'shm', 'socket'] = 'auto',
    overlap: bool = False,
    n_servers: int = 1,
    wire_dtype: Literal['float32', 'float16', 'bfloat16'] = 'float32',
    order: Literal['auto', 'file', 'shuffled'] = 'auto',
    devices: Literal['auto', 'cpu', 'gpu'] = 'auto',
    share_gpus: bool = False,
    threads_per_worker: Literal['auto'] | int = 'auto',
    gpus_per_worker: int = 1,
    placement: Literal['none', 'auto'] | StrPath = 'none',
    recompute: bool = False,
    precision: Literal['float32', 'bfloat16', 'float16'] = 'float32',
    tf32: bool = False,
    stop_below: str = '',
    min_workers: int = 1,
    min_workers_wait_s: float = 600.0,
    worker_tries: int = 4,
    grant_timeout_s: float = 120.0,
    exchange_timeout_s: float = 30.0,
    listen_address: str = 'auto',
    staging_folder: StrPath | None = None,
    staging_size: int | str = '20GiB',
    listen_port: int = 0,
    check_pushes: bool = True,
    watch: int = 0,
    tls: Literal['auto', 'on', 'off', 'mac'] = 'auto',
    insecure_network: bool = False,
    spark_ui: bool = False,
    allowed_root: StrPath | Sequence[StrPath] = (),
    confined: bool = False,
    allow_python_layers: bool = False,
    python_layers: str | Sequence[str] = (),
    engine: Literal['auto', 'spark', 'process'] = 'auto',
    master: str = 'local[*]',
    name: str = '',
    tags: str = '',
    strategies: str | Sequence[str] = (),
    workers: int | str | Sequence[int] = (),
    comm_periods: str | Sequence[str] = (),
    base_lrs: float | str | Sequence[float] = (),
    solver_fields: str | Sequence[str] = (),
    solvers: StrPath | Sequence[StrPath] = (),
    search: Literal['grid', 'random', 'optuna'] = 'grid',
    n_trials: int = 16,
    search_seed: int = 0,
    early_stop: Literal['none', 'halving'] = 'none',
    reduction_factor: int = 3,
    target_accuracy: float | None = None,
    progress: bool = True,
) -> Comparison:
    """Train in all combinations of the lists, one training after another, score each, and compare.

    Args:
        solver: Caffe solver prototxt, e.g. nets/lenet_solver.prototxt.
        overrides: Solver fields in prototxt, in place of the file's fields, e.g. 'max_iter: 200 base_lr: 0.02'.
        dataset: Ingested dataset, in place of source and mean_file of the nets' data layers.
        run_dir: Folder of the run: snapshots, events, resolved net and solver.
        verify: How the dataset is compared with its manifests before workers start; digests reads every byte, sizes
            walks the pages alone, auto reads every byte up to 1 GiB.
        weights: Fine-tune: .caffemodel whose blobs are copied by layer name; of several (a,b) the later override.
        resume: Caffe .solverstate to go on from (not together with weights).
        parity: First run the recorded cases of Caffe for the layer types of the nets; RUN/parity.json keeps them.
        n_workers: Training processes, e.g. 4; 4..16: at least 4, more while there are slots; auto: the cores or
            GPUs of a single host, 1..64 on a cluster.
        strategy: Method of exchange between workers and center; auto: by the number of workers, and whether workers
            may differ.
        strategy_options: The strategy's own options, e.g. 'block_momentum: 0.5'; deepspark takes its parameter file
            ('period: 50 moving_rate: 0.1 ...') as it is.
        comm_period: tau, minibatches between exchanges; auto: the smallest tau with exchanges under 10 % of the
            time; '1@0 10@2000': 1, and from minibatch 2000 of the clock on 10.
        moving_rate: alpha of elastic averaging; default 0.45 with 2 workers, 0.3 with more (deepspark: 2.4 /
            n_workers with more than 8); '0.4@0 0.2@2000': by the clock.
        rate_scale: Multiplies base_lr; auto makes up for the progress per step (at most 4, but for easgd), warms
            up; with three workers of easgd and more, measured curvature bounds the rates in nets with convolutions.
        lock: none: fastest, overlapping pushes may lose a part; striped: every push survives; full: one exchange at
            a time. A strategy with a need for a stronger lock gets the stronger lock.
        transport: auto: shared memory for workers on the server's host, else sockets.
        overlap: Elastic strategies: compute the next period during the exchange of this period's parameters.
        n_servers: Server processes for workers by socket, each with a key range of the center; for large models.
        wire_dtype: Format of pushed numbers on a socket; the worker keeps the rounding error of 16 bits. bfloat16
            is faster.
        order: Order of samples; auto: file order for one worker (as Caffe), else shuffled.
        devices: Device of the net; auto: solver_mode's device (Caffe's default is GPU), but the CPU without a
            usable GPU; gpu: refuses to run without a GPU.
        share_gpus: Let several workers of a host use the same GPU if there are too few GPUs.
        threads_per_worker: TensorFlow threads of each worker on the CPU; auto: the worker's share of the available
            cores.
        gpus_per_worker: Devices of each worker; without a placement each device computes separate passes, as
            Caffe's -gpu 0,1.
        placement: Placement of the layers on a worker's devices; none: every device has all layers; auto:
            consecutive stages of about equal time; or a file of lines 'LAYERS: DEVICE'.
        recompute: Keep fewer activations: most layers are computed again for the backward pass. Less memory, up to
            a third more time, the same numbers.
        precision: Arithmetic of convolutions and inner products in training; sums, parameters, exchange and losses
            stay float32. float16 scales the loss.
        tf32: On GPUs, round the factors of convolutions and products to TensorFloat-32 (10 bits of mantissa).
        stop_below: End the training with a snapshot if the first test at or after a clock has a lower accuracy:
            ACCURACY@CLOCK, e.g. 0.3@500 0.6@1000.
        min_workers: The run fails if fewer workers have a slot of the cluster for min_workers_wait_s.
        min_workers_wait_s: Seconds of waiting for min_workers.
        worker_tries: Starts of a worker without an exchange in between, before the worker is given up; 1: no second
            start.
        grant_timeout_s: A worker silent for this long loses its grant.
        exchange_timeout_s: A worker waits this long for the server, then fails.
        listen_address: Address of the driver's host for the workers' connections; auto: 127.0.0.1 for a local
            master, else the host's address towards the master.
        staging_folder: Folder on each host's disk for copies of data from an object store or the driver's disk;
            default: deepspark-staging-UID in the system's folder for temporary files.
        staging_size: Most bytes of the copies on a host, e.g. 100GiB; the least recently used copies are removed.
        listen_port: First port of the driver's servers for workers: the servers of the exchange, then the server of
            the driver's files; 0: chosen by the system.
        check_pushes: Refuse a worker's push with numbers that are not finite (NaN, infinity), or a million times as
            long as any push before.
        watch: Minibatches between histograms of every blob and its update, and the workers' distances to the center
            by blob, on the page Training; 0: none.
        tls: Protection of the exchange by socket; auto: TLS 1.3 unless the server listens on this host alone; mac:
            in clear, but changed messages are refused; off: no protection, on a cluster's network only with
            insecure_network.
        insecure_network: Accept a cluster without encryption between driver and executors; even the exchange's
            secret is sent in clear.
        spark_ui: Serve Spark's UI while workers train, without a login; with a local master on 127.0.0.1 alone. The
            run's page and log have the address.
        allowed_root: Folder for the files of a net, a solver and lists, besides the folders of solver and data; can
            be given several times.
        confined: Refuse a named file outside of the allowed folders; off: a warning per folder.
        allow_python_layers: Import any module of a net's Python layers: the module's code runs with your rights.
        python_layers: Modules of Python layers that may be imported, with commas.
        engine: Runner of the workers: spark, process (processes of this host), or auto (in a DAG spark; else
            processes unless master or spark_ui is given).
        master: Spark master.
        name: Name in lists, charts and pages; default: net, strategy, workers and minibatches.
        tags: Words to find the run by, with commas between them, e.g. 'baseline, paper'.
        strategies: Strategies, with commas; search=grid trains all combinations of the lists, at most 64. Empty:
            the training's single value.
        workers: With commas or in lines, e.g. 1, 2, 4. Empty: the training's single value.
        comm_periods: With commas or in lines, e.g. 1, 10, auto, 1@0 10@2000. Empty: the training's single value.
        base_lrs: base_lr of the solver, with commas or in lines, e.g. 0.1, 0.01; for a search by random or optuna
            also a range, e.g. 0.001..0.1. Empty: the solver's.
        solver_fields: A line per field of the solver: FIELD: VALUES, e.g. weight_decay: 0.0005, 0.005; for a search
            by random or optuna also a range, e.g. momentum: 0.8..0.95.
        solvers: With commas or in lines, e.g. nets/adam_solver.prototxt. Empty: the training's solver.
        search: grid: all combinations; random: n_trials random combinations; optuna: n_trials combinations, each
            chosen by the accuracies of the trials before (package optuna).
        n_trials: Most trials of a search by random or optuna.
        search_seed: Seed of random and optuna.
        early_stop: halving: a trial stops at 1/9 and 1/3 of its minibatches unless its test accuracy is among the
            best third of the trials so far at the same clock. A stopped trial has a snapshot.
        reduction_factor: eta of the early stop: the best 1/eta goes on at 1/eta^2 and 1/eta of the minibatches.
        target_accuracy: The table shows the time until a test net reached this share, e.g. 0.95; default: the
            lowest last accuracy of all trials.
        progress: Show how far the stage is: on a terminal, in a notebook, else as lines on stderr.
    """

def simulate(
    solver: StrPath,
    *,
    overrides: str = '',
    dataset: StrPath | None = None,
    weights: StrPath | Sequence[StrPath] | None = None,
    strategy_options: str = '',
    comm_period: Literal['auto'] | int | str = 'auto',
    moving_rate: str | float | None = None,
    rate_scale: Literal['auto', 'none'] | float = 'auto',
    overlap: bool = False,
    network: str = '10gbit,50us',
    workers_per_host: int = 1,
    stragglers: float = 0.0,
    straggler_factor: float = 3.0,
    speed_spread: float = 0.0,
    step_jitter: float = 0.05,
    deaths: int = 0,
    restart_s: float = 10.0,
    allowed_root: StrPath | Sequence[StrPath] = (),
    confined: bool = False,
    allow_python_layers: bool = False,
    python_layers: str | Sequence[str] = (),
    workers: str = '1,2,4,8',
    strategy: str = 'easgd',
    seeds: str = '',
    step_ms: float | None = None,
    target: float | None = None,
    out: StrPath = 'simulation',
    processes: Literal['auto'] | int = 'auto',
    progress: bool = True,
) -> Simulation:
    """Train with many virtual workers, for real, on this host's cores: accuracy against a cluster's virtual time.

    Args:
        solver: Caffe solver prototxt, e.g. nets/lenet_solver.prototxt.
        overrides: Solver fields in prototxt, in place of the file's fields, e.g. 'max_iter: 200 base_lr: 0.02'.
        dataset: Ingested dataset, in place of source and mean_file of the nets' data layers.
        weights: Fine-tune: .caffemodel whose blobs are copied by layer name; of several (a,b) the later override.
        strategy_options: The strategy's own options, e.g. 'block_momentum: 0.5'.
        comm_period: tau, minibatches between exchanges; auto: chosen by the virtual times as training does.
        moving_rate: alpha of elastic averaging; default: the strategy's.
        rate_scale: Multiplies base_lr, as in training.
        overlap: Elastic strategies: compute the next period during the exchange of this period's parameters.
        network: Link of each host, in each direction, and latency from host to host, one way.
        workers_per_host: Workers of a host that share a center, with strategy_options 'center: tree'.
        stragglers: Share of the workers that are slow for good.
        straggler_factor: How many times longer a minibatch takes them.
        speed_spread: Standard deviation of the workers' speeds, relative to their mean.
        step_jitter: Standard deviation of a worker's minibatch times, relative to their mean.
        deaths: Workers that are killed in a run, at random; each comes back.
        restart_s: Virtual seconds until a killed worker is there again.
        allowed_root: Folder for the files of a net, a solver and lists, besides the folders of solver and data; can
            be given several times.
        confined: Refuse a named file outside of the allowed folders; off: a warning per folder.
        allow_python_layers: Import any module of a net's Python layers: the module's code runs with your rights.
        python_layers: Modules of Python layers that may be imported, with commas.
        workers: Numbers of workers, with commas.
        strategy: Strategies, with commas.
        seeds: Random seeds, with commas: a run each; default: the solver's own.
        step_ms: Virtual milliseconds of one minibatch; default: estimated by its operations.
        target: Value whose time is told; default: one point below what one worker ends at, else the best.
        out: Folder of results; runs that it has are not made again.
        processes: Runs side by side, a core each; auto: as many as there are cores.
        progress: Show how far the stage is: on a terminal, in a notebook, else as lines on stderr.
    """

def convert(
    net: StrPath,
    weights: StrPath,
    output: StrPath,
    *,
    class_names: StrPath | None = None,
    mean: StrPath | None = None,
    mean_values: str = '',
    scale: float | None = None,
    dataset: StrPath | None = None,
    check_samples: int = 32,
    formats: str | Sequence[str] | None = None,
    task: Literal['auto', 'classification', 'multi_label', 'regression', 'embedding', 'reconstruction', 'segmentation'] = 'auto',
    output_blob: str | None = None,
    allowed_root: StrPath | Sequence[StrPath] = (),
    confined: bool = False,
    allow_python_layers: bool = False,
    python_layers: str | Sequence[str] = (),
    progress: bool = True,
) -> Bundle:
    """Make a checked bundle of a Caffe net and weights that were trained elsewhere.

    Args:
        net: Caffe net prototxt: a deploy net, or a training net with its data layers.
        weights: The net's .caffemodel or .caffemodel.h5.
        output: Bundle folder to write.
        class_names: Text file with a class name per line, class 0 first; default: the names in the dataset.
        mean: Mean image (.binaryproto) to subtract; default: from the net's data layer.
        mean_values: Values to subtract in place of a mean image: a single value, or a value a channel in the order
            blue, green, red, e.g. '104, 117, 123'.
        scale: Factor of the pixels 0 to 255 after the subtraction of the mean, e.g. 0.00390625; default: from the
            net's data layer, 1 for a deploy net.
        dataset: Ingested dataset with test samples for the check and class names for the bundle; default: the net's
            own sources, for a deploy net random pixels.
        check_samples: Number of samples for comparing the exported model with the net.
        formats: What the bundle holds: saved_model, caffe, keras, onnx, tflite, tflite_float16, tflite_int8, with
            commas between them; default, or all: all that the net can have of saved_model, caffe, keras, onnx,
            tflite. Evaluation and models in production need saved_model and caffe.
        task: Task of the net: classification (one class a sample), multi_label (each class yes or no), regression
            (numbers), embedding (pairs), reconstruction (autoencoder) or segmentation (a class a pixel); auto:
            inferred from the net's losses and outputs.
        output_blob: Blob with the net's answers, or two blobs with a comma between for the sides of a pair;
            default: inferred from the net.
        allowed_root: Folder for the files of a net, a solver and lists, besides the folders of solver and data; can
            be given several times.
        confined: Refuse a named file outside of the allowed folders; off: a warning per folder.
        allow_python_layers: Import any module of a net's Python layers: the module's code runs with your rights.
        python_layers: Modules of Python layers that may be imported, with commas.
        progress: Show how far the stage is: on a terminal, in a notebook, else as lines on stderr.
    """

def pack(
    output: StrPath,
    *,
    extras: str = 'train',
    packages: str | None = None,
    progress: bool = True,
) -> WorkerArchive:
    """Write an archive with the environment of a Spark worker; ``settings()`` are the properties of a job with it.

    Args:
        output: Archive to write: a name that ends with .tar.gz or .tgz.
        extras: Extras of deepspark in the archive, commas between them: train; gpu for CUDA's libraries; tables for
            datasets in object stores, and for ingestion of tables.
        packages: Further installed packages in the archive, with the packages that they require, commas between
            them; for example a package with layers of your own.
        progress: Show how far the stage is: on a terminal, in a notebook, else as lines on stderr.
    """
