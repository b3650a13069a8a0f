"""One script for each claim about speed; each prints its figures beside an estimate."""
