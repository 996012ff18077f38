"""What kinds of figures can be counted over samples: each a sum with ``add``, ``merge`` and ``result``, plain numpy."""
