"""The driver's files for tasks whose hosts do not see the driver's folders, and files of tasks for the driver.

``file_calls`` has the messages. ``file_server`` and ``uploads`` are the driver's side, ``driver_store`` is the task's
side as a store. ``task_files`` has all of it for the stages after training; a worker's side is ``train/host_files``.
"""
