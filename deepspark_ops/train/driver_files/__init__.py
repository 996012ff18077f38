"""The driver's files for workers whose hosts do not see the driver's folders, and workers' files for the run's folder.

``file_calls`` has the messages, ``file_server`` and ``uploads`` the driver's side, ``driver_store`` the worker's side
as a store, ``on_host`` decides what a worker reads from the driver, ``sent_files`` sends a worker's files.
"""
