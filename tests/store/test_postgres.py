"""What only PostgreSQL does: addresses, rights, other programs, servers that come and go."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest

from postgres_server import PostgresServer
from textevolve.errors import ConflictError, StoreError
from textevolve.memory.record import Add, NewMemory
from textevolve.store.database import open_database
from textevolve.store.postgres import error_state, is_lost
from textevolve.store.repository import open_store
from textevolve.store.tables import collections, memories

pytestmark = pytest.mark.slow

PASSWORD = "hush/hush@x"
WRITTEN = PASSWORD.replace("/", "%2F").replace("@", "%40")


def refusal(address: str) -> str:
    with pytest.raises(StoreError) as caught:
        open_database(address).close()
    answer = str(caught.value)
    assert "\n" not in answer
    assert "hush" not in answer
    return answer


@pytest.fixture
def empty(postgres: PostgresServer) -> Iterator[str]:
    """The name of a database that nobody has used."""
    name = postgres.create("template0")
    yield name
    postgres.drop(name)


@pytest.fixture(scope="session")
def locked(postgres: PostgresServer) -> str:
    """A user who needs a password and may do little."""
    postgres.run(f"CREATE ROLE locked LOGIN PASSWORD '{PASSWORD}'")
    rules = postgres.folder / "data" / "pg_hba.conf"
    rules.write_text("local all locked scram-sha-256\n" + rules.read_text())
    postgres.run("SELECT pg_reload_conf()")
    return "locked"


def test_an_address_that_leads_nowhere_is_explained(postgres, tmp_path):
    answer = refusal("postgresql://ann:hush@127.0.0.1:1/memories")
    assert "store postgresql://ann@127.0.0.1:1/memories: " in answer
    assert "onnection refused" in answer
    assert "there is no such database" in refusal(postgres.address("nowhere"))
    assert "refuses this user" in refusal(postgres.address("postgres", "nobody", "hush"))
    assert "cannot be read" in refusal("postgresql://ann:hush@127.0.0.1:hush/memories")
    assert "no store at mysql://" in refusal("mysql://ann:hush@127.0.0.1/memories")
    assert "hush" not in refusal(f"postgresql://ann:hush@/x?host={tmp_path}&sslmode=hush")


def test_a_wrong_password_is_refused_and_the_right_one_serves(postgres, postgres_name, locked):
    address = postgres.address(postgres_name, locked, "hush-hush")
    assert "password; correct them" in refusal(address)
    assert "password" in refusal(postgres.address(postgres_name, locked))
    postgres.run(
        "GRANT USAGE ON SCHEMA textevolve TO locked",
        "GRANT SELECT ON textevolve.alembic_version, textevolve.memories TO locked",
        database=postgres_name,
    )
    database = open_database(postgres.address(postgres_name, locked, WRITTEN))
    assert database.read(lambda one: one.execute(memories.select()).all()) == []
    with pytest.raises(StoreError, match="has no right to do that"):
        database.read(lambda one: one.execute(collections.select()).all())
    database.close()
    with pytest.raises(StoreError, match="is closed"):
        database.read(lambda one: one.execute(memories.select()).all())


async def test_only_memories_need_the_extension(postgres, empty, locked, place_at):
    postgres.run(f"GRANT CREATE ON DATABASE {empty} TO locked")
    address = postgres.address(empty, locked, WRITTEN)
    with open_store(address) as store:
        assert store.list_runs() == []
    place = place_at(address)
    place.create("home", "chats")
    with pytest.raises(StoreError, match="CREATE EXTENSION vector") as caught:
        await place.open("home").apply("chats", [add("x", 1)])
    assert "hush" not in str(caught.value)
    # With the extension this user makes the tables.
    postgres.run("CREATE SCHEMA things", "CREATE EXTENSION vector SCHEMA things", database=empty)
    postgres.run("GRANT USAGE ON SCHEMA things TO locked", database=empty)
    await place_at(address).open("home").apply("chats", [add("x", 1)])


def test_other_programs_keep_their_tables(postgres, empty, place_at):
    postgres.run(
        "CREATE TABLE users (name text)",
        "CREATE TABLE alembic_version (version_num text)",
        "INSERT INTO alembic_version VALUES ('theirs')",
        database=empty,
    )
    place = place_at(postgres.address(empty))
    place.create("home", "chats")
    prompt = "SELECT (SELECT count(*) FROM users), (SELECT version_num FROM alembic_version)"
    assert postgres.run(prompt, database=empty) == [(0, "theirs")]


def test_a_schema_of_another_program_or_version_is_refused(postgres, empty, postgres_name):
    postgres.run("CREATE SCHEMA textevolve", "CREATE TABLE textevolve.x (y text)", database=empty)
    assert "belongs to another program" in refusal(postgres.address(empty))
    change = "UPDATE textevolve.alembic_version SET version_num = '9999'"
    postgres.run(change, database=postgres_name)
    assert "another TextEvolve (schema 9999" in refusal(postgres.address(postgres_name))


def test_a_server_that_ends_is_explained_and_is_used_again_when_it_is_back(
    postgres, postgres_name, monkeypatch
):
    monkeypatch.setattr("textevolve.store.postgres.PATIENCE_SECONDS", 0.3)
    database = open_database(postgres.address(postgres_name))
    name = collections.c.name

    def count(connection):
        return len(connection.execute(collections.select().with_only_columns(name)).all())

    def stop(connection):
        count(connection)
        postgres.stop()
        return count(connection)

    try:
        for ask in (database.read, database.write):
            with pytest.raises(StoreError, match=r"try again when it is back"):
                ask(stop)
            with pytest.raises(StoreError, match=r"^store postgresql://postgres@.*: "):
                ask(count)
            postgres.start()
            assert ask(count) == 0
        postgres.stop()
        postgres.start()
        # The connections of before are gone, which nobody has to notice.
        assert database.write(count) == 0
    finally:
        postgres.start()
        database.close()


def add(text: str, seed: int, dimension: int = 4) -> Add:
    drawn = np.random.default_rng(seed).standard_normal(dimension)
    return Add(NewMemory(text=text, embedding=(drawn / np.linalg.norm(drawn)).astype(np.float32)))


def test_a_change_that_others_undo_is_made_again(postgres, postgres_name, place_at):
    place = place_at(postgres.address(postgres_name))
    id = place.create("home", "chats")
    database, row = place.resources.database, collections.c.id == id

    def grow(connection):
        version = connection.execute(collections.select().where(row)).one().version
        connection.execute(collections.update().where(row).values(version=version + 1))

    def work():
        for _ in range(5):
            database.write(grow)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    version = database.read(lambda one: one.execute(collections.select()).one().version)
    assert version == 10

    def lose(connection):
        version = connection.execute(collections.select().where(row)).one().version
        other = open_database(place.location)
        other.write(grow)
        other.close()
        connection.execute(collections.update().where(row).values(version=version + 1))

    with pytest.raises(ConflictError, match="concurrent changes of the same"):
        database.write(lose)


@pytest.mark.parametrize(
    ("said", "state", "lost"),
    [
        ("the database system is shutting down", "57", True),
        ('database "nowhere" does not exist', "3D", False),
        ('role "nobody" does not exist', "28", False),
        ("sorry, too many clients already", "53", True),
    ],
)
def test_a_server_that_is_away_for_a_while_is_told_from_what_is_not_there(said, state, lost):
    psycopg = pytest.importorskip("psycopg")
    error = psycopg.OperationalError(f'connection failed: connection to "h", FATAL: {said}')
    assert error_state(error) == state
    assert is_lost(error, connected=False, gone=False) is lost
