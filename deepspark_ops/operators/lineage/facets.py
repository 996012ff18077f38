"""A stage's lineage in the classes of OpenLineage, for Airflow's provider of OpenLineage."""

from __future__ import annotations

from typing import Any

from caffe_import.extras import require
from deepspark_ops.operators.lineage.stage_lineage import LineageDataset, StageLineage


def operator_lineage(lineage: StageLineage) -> Any:
    """Return the provider's ``OperatorLineage``; the provider calls this, so that its packages are there."""
    require("openlineage", "airflow.providers.openlineage", part=__name__)
    from airflow.providers.openlineage.extractors import OperatorLineage

    return OperatorLineage(
        inputs=[_input(dataset) for dataset in lineage.inputs],
        outputs=[_output(dataset) for dataset in lineage.outputs],
    )


def _input(dataset: LineageDataset) -> Any:
    from openlineage.client.event_v2 import InputDataset
    from openlineage.client.generated.data_quality_metrics_input_dataset import (
        ColumnMetrics,
        DataQualityMetricsInputDatasetFacet,
    )

    facets = {}
    if dataset.n_rows is not None:
        # OpenLineage has no facet for a model's figures: each is a column whose least and greatest value it is.
        figures = {
            name: ColumnMetrics(count=dataset.n_rows, min=value, max=value) for name, value in dataset.figures.items()
        }
        facets["dataQualityMetrics"] = DataQualityMetricsInputDatasetFacet(
            columnMetrics=figures, rowCount=dataset.n_rows, bytes=dataset.n_bytes
        )
    return InputDataset(dataset.namespace, dataset.name, facets=_facets(dataset), inputFacets=facets)


def _output(dataset: LineageDataset) -> Any:
    from openlineage.client.event_v2 import OutputDataset
    from openlineage.client.generated.output_statistics_output_dataset import OutputStatisticsOutputDatasetFacet

    facets = {}
    if dataset.n_rows is not None:
        facets["outputStatistics"] = OutputStatisticsOutputDatasetFacet(rowCount=dataset.n_rows, size=dataset.n_bytes)
    return OutputDataset(dataset.namespace, dataset.name, facets=_facets(dataset), outputFacets=facets)


def _facets(dataset: LineageDataset) -> dict[str, Any]:
    from openlineage.client.generated.dataset_version_dataset import DatasetVersionDatasetFacet
    from openlineage.client.generated.schema_dataset import SchemaDatasetFacet, SchemaDatasetFacetFields

    facets: dict[str, Any] = {}
    if dataset.digest:
        facets["version"] = DatasetVersionDatasetFacet(datasetVersion=dataset.digest)
    if dataset.columns:
        fields = [SchemaDatasetFacetFields(name=name, type=kind) for name, kind in dataset.columns]
        facets["schema"] = SchemaDatasetFacet(fields=fields)
    return facets
