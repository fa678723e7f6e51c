"""A role of PostgreSQL has a `statement_timeout`, as hosted databases give one: a large run cannot
be deleted within it, and the message told to wait for a server that was never away.

The right setting is the one that the server itself names.
"""

import pytest

from postgres_server import PostgresServer
from textevolve.errors import StoreError
from textevolve.settings import Settings
from textevolve.store.repository import open_store

pytestmark = pytest.mark.slow
SLEEP = "SELECT pg_sleep(1)"


def sleep(address: str) -> None:
    with open_store(Settings(store=address).store) as store:
        store.read(lambda connection: connection.exec_driver_sql(SLEEP).all())


def test_cancelled_statement_names_its_limit(postgres: PostgresServer, postgres_name: str):
    postgres.run("DROP ROLE IF EXISTS brief", "CREATE ROLE brief LOGIN SUPERUSER")
    postgres.run("ALTER ROLE brief SET statement_timeout = '500ms'")
    address = postgres.address(postgres_name, "brief")
    with pytest.raises(StoreError) as caught:
        sleep(address)
    message = str(caught.value)
    assert "statement_timeout" in message
    assert "going down" not in message

    longer = "&options=-cstatement_timeout%3D10min"
    assert longer[1:] in message
    sleep(address + longer)
