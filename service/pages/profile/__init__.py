"""The page on which members manage their own passkeys and sessions."""
