"""A sample organisation with a realistic history."""
