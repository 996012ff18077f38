"""The ``deepspark`` command: options made from the config models, and what a terminal shows."""
