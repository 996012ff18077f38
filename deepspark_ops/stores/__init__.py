"""Object stores and Hadoop's file systems: paths in them, reading, writing, and copies on the local disk."""
