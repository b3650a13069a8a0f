"""A made-up organisation with a believable history."""
