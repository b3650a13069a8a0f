"""Pages about one thing in the audit log: a row, a CI run, a package."""
