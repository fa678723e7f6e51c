import asyncio
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from textevolve.errors import AccessError, SettingsError
from textevolve.llm import providers as keys
from textevolve.llm.client import connect
from textevolve.llm.connections import Relay
from textevolve.llm.model import Message, Request
from textevolve.llm.providers import find_key, keys_file, resolve
from textevolve.llm.testing import ScriptedServer
from textevolve.settings import Provider, Settings, Timeouts


@pytest.fixture
def file() -> Path:
    path = keys_file()
    path.parent.mkdir(parents=True)
    path.write_text('openai = "sk-from-file"\n"host:8000" = "sk-host"\nwrong = 3\n')
    path.chmod(0o600)
    return path


@pytest.fixture
def ring(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, str], str]:
    import keyring

    held: dict[tuple[str, str], str] = {}
    monkeypatch.setattr(keyring, "get_password", lambda service, name: held.get((service, name)))
    return held


def test_the_environment_is_first_then_the_keyring_then_the_file(
    monkeypatch: pytest.MonkeyPatch, file: Path, ring: dict[tuple[str, str], str]
) -> None:
    def found() -> tuple[str, str]:
        key = find_key("openai", "OPENAI_API_KEY")
        assert key is not None
        return key.secret.get_secret_value(), key.source

    assert found() == ("sk-from-file", str(file))
    ring["textevolve", "openai"] = "sk-from-ring"
    assert found() == ("sk-from-ring", "the keyring")
    monkeypatch.setenv("OPENAI_API_KEY", " sk-from-environment\n")
    assert found() == ("sk-from-environment", "OPENAI_API_KEY")
    monkeypatch.setenv("OPENAI_API_KEY", "")
    assert found() == ("sk-from-ring", "the keyring")


def test_nothing_is_found() -> None:
    assert find_key("openai", "OPENAI_API_KEY") is None


def test_a_keyring_that_fails_is_passed_over(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    import keyring
    from keyring.errors import KeyringLocked

    def locked(service: str, name: str) -> str:
        raise KeyringLocked("locked")

    monkeypatch.setattr(keyring, "get_password", locked)
    key = find_key("openai", "OPENAI_API_KEY")
    assert key is not None
    assert key.source == str(file)


def test_a_keyring_is_not_asked_when_it_need_not_be(
    monkeypatch: pytest.MonkeyPatch, ring: dict[tuple[str, str], str]
) -> None:
    ring["textevolve", "vllm"] = "sk-ring"
    assert find_key("vllm", "VLLM_API_KEY", ask_keyring=False) is None


def test_a_host_has_its_line(file: Path) -> None:
    key = find_key("host:8000", "TEXTEVOLVE_API_KEY")
    assert key is not None
    assert key.secret.get_secret_value() == "sk-host"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o601, 0o777])
def test_a_file_that_others_may_read_is_refused(file: Path, mode: int) -> None:
    file.chmod(mode)
    with pytest.raises(SettingsError, match="chmod 600") as caught:
        find_key("openai", "OPENAI_API_KEY")
    assert "sk-from-file" not in str(caught.value)


@pytest.mark.parametrize("content", ['openai = "sk-secret', b"\xff\xfe", 'openai = "sk-secret" x'])
def test_a_broken_file_is_named_and_not_quoted(file: Path, content: str | bytes) -> None:
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(SettingsError) as caught:
        find_key("openai", "OPENAI_API_KEY")
    assert str(file) in str(caught.value)
    assert "sk-secret" not in str(caught.value)


def test_a_key_that_is_no_text(file: Path) -> None:
    with pytest.raises(SettingsError, match="not a text"):
        find_key("wrong", "WRONG_API_KEY")


def test_a_key_does_not_show(file: Path) -> None:
    assert "sk-from-file" not in repr(find_key("openai", "OPENAI_API_KEY"))


# A key may stand elsewhere, and be another one tomorrow.


@pytest.fixture(autouse=True)
def nothing_printed() -> Iterator[None]:
    keys._printed_key.cache_clear()
    yield
    keys._printed_key.cache_clear()


def python(code: str) -> str:
    return f"cmd:{shlex.quote(sys.executable)} -c {shlex.quote(code)}"


@pytest.fixture
def say(monkeypatch: pytest.MonkeyPatch):
    """What the environment says of the key of `openai`, and the key that is found then."""

    def said(text: str) -> str:
        monkeypatch.setenv("OPENAI_API_KEY", text)
        key = find_key("openai", "OPENAI_API_KEY")
        assert key is not None
        assert key.secret.get_secret_value() not in f"{key} {key.source}"
        return key.secret.get_secret_value()

    return said


def test_a_key_is_found_where_it_is_said_to_be(
    say, ring: dict[tuple[str, str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_text("sk-mounted\n")
    monkeypatch.setenv("MY_KEY", "sk-mine")
    ring["team", "openai"] = "sk-team"
    ring["textevolve", "other"] = "sk-other"
    assert say(f"file:{tmp_path / 'secret'}") == "sk-mounted"
    assert say("env:MY_KEY") == "sk-mine"
    assert say("keyring:team/openai") == "sk-team"
    assert say("keyring:other") == "sk-other"
    assert say(python("print('sk-printed'); print('a second line')")) == "sk-printed"
    assert say("sk:with:colons") == "sk:with:colons"


def test_the_file_of_keys_may_say_so_too(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "sk-mine")
    file.write_text('openai = "env:MY_KEY"\n')
    key = find_key("openai", "OPENAI_API_KEY")
    assert key is not None
    assert (key.secret.get_secret_value(), key.source) == (
        "sk-mine",
        f"env:MY_KEY (as {file} says)",
    )


def test_a_program_is_run_once(say, tmp_path: Path) -> None:
    log = tmp_path / "log"
    code = f"open({str(log)!r}, 'a').write('x'); print('sk-once')"
    assert [say(python(code)) for _ in range(3)] == ["sk-once"] * 3
    assert log.read_text() == "x"


@pytest.mark.parametrize(
    ("said", "match"),
    [
        ("cmd:", "cannot be run"),
        ("cmd:no-such-program-here show", "cannot be run: No such file"),
        ("cmd:'open", "cannot be run: No closing quotation"),
        (python("import sys; sys.exit('vault is sealed')"), "exit code 1: vault is sealed"),
        (python("pass"), "there is no key"),
        ("file:/no/such/file", "cannot be read: No such file"),
        ("env:NOT_SET_ANYWHERE", "there is no key"),
        ("keyring:nobody/nothing", "there is no key"),
    ],
)
def test_what_is_wrong_is_said(say, ring, said: str, match: str) -> None:
    with pytest.raises(SettingsError, match=match) as caught:
        say(said)
    assert "OPENAI_API_KEY" in str(caught.value)


def test_of_a_command_only_the_program_is_named(say) -> None:
    with pytest.raises(SettingsError) as caught:
        say("cmd:no-such-program --token s.123456")
    assert "s.123456" not in str(caught.value)


def test_a_program_that_fails_after_it_printed_tells_nothing(say) -> None:
    with pytest.raises(SettingsError, match=r"exit code 3$") as caught:
        say(python("import sys; print('sk-half'); print('sk-half!', file=sys.stderr); sys.exit(3)"))
    assert "sk-half" not in str(caught.value).partition("ended")[2]


REQUEST = Request(messages=(Message("user", ("?",)),))


async def test_a_key_that_is_renewed_is_taken_without_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, log = tmp_path / "key", tmp_path / "log"
    place.write_text("sk-first-0001")
    code = f"open({str(log)!r}, 'a').write('x'); print(open({str(place)!r}).read())"
    monkeypatch.setenv("MINE_KEY", python(code))
    async with ScriptedServer(key="sk-first-0001") as server:
        mine = Provider(base_url=server.url, key_env="MINE_KEY")
        endpoint = resolve("mine/m", Settings(providers={"mine": mine}))
        async with connect(endpoint, Timeouts()) as client:
            await client(REQUEST)
            server.key = "sk-second-0002"
            place.write_text("sk-second-0002")
            await asyncio.gather(*(client(REQUEST) for _ in range(20)))
            assert log.read_text() == "xx"  # for the first key, and once for all 20 calls
            server.key = "sk-third-0003"
            with pytest.raises(AccessError) as caught:  # nobody has renewed it
                await client(REQUEST)
            assert "sk-" not in str(caught.value)


async def test_a_relay_takes_a_renewed_key_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "key"
    place.write_text("sk-first-0001")
    monkeypatch.setenv("MINE_KEY", f"file:{place}")
    async with ScriptedServer(key="sk-second-0002") as server:
        mine = Provider(base_url=server.url, key_env="MINE_KEY")
        relay = Relay(resolve("mine/m", Settings(providers={"mine": mine})), Timeouts(), 16)
        place.write_text("sk-second-0002")
        body = {"messages": [{"role": "user", "content": "?"}]}
        answer = await relay.post("/chat/completions", body)
        assert answer.status == 200
        assert await answer.whole()
        await relay.aclose()


async def test_a_key_that_cannot_be_read_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "key"
    place.write_text("sk-first-0001")
    monkeypatch.setenv("MINE_KEY", f"file:{place}")
    async with ScriptedServer(key="sk-second-0002") as server:
        mine = Provider(base_url=server.url, key_env="MINE_KEY")
        endpoint = resolve("mine/m", Settings(providers={"mine": mine}))
        place.unlink()
        async with connect(endpoint, Timeouts()) as client:
            with pytest.raises(AccessError, match=r"is refused, and no other.*cannot be read"):
                await client(REQUEST)
