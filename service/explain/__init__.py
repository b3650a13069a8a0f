"""Why a CI token is not trusted, and what would make it so."""
