"""The strategies, one file each; ``base`` is the interface they share, ``options`` reads their options as text.

Pure functions on chunks of vectors: nothing here knows of workers' processes, locks or transports.
"""
