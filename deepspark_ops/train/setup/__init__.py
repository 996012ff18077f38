"""From a config to a prepared run folder: nets, data, strategy, and what is checked before anything starts."""
