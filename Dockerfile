# One image for every service of compose.yaml: Airflow with the DAGs, Spark's master, Spark's worker.
FROM python:3.12-slim-bookworm

# Spark needs Java 17 or newer, and ps.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless procps openssl \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/deepspark
COPY requirements.txt ./
RUN pip install --no-cache-dir --require-hashes --requirement requirements.txt

COPY pyproject.toml README.md LICENSE NOTICE ./
COPY caffe_import ./caffe_import
COPY deepspark_ops ./deepspark_ops
COPY examples ./examples
COPY tests/fixtures/caffe ./tests/fixtures/caffe
RUN pip install --no-cache-dir --no-deps .

COPY .ci/container.sh /usr/local/bin/deepspark-service
RUN useradd --uid 50000 --create-home deepspark && install --directory --owner deepspark /data
USER deepspark
ENV DATA=/data
VOLUME /data
ENTRYPOINT ["deepspark-service"]
CMD ["airflow"]
