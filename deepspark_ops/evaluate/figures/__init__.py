"""What kinds of figures can be counted over samples: sums with ``add``, ``merge``, ``result``, and their charts."""
