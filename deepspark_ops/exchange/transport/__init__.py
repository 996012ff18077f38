"""The transport of vectors and calls between worker and center: one ``exchange`` for shared memory and sockets.

Frames, handshake and connections serve both sides; ``server/`` has the server's side of a connection.
"""
