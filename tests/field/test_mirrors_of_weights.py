"""Weights come from a mirror that wants a token or redirects, or the machine is offline."""

import pytest

from textevolve.errors import SettingsError
from textevolve.llm import weights
from textevolve.llm.catalogue import Hub, WeightsFile, locate
from textevolve.llm.testing import Answer, ScriptedServer

CONTENT = b"GGUF" * 100
SOURCE = Hub(hub="someone/something")
PATH = "/someone/something/resolve/main/tiny.gguf"


@pytest.fixture(autouse=True)
def variables(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    return monkeypatch


class Recorded(ScriptedServer):
    """A server that redirects to `target`, or gives the file, and notes what it is asked."""

    target = ""

    def answer(self, _method, path, headers, _body):
        self.requests.append({"path": path, "token": headers.get("authorization")})
        if self.target and "moved" not in path:
            return Answer(status=302, body=b"", headers={"Location": self.target})
        return Answer(body=CONTENT)


@pytest.fixture
def mirror(variables):
    with Recorded() as server:
        variables.setenv("HF_ENDPOINT", server.url.removesuffix("/v1"))
        yield server


def fill(folder):
    part = folder / "tiny.part"
    facts = {"name": "tiny", "file": "tiny.gguf", "bytes": len(CONTENT), "sha256": "0" * 64}
    file = WeightsFile(**facts, sources=(SOURCE,))
    weights.fill_from_hub(SOURCE, file, part, weights.Transfer("tiny", "mirror", len(CONTENT)))
    return part.read_bytes()


def test_mirrors_get_the_token(mirror, tmp_path):
    assert fill(tmp_path) == CONTENT
    assert mirror.requests[0] == {"path": PATH, "token": "Bearer hf_secret"}


def test_tokens_stay_within_mirrors(mirror, tmp_path):
    mirror.target = "/moved"
    assert fill(tmp_path) == CONTENT
    assert mirror.requests[1] == {"path": "/moved", "token": "Bearer hf_secret"}
    (tmp_path / "tiny.part").unlink()
    with Recorded() as other:
        mirror.target = f"{other.url}/moved"
        assert fill(tmp_path) == CONTENT
        assert other.requests[0]["token"] is None


def test_redirects_have_own_proxies(mirror, variables, tmp_path):
    """The mirror of this machine is asked directly, and the host it redirects to by a proxy."""
    mirror.target = "http://files.corp.test/moved"
    with Recorded() as proxy:
        variables.setenv("HTTP_PROXY", proxy.url.removesuffix("/v1"))
        assert fill(tmp_path) == CONTENT
        (request,) = proxy.requests
    assert request == {"path": "http://files.corp.test/moved", "token": None}


def test_offline_hubs_are_not_asked(mirror, variables, tmp_path):
    variables.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(weights.SourceError, match="HF_HUB_OFFLINE"):
        fill(tmp_path)
    assert not mirror.requests


def test_folders_of_weights_name_their_files(tmp_path):
    # unslothai/unsloth#10352: a folder is no choice of one of its models.
    for name in ("small-q4.gguf", "big-q8.gguf", "notes.txt"):
        (tmp_path / name).touch()
    with pytest.raises(SettingsError, match=r"there are: big-q8\.gguf, small-q4\.gguf$"):
        locate(str(tmp_path), tmp_path)
