"""Access to files of a user: regular files below allowed folders are opened, and files are written whole."""
