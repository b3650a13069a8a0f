"""The pages about the install policy."""
