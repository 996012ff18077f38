"""Figures over samples: sums with ``add``, ``merge``, ``result``, and their charts."""
