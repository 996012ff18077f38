"""Access to the pages: rights, the guard of forms, the audit log."""
