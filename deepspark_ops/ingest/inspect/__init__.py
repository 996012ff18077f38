"""Looking at datasets that are there: what is in one, whether it is whole, how two differ."""
