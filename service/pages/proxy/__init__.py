"""The page about the install proxy."""
