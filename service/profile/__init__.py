"""The page on which members see to their own passkeys and sessions."""
