"""The strategies, one file each; ``base`` has their interface, ``options`` reads options from text.

Pure functions on chunks of vectors, without workers' processes, locks or transports.
"""
