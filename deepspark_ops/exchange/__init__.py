"""Workers and center: strategies, grants, wire format, server, clients. Never TensorFlow."""
