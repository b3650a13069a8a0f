"""The API of API keys: list, issue, rotate and revoke them."""
