"""The schema of the first release, with which the later ones begin.

No migration makes it: the tables of an empty database are created as they are declared.
"""

revision = "0023"
down_revision = None
