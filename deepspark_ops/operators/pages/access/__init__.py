"""Who may see and change what: rights, the guard of forms, the audit log, the headers of answers."""
