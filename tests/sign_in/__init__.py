"""An identity provider for tests: as its own process, over real HTTP, with real signed tokens."""
