"""The driver's files for workers whose hosts do not see the driver's folders, and workers' files for the run's folder.

``file_calls`` has the messages. ``file_server`` and ``uploads`` are the driver's side, ``driver_store`` is the worker's
side as a store. ``on_host`` decides what a worker reads from the driver, and ``sent_files`` sends a worker's files.
"""
