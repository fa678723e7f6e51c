"""The tables with which stores begin.

`store/schema.py` makes them in a new store from `store/tables.py`; later migrations change them.
"""

from __future__ import annotations

revision = "0007"
down_revision = None


def upgrade() -> None:
    """Leave the tables as they are: no store that is migrated is older."""
