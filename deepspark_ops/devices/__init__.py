"""Devices and cores of a worker, assigned by Spark or by the driver."""
