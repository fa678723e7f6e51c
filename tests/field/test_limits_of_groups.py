"""A container, a systemd unit or a slice limits cores and memory: in version 1 or 2 of control
groups, at the process's own group or at one above it."""

import pytest

from textevolve.llm import hardware

QUOTA = "cpu.cfs_quota_us"
PERIOD = "cpu.cfs_period_us"
UNIT = "system.slice/app.service"
LIMITS = {
    "v2 at the root": ("0::/", {"cpu.max": "200000 100000"}, 2),
    "v2 without limit": ("0::/", {"cpu.max": "max 100000"}, 8),
    "v2 of a unit": (f"0::/{UNIT}", {f"{UNIT}/cpu.max": "200000 100000"}, 2),
    "v2 of a slice": (
        f"0::/{UNIT}",
        {"system.slice/cpu.max": "300000 100000", f"{UNIT}/cpu.max": "max 100000"},
        3,
    ),
    "v1 in a container": (
        "4:cpu,cpuacct:/docker/abc",
        {f"cpu/{QUOTA}": "200000", f"cpu/{PERIOD}": "100000"},
        2,
    ),
    "v1 of a group": (
        "4:cpu,cpuacct:/a",
        {f"cpu,cpuacct/a/{QUOTA}": "400000", f"cpu,cpuacct/a/{PERIOD}": "100000"},
        4,
    ),
    "v1 without limit": ("4:cpu:/", {f"cpu/{QUOTA}": "-1", f"cpu/{PERIOD}": "100000"}, 8),
    "less than a core": ("0::/", {"cpu.max": "50000 100000"}, 1),
}


def write_files(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


@pytest.fixture
def machine(tmp_path, monkeypatch):
    monkeypatch.setattr(hardware, "_CGROUP", tmp_path / "cgroup")
    monkeypatch.setattr(hardware, "_OWN_GROUPS", tmp_path / "own")
    monkeypatch.setattr(hardware, "_CPUS", tmp_path / "cpus")
    monkeypatch.setattr(hardware, "allowed_cores", lambda: set(range(8)))
    return tmp_path


@pytest.mark.parametrize("name", LIMITS)
def test_quotas_of_groups_count(machine, name):
    groups, files, cores = LIMITS[name]
    (machine / "own").write_text(groups)
    write_files(machine / "cgroup", files)
    assert hardware.physical_cores() == cores


MEMORY = {
    "v2": (f"0::/{UNIT}", f"{UNIT}/memory.max", f"{UNIT}/memory.current"),
    "v1": (
        "9:memory:/docker/abc",
        "memory/memory.limit_in_bytes",
        "memory/memory.usage_in_bytes",
    ),
}


@pytest.mark.parametrize("name", MEMORY)
def test_memory_of_groups_counts(machine, name):
    groups, limit, used = MEMORY[name]
    (machine / "own").write_text(groups)
    write_files(machine / "cgroup", {limit: "1000000", used: "400000"})
    assert hardware.available_memory() == 600_000
