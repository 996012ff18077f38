"""Which samples feed which data layer, and the batches made of them."""
