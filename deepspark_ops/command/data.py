"""``deepspark data``: show, verify, sample and compare datasets."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from deepspark_ops.command.reporting import print_text, print_view, reported_errors, write_json
from deepspark_ops.errors import ConfigError
from deepspark_ops.sizes import share_text, size_text
from deepspark_ops.stores.store_path import DataPath, data_path

data = typer.Typer(help="Datasets: show, verify, sample, compare and prune.", no_args_is_help=True)

_Dataset = Annotated[
    Path,
    typer.Argument(
        metavar="DATASET", help="OUTPUT of an ingestion, also in a store", show_default=False, parser=data_path
    ),
]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON")]
_SHOWN_CLASSES = 40
_SHOWN_NAMES = 10


@data.command("show")
@reported_errors()
def show(dataset: _Dataset, *, as_json: _Json = False) -> None:
    """Show splits, classes, shapes, sizes, warnings, digests, options, and the earlier versions."""
    from deepspark_ops.ingest.inspect.facts import dataset_facts

    facts = dataset_facts(dataset)
    if as_json:
        write_json(facts)
    else:
        print_view(_facts_view(facts))


@data.command("verify")
@reported_errors()
def verify(dataset: _Dataset) -> None:
    """Compute every digest anew and read every record; exit code 2 names what is damaged."""
    from deepspark_ops.ingest.inspect.whole import verify_dataset

    verify_dataset(dataset, print_text)


@data.command("sample")
@reported_errors()
def sample(
    dataset: _Dataset,
    output: Annotated[
        Path, typer.Option("--output", metavar="FILE", help="Page or picture to write: .html or .png", parser=data_path)
    ],
    split: Annotated[str, typer.Option("--split", help="train, validation or test")] = "train",
    samples: Annotated[int, typer.Option("--samples", min=1, max=100, help="Of each class")] = 8,
    pixels: Annotated[int, typer.Option("--pixels", min=8, max=512, help="Longest side of a sample")] = 64,
) -> None:
    """Write the first samples of each class as a page or a picture."""
    from deepspark_ops.ingest.inspect.sample_sheet import write_sample_sheet

    n_classes = write_sample_sheet(dataset, split, output, samples=samples, pixels=pixels)
    print_text(f"{n_classes:,} classes of {split}: samples={output}")


@data.command("diff")
@reported_errors()
def diff(
    dataset: _Dataset,
    other: Annotated[
        Path | None,
        typer.Argument(
            metavar="OTHER",
            help="Dataset to compare with; default: the version before",
            show_default=False,
            parser=data_path,
        ),
    ] = None,
    *,
    as_json: _Json = False,
) -> None:
    """Show the differences of OTHER from DATASET: samples added, removed, changed, relabelled, moved; classes; options.

    With one dataset, show the changes since its last version.
    """
    from deepspark_ops.ingest.inspect.differences import compare_datasets

    old_dataset, new_dataset = (_previous_version(dataset), dataset) if other is None else (dataset, other)
    differences = compare_datasets(old_dataset, new_dataset).as_json()
    if as_json:
        write_json(differences)
    else:
        print_text("\n".join(_difference_lines(differences)))


@data.command("prune")
@reported_errors()
def prune(
    dataset: _Dataset,
    keep: Annotated[int, typer.Option("--keep", min=0, help="Newest earlier versions that stay")] = 1,
    home: Annotated[
        Path | None,
        typer.Option("--home", help="Folder of runs/ and models/; default: the one whose datasets/ DATASET is in"),
    ] = None,
    models: Annotated[
        list[Path] | None,
        typer.Option("--models", help="Another folder of models in production, whose datasets stay; several times"),
    ] = None,
    *,
    remove: Annotated[bool, typer.Option("--remove", help="Really remove them; without it nothing is touched")] = False,
    as_json: _Json = False,
) -> None:
    """List the earlier versions that are no longer needed, or remove them; the newest version is always kept."""
    from deepspark_ops.retention.dataset_versions import prune_versions

    def say(line: str) -> None:
        if not as_json:
            print_text(line)

    report = prune_versions(dataset, keep=keep, remove=remove, home=home, on_step=say, models=models or ())
    if as_json:
        write_json(report.model_dump(mode="json"))
    else:
        print_text("\n".join(report.lines()))


def print_dry_run(report: Mapping[str, Any]) -> None:
    """Print the report of a dry run."""
    print_view(_dry_run_view(report))


def _dry_run_view(report: Mapping[str, Any]) -> RenderableType:
    from deepspark_ops.ingest.findings import summary

    sampled, estimate = report["sampled"], report["estimate"]
    shape = "x".join(str(extent) for extent in report["sample_shape"])
    title = Text.assemble((report["source"], "bold"), f" ({report['format']}): samples of {shape}; nothing was written")
    n_classes = len(next(iter(report["splits"].values()))["label_histogram"])
    splits = {name: {**split, "n_classes": n_classes} for name, split in report["splits"].items()}
    parts: list[RenderableType] = [title]
    if n_classes:
        parts.append(_classes_table({**report, "splits": splits}))
    else:
        parts += [Text(f"{name}: {split['n_samples']:,} samples, labels are values") for name, split in splits.items()]
    parts += [
        Text(f"{split}: records {why.replace('_', ' ')} {count:,}")
        for split, counts in report["chosen"].items()
        for why, count in counts.items()
    ]
    if report["rejected"]["n_records"]:
        first = "; ".join(report["rejected"]["first"])
        parts.append(
            Text(f"{report['rejected']['n_records']:,} entries are no usable records: {first}", style="yellow")
        )
    if report["warnings"]:
        parts.append(Text(summary(report["warnings"]), style="yellow"))
    sampled_text = f"of {sampled['n_records']:,} records that were read: {sampled['n_rejected']:,} cannot be used"
    if sampled["sizes"]:
        extents = " and ".join(
            f"{name} {low} to {high}, mostly {mid}" for name, (low, mid, high) in sampled["sizes"].items()
        )
        sampled_text += f"; {extents}"
    parts.append(Text(sampled_text))
    parts += [Text(f"  {line}", style="yellow") for line in sampled["first_rejected"]]
    if sampled["warnings"]:
        parts.append(Text(f"among them: {summary(sampled['warnings'])}", style="yellow"))
    if report["would_fail"]:
        parts.append(
            Text("the ingestion would fail: more records are bad than max_rejected_fraction allows", style="red")
        )
    size = size_text(estimate["n_bytes"])
    seconds = f"{estimate['seconds']:,.1f} s on {estimate['cores']} cores"
    parts.append(Text(f"about {size}, and {seconds}, without Spark's start if Spark is needed"))
    return Group(*parts)


def _previous_version(dataset: Path) -> DataPath:
    from deepspark_ops.ingest.inspect.facts import read_splits
    from deepspark_ops.run_paths import DatasetPaths

    previous = read_splits(dataset)["train"].previous
    version_folder = None if previous is None else DatasetPaths(dataset).version(previous)
    if version_folder is None or not version_folder.is_dir():
        reason = "it has none" if previous is None else f"{previous} is not kept there"
        msg = f"{dataset}: no version before to compare with: {reason}; give the other dataset, too"
        raise ConfigError(msg)
    return version_folder


def _facts_view(facts: Mapping[str, Any]) -> RenderableType:
    title = Text.assemble((facts["dataset"], "bold"), f"\n  version {facts['version']}, {facts['digest']}")
    if facts["previous"]:
        title.append(f"\n  brought up from {facts['previous']}", style="dim")
    parts: list[RenderableType] = [title, _splits_table(facts["splits"]), *_split_notes(facts["splits"])]
    if any(split["n_classes"] for split in facts["splits"].values()):
        parts.append(_classes_table(facts))
    options = ", ".join(f"{name}={value}" for name, value in facts["options"].items() if value not in (None, False))
    parts.append(Text(f"options: {options or 'not known'}", style="dim"))
    for version in facts["versions"]:
        counts = ", ".join(f"{split} {count:,}" for split, count in version["n_samples"].items())
        parts.append(Text(f"version {version['version']}: {counts}; {version['path']}"))
    return Group(*parts)


def _splits_table(splits: Mapping[str, Any]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("split")
    for name in ("samples", "classes", "shape", "shards", "bytes", "rejected", "do not count"):
        table.add_column(name, justify="right")
    table.add_column("digest")
    for name, split in splits.items():
        table.add_row(
            name,
            f"{split['n_samples']:,}",
            f"{split['n_classes']:,}",
            "x".join(str(extent) for extent in split["sample_shape"]),
            f"{len(split['shards']):,} {split['shard_format']}{', encoded' if split['encoded'] else ''}",
            f"{split['n_bytes']:,}",
            f"{split['n_rejected']:,}",
            f"{split['n_excluded']:,}",
            split["digest"][:19],
        )
    return table


def _split_notes(splits: Mapping[str, Any]) -> list[Text]:
    from deepspark_ops.ingest.findings import summary

    notes = []
    for name, split in splits.items():
        source = split["source"]
        rule = f", told apart by {split['split_rule']}" if split["split_rule"] else ""
        notes.append(Text(f"{name}: from {source['path']} ({source['format']}){rule}", style="dim"))
        if split["chosen"]:
            counts_text = ", ".join(
                f"{reason.replace('_', ' ')} {count:,}" for reason, count in split["chosen"].items()
            )
            notes.append(Text(f"{name}: records {counts_text}"))
        if split["warnings"]:
            notes.append(Text(f"{name}: {summary(split['warnings'])}", style="yellow"))
    return notes


def _classes_table(facts: Mapping[str, Any]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("class")
    splits = facts["splits"]
    for split in splits:
        table.add_column(split, justify="right")
        table.add_column("share", justify="right", style="dim")
    n_classes = max(split["n_classes"] for split in splits.values())
    names = facts["class_names"] or [str(label) for label in range(n_classes)]
    for label, name in enumerate(names[:_SHOWN_CLASSES]):
        row = [name]
        for split in splits.values():
            counts = split["label_histogram"]
            count = counts[label] if label < len(counts) else 0
            row += [f"{count:,}", share_text(count / max(1, sum(counts)))]
        table.add_row(*row)
    if n_classes > _SHOWN_CLASSES:
        table.caption = f"and {n_classes - _SHOWN_CLASSES:,} more: see --json"
    return table


def _difference_lines(differences: Mapping[str, Any]) -> list[str]:
    lines = [f"{key}: {differences[key]['dataset']} {differences[key]['digest'][:19]}" for key in ("before", "after")]
    if differences["is_equal"]:
        lines.append("the same samples")
    if differences["added"] is None:
        lines.append("samples cannot be compared one by one: one dataset notes nothing of its records")
    else:
        for word in ("added", "removed", "changed"):
            for split, names in differences[word].items():
                lines.append(f"{word} in {split}: {len(names):,}: {_shortened(names)}")
    for split, samples in differences["relabelled"].items():
        changes = [f"{sample['name']} ({sample['before']} -> {sample['after']})" for sample in samples]
        lines.append(f"other class in {split}: {len(changes):,}: {_shortened(changes)}")
    if differences["moved"]:
        changes = [f"{sample['name']} ({sample['before']} -> {sample['after']})" for sample in differences["moved"]]
        lines.append(f"other split: {len(changes):,}: {_shortened(changes)}")
    for split, classes in differences["classes"].items():
        changes = [f"{name}: {pair['before']:,} -> {pair['after']:,}" for name, pair in classes.items()]
        lines.append(f"classes of {split}: {_shortened(changes)}")
    for name, pair in differences["options"].items():
        lines.append(f"option {name}: {pair['before']} -> {pair['after']}")
    return lines


def _shortened(texts: list[str]) -> str:
    more = f", and {len(texts) - _SHOWN_NAMES:,} more" if len(texts) > _SHOWN_NAMES else ""
    return ", ".join(texts[:_SHOWN_NAMES]) + more
