#!/usr/bin/env bash
# A service of compose.yaml: container.sh settings|master|worker|airflow, with its files below DATA. Kubernetes starts
# Spark's executors as container.sh executor.
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
  executor)
    # Spark's driver says the rest by variables, as to Spark's own image.
    mapfile -t options < <(env | grep '^SPARK_JAVA_OPT_' | sort -t_ -k4 -n | cut -d= -f2-)
    spark=$(python -c 'import os, pyspark; print(os.path.dirname(pyspark.__file__))')
    exec java "${options[@]}" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
      -cp "${SPARK_CLASSPATH:+$SPARK_CLASSPATH:}$spark/jars/*" \
      org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
      --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
      --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \
      --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
  *) echo "container: found \"${1:-}\"; give settings, master, worker, airflow or executor" >&2; exit 2 ;;
esac
