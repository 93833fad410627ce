"""deploy/aeron-spark.service: systemd accepts the unit, and it gives the server few rights."""

from __future__ import annotations

import shutil
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Final

import pytest

from tests.programs import ROOT

UNIT: Final = ROOT / "deploy" / "aeron-spark.service"
MAX_EXPOSURE: Final = 30  # tenths; systemd calls up to 4.9 "OK"
TIMEOUT_S: Final = 60.0
EXPECTED: Final = """
Type=notify
User=aeron-spark
ExecStartPre=/usr/bin/aeron-spark server check --config /etc/aeron-spark/server.toml
ExecStart=/usr/bin/aeron-spark server --config /etc/aeron-spark/server.toml --log-format json
ExecReload=/usr/bin/aeron-spark server reload
Restart=on-failure
RestartPreventExitStatus=2 3
KillMode=mixed
TimeoutStopSec=45
WatchdogSec=30
StateDirectory=aeron-spark
Environment=AERON_SPARK_DATA_HOME=/var/lib/aeron-spark AERON_SPARK_CONFIG_HOME=/var/lib/aeron-spark/keys
ProtectSystem=strict
ReadWritePaths=/dev/shm
SystemCallFilter=@system-service
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
LimitNOFILE=65536
UMask=0077
NoNewPrivileges=yes
CapabilityBoundingSet=
ProtectHome=yes
PrivateTmp=yes
PrivateDevices=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ProtectClock=yes
ProtectHostname=yes
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
SystemCallArchitectures=native
"""


def parsed(text: str) -> dict[str, dict[str, str]]:
    """Return the settings of a unit by section. Raises ValueError for a line that is no setting, or set twice."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    section = ""
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        if line.startswith("["):
            section = line.strip("[]")
            continue
        name, equals, value = line.partition("=")
        if not equals or name in found[section]:
            raise ValueError(f"{line!r} is not a setting, or is set twice")
        found[section][name] = value
    return found


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """A copy of the unit whose command exists, because systemd checks this."""
    command = tmp_path / "aeron-spark"
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text().replace("/usr/bin/aeron-spark", str(command)))
    return copy


def analyze(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze on this machine")
    return subprocess.run(
        ["systemd-analyze", *map(str, arguments)], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )


def test_the_unit_has_the_settings_of_its_design() -> None:
    service = parsed(UNIT.read_text())["Service"]
    for line in EXPECTED.strip().splitlines():
        name, _, value = line.partition("=")
        assert service[name] == value
    assert "MemoryDenyWriteExecute" not in service  # the JVM compiles at run time


def test_the_unit_starts_with_the_machine_after_the_network() -> None:
    sections = parsed(UNIT.read_text())
    assert set(sections) == {"Unit", "Service", "Install"}
    assert sections["Install"] == {"WantedBy": "multi-user.target"}
    assert sections["Unit"]["After"] == sections["Unit"]["Wants"] == "network-online.target"


def test_a_failing_check_before_the_start_is_not_repeated_for_ever() -> None:
    """RestartPreventExitStatus applies to the server's process alone, so the number of starts is limited."""
    sections = parsed(UNIT.read_text())
    attempts, interval_s = int(sections["Unit"]["StartLimitBurst"]), float(sections["Unit"]["StartLimitIntervalSec"])
    longest_check_s = 30.0
    assert attempts * (longest_check_s + float(sections["Service"]["RestartSec"])) < interval_s


def test_systemd_accepts_the_unit(unit: Path) -> None:
    done = analyze("verify", "--man=no", unit)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_systemd_would_refuse_a_misspelt_setting(unit: Path) -> None:
    unit.write_text(unit.read_text().replace("WatchdogSec=", "WatchdogSeconds="))
    assert "WatchdogSeconds" in analyze("verify", "--man=no", unit).stderr


def test_the_server_has_few_rights(unit: Path) -> None:
    limit = f"--threshold={MAX_EXPOSURE}"
    done = analyze("security", "--offline=yes", "--no-pager", limit, unit)
    assert done.returncode == 0, done.stdout
    unit.write_text("[Service]\nExecStart=/bin/true\n")
    assert analyze("security", "--offline=yes", "--no-pager", limit, unit).returncode != 0
