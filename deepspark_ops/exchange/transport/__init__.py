"""How vectors and calls travel between a worker and the center: one ``exchange`` over shared memory and sockets.

Frames, handshake and connections serve both sides; the server's side of a connection is in ``server/``.
"""
