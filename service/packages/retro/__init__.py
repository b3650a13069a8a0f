"""What a new advisory or deny rule means for past installs: found, recorded, shown."""
