"""Sign-in with an identity provider: OAuth 2.0 and OpenID Connect, from button to session."""
