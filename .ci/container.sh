#!/usr/bin/env bash
# A service of compose.yaml: container.sh settings|master|worker|airflow, with its files below DATA.
set -euo pipefail
DATA=${DATA:-/data}
export SPARK_CONF_DIR=$DATA/spark-conf SPARK_LOG_DIR=$DATA/spark-logs SPARK_WORKER_DIR=/tmp/spark-work

# Once for each volume: driver and executors authenticate and encrypt by a secret of their own (docs/guides/cluster.md).
write_settings() {
  mkdir -p "$SPARK_CONF_DIR"
  local file=$SPARK_CONF_DIR/spark-defaults.conf
  if [ -s "$file" ]; then return; fi
  (umask 077 && cat >"$file.new") <<END
spark.authenticate true
spark.authenticate.secret $(openssl rand -hex 32)
spark.network.crypto.enabled true
spark.network.crypto.cipher AES/GCM/NoPadding
spark.network.crypto.authEngineVersion 2
END
  mv "$file.new" "$file"
}

case ${1:-} in
  settings) write_settings ;;
  master) exec spark-class org.apache.spark.deploy.master.Master --host "${SPARK_HOST:-$(hostname)}" --port "${SPARK_PORT:-7077}" --webui-port "${SPARK_UI_PORT:-8081}" ;;
  worker) exec spark-class org.apache.spark.deploy.worker.Worker --cores "${SPARK_CORES:-2}" --memory "${SPARK_MEMORY:-4g}" --webui-port "${SPARK_UI_PORT:-8082}" "$SPARK_MASTER" ;;
  airflow)
    export AIRFLOW_HOME=$DATA/airflow DEEPSPARK_HOME=$DATA DEEPSPARK_ROOT=$DATA
    export AIRFLOW__CORE__DAGS_FOLDER=$DATA/dags AIRFLOW__CORE__LOAD_EXAMPLES=False
    # A connection's host without a scheme is Spark's own; a local master where no cluster is named.
    if [ -n "${SPARK_MASTER:-}" ]; then export AIRFLOW_CONN_SPARK_DEFAULT="{\"conn_type\": \"spark\", \"host\": \"${SPARK_MASTER%:*}\", \"port\": ${SPARK_MASTER##*:}}"; fi
    mkdir -p "$AIRFLOW__CORE__DAGS_FOLDER"
    deepspark dags install "$AIRFLOW__CORE__DAGS_FOLDER"
    exec airflow standalone
    ;;
  *) echo "container: found \"${1:-}\"; give settings, master, worker or airflow" >&2; exit 2 ;;
esac
