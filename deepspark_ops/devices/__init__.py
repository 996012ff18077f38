"""Which devices and cores a worker gets, from Spark or from the driver."""
