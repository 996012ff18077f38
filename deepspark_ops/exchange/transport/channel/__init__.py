"""The bytes of a connection: plain, with a keyed tag, or by TLS; and the handshake that opens a connection.

``base`` has the interface and the plain channel, ``mac`` and ``tls`` the other channels, ``handshake`` opens channels.
"""
