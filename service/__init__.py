"""The web app: HTTP, sign-in, trust bindings and the transactional store. Async."""
