"""Raw files to shards. One file per source format; Spark only in ``spark_job``."""
