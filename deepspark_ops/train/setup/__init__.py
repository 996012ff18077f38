"""From a config to a prepared run folder: nets, data, strategy."""
