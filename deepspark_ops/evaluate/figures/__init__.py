"""Figures over samples: sums with ``add``, ``merge``, ``result``, and charts of the figures."""
