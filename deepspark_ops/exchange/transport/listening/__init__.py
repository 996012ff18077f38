"""A server's side of new connections: the run's certificate, the accept loop, and the proof of the secret.

The exchange's servers and the driver's file server accept connections by this package.
"""
