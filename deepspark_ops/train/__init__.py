"""Training: the worker's loop, and the driver that runs N workers on Spark around an exchange."""
