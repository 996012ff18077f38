"""One worker loop, and the Spark job that runs N of them."""
