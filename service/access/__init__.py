"""Who calls, and what they may do: authentication, sign-in, roles, authorisation."""
