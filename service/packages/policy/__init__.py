"""Which releases an organisation's builds may install, and why."""
