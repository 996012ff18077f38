"""What a net is for, and what follows from it: a file per task, and how one is chosen."""
