from deepspark_ops.serve.metrics import Histogram, ServerMetrics


def test_a_histogram_counts_up_to_its_bounds():
    histogram = Histogram((1, 2.5))
    for value in (0.5, 1, 2, 2.5, 9):
        histogram.add(value)
    assert list(histogram.lines("x")) == [
        'x_bucket{le="1"} 2',
        'x_bucket{le="2.5"} 4',
        'x_bucket{le="+Inf"} 5',
        "x_sum 15",
        "x_count 5",
    ]


def test_the_text_has_requests_errors_and_samples():
    metrics = ServerMetrics('a"\n\\b', "sha256:0")
    metrics.began()
    metrics.answered("/v1/predict", 200, 0.004, is_prediction=True)
    metrics.answered("/v1/predict", 422, 0.001, is_prediction=True)
    metrics.answered("/health", 200, 7.0, is_prediction=False)
    metrics.computed(3, 0.02)
    metrics.computed(32, 0.2)
    lines = metrics.text().splitlines()
    for line in [
        'deepspark_model_info{net="a\\"\\n\\\\b",digest="sha256:0"} 1',
        'deepspark_requests_total{path="/v1/predict",code="422"} 1',
        'deepspark_errors_total{path="/v1/predict"} 1',
        'deepspark_errors_total{path="/health"} 0',
        "deepspark_requests_in_progress 1",
        'deepspark_request_seconds_bucket{le="0.001"} 1',
        "deepspark_request_seconds_count 2",
        "deepspark_samples_total 35",
        'deepspark_graph_call_samples_bucket{le="4"} 1',
        "deepspark_graph_call_seconds_sum 0.22",
    ]:
        assert line in lines
    metrics.ended()
    assert "deepspark_requests_in_progress 0" in metrics.text()
    kinds = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(kinds) == len(set(kinds))
