"""How vectors and calls travel: frames, connections, sockets, shared memory."""
