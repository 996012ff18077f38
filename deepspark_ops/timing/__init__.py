"""How long a net's layers take on this machine."""
