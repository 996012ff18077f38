"""Training: one worker loop, and the driver that runs N of them on Spark around an exchange."""
