"""How bytes travel over one connection: as they are, with a keyed tag, or by TLS; and who may open one.

``base`` says what a channel does and has the plain one, ``mac`` and ``tls`` the others, ``handshake`` opens them.
"""
