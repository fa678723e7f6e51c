"""The files in deploy/ hold together: nothing that they name is missing, nobody is root, no secret
is written down. They are not built here, since that needs Docker."""

import configparser
import re
import shlex
from pathlib import Path

import pytest
import typer.main
import yaml

from parameter_sets import slow_but_first
from textevolve.cli.app import app

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"
UNITS = sorted(DEPLOY.glob("*.service"))
SECRET = re.compile(r"(?i)(password|key|token|secret)[\w]*\s*[:=]\s*[\"']?(?!\$)[\w/+-]{6,}")


def instructions():
    text = re.sub(r"\\\n", " ", (DEPLOY / "Dockerfile").read_text())
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [tuple(line.split(None, 1)) for line in lines]


def words_of(name):
    """The arguments of the last instruction of this name, in its JSON form."""
    return yaml.safe_load(
        [remaining_remainder for word, remaining_remainder in instructions() if word == name][-1]
    )


def parses(arguments):
    """Raises where the command line does not take these arguments; nothing is run."""
    command, remaining_rest = typer.main.get_command(app), list(arguments)
    while (below := getattr(command, "commands", None)) is not None:
        command, remaining_rest = below[remaining_rest[0]], remaining_rest[1:]
    command.make_context(command.name, remaining_rest)


@pytest.fixture(scope="module")
def compose():
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text())


def test_all_that_is_copied_is_there():
    copied = [
        remaining_remainder.split()[:-1]
        for word, remaining_remainder in instructions()
        if word == "COPY"
    ]
    assert copied
    for name in (single_name for names in copied for single_name in names):
        assert (ROOT / name).exists(), name


def test_the_image_runs_as_a_user_without_rights_and_says_how_it_is():
    names = [word for word, _ in instructions()]
    assert "HEALTHCHECK" in names
    users = [remaining_remainder for word, remaining_remainder in instructions() if word == "USER"]
    assert users
    assert "root" not in users[-1]
    assert users[-1] != "0"
    assert names.index("USER") < names.index("CMD")


def test_only_this_machine_reaches_the_server(compose):
    ports = [port for service in compose["services"].values() for port in service.get("ports", [])]
    assert ports == ["127.0.0.1:8400:8400"]


def test_no_secret_is_written_down():
    assert SECRET.search("POSTGRES_PASSWORD: hunter22")
    for path in DEPLOY.iterdir():
        for line in path.read_text().splitlines():
            assert not SECRET.search(line.partition("#")[0]), line


@pytest.mark.parametrize("path", slow_but_first(UNITS), ids=lambda path: path.name)
def test_units_start_commands_of_ours_without_rights(path):
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str
    unit.read(path)
    service = unit["Service"]
    assert service["DynamicUser"] == "yes"
    assert service["NoNewPrivileges"] == "yes"
    program, *arguments = shlex.split(service["ExecStart"])
    assert Path(program).name == "textevolve"
    parses(arguments)


def test_commands_of_images_and_services_are_ours(compose):
    assert words_of("ENTRYPOINT") == ["textevolve"]
    parses(words_of("CMD"))
    for name in ("server", "jobs"):
        parses(compose["services"][name]["command"])


def test_pods_of_ray_are_such_as_kubernetes_takes():
    validator = pytest.importorskip("kubernetes_validate")
    spec = yaml.safe_load((DEPLOY / "raycluster.yaml").read_text())["spec"]
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        pod = group["template"]["spec"]
        fields = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "n"}}
        validator.validate({**fields, "spec": pod}, "1.33", strict=True)
        assert pod["securityContext"]["runAsNonRoot"]


def test_clusters_of_ray_ask_for_a_token():
    cluster = yaml.safe_load((DEPLOY / "raycluster.yaml").read_text())["spec"]
    job = yaml.safe_load((DEPLOY / "rayjob.yaml").read_text())["spec"]["rayClusterSpec"]
    assert cluster["authOptions"] == job["authOptions"] == {"mode": "token"}
    assert cluster["headGroupSpec"]["rayStartParams"]["dashboard-host"] == "127.0.0.1"


def test_image_has_pinned_packages():
    (install,) = [text for word, text in instructions() if word == "RUN"]
    assert "--require-hashes" in install
    assert "-c constraints.txt" in install


def test_actions_are_pinned():
    files = [ROOT / "action.yml", *(ROOT / ".github" / "workflows").glob("*.yml")]
    for file in files:
        for line in file.read_text().splitlines():
            used = re.search(r"uses: (\S+)@(\S+)(.*)", line)
            if used and used[1] == "pypa/gh-action-pypi-publish":
                assert re.fullmatch(r"v[0-9]+\.[0-9]+\.[0-9]+|[0-9a-f]{40}", used[2]), line
            elif used:
                assert re.fullmatch("[0-9a-f]{40}", used[2]), line
                assert re.fullmatch(r" # v[0-9]+\.[0-9]+\.[0-9]+", used[3]), line
