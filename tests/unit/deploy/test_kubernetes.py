"""deploy/kubernetes.yaml: ports, paths, probes and sizes agree with the options, the image and the design."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from aeron_spark.options import ServerOptions
from aeron_spark.server.preflight import Load, node_terms, server_terms, shared_memory_terms, total
from aeron_spark.texts import parse_size
from tests.programs import ROOT
from tests.unit.deploy.dockerfile import environment, only
from tests.unit.deploy.test_service_unit import UNIT, parsed

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

OBJECTS: Final[dict[str, Any]] = {
    f"{one['kind']}/{one['metadata']['name']}": one
    for one in yaml.safe_load_all((ROOT / "deploy" / "kubernetes.yaml").read_text())
}
SPEC: Final[dict[str, Any]] = OBJECTS["StatefulSet/aeron-spark"]["spec"]
POD: Final[dict[str, Any]] = SPEC["template"]["spec"]
(SERVER,) = POD["containers"]
VOLUMES: Final = {one["name"]: one for one in POD["volumes"]}
MOUNTS: Final = {one["mountPath"]: one for one in SERVER["volumeMounts"]}
CONFIGURATION: Final = tomllib.loads(OBJECTS["ConfigMap/aeron-spark"]["data"]["server.toml"])
CLIENTS: Final = "/etc/aeron-spark/clients"
MIB: Final = 1 << 20
DRAIN_S: Final = 20  # the option drainTimeout
NODE_STOP_S: Final = 10
# The load for which the sizes in the file are made
LOAD: Final = Load(
    connections=CONFIGURATION["maxConnections"],
    bulk_links=100,
    partitions=64,
    written_partitions=16,
    memory_limit=ServerOptions.parse().memory_limit,
    link_term_bytes=parse_size(CONFIGURATION["termLength"], 1, 1 << 30),
    stream_term_bytes=16 << 20,
)


def mebibytes(quantity: str) -> int:
    """Return a quantity of Kubernetes, such as ``3Gi``, in MiB."""
    units = {"Mi": 1, "Gi": 1024}
    return int(quantity[:-2]) * units[quantity[-2:]]


def test_the_file_has_the_objects_of_one_server() -> None:
    assert set(OBJECTS) == {
        "ConfigMap/aeron-spark", "Secret/aeron-spark-clients", "Service/aeron-spark", "StatefulSet/aeron-spark",
    }  # fmt: skip
    assert SPEC["replicas"] == 1
    assert SPEC["serviceName"] == "aeron-spark"
    assert SPEC["selector"]["matchLabels"] == SPEC["template"]["metadata"]["labels"]
    assert OBJECTS["Service/aeron-spark"]["spec"]["selector"] == SPEC["selector"]["matchLabels"]


def test_the_service_has_both_ports_of_the_server() -> None:
    data = int(CONFIGURATION["bind"].rpartition(":")[2])
    assert CONFIGURATION["bind"] == f"0.0.0.0:{data}"
    ports = ServerOptions.parse().addresses[0]
    assert (ports.data_port, ports.control_port) == (data, data + 1)  # those of the options' defaults
    service = OBJECTS["Service/aeron-spark"]["spec"]
    assert [(one["protocol"], one["port"]) for one in service["ports"]] == [("UDP", data), ("UDP", data + 1)]
    assert service["externalTrafficPolicy"] == "Local"
    containers = {one["name"]: one for one in SERVER["ports"]}
    for one in service["ports"]:
        assert containers[one["targetPort"]]["containerPort"] == one["port"]
        assert containers[one["targetPort"]]["protocol"] == "UDP"


def test_the_container_has_the_ports_of_the_image() -> None:
    ports = {f"{one['containerPort']}/{one['protocol'].lower()}" for one in SERVER["ports"]}
    assert ports == set(only("EXPOSE").text.split())
    assert SERVER["image"].partition(":")[2] not in ("", "latest")


@pytest.mark.parametrize(
    ("probe", "path"), [("startupProbe", "/readyz"), ("readinessProbe", "/readyz"), ("livenessProbe", "/healthz")]
)
def test_the_probes_ask_the_port_of_the_option_http(probe: str, path: str) -> None:
    assert SERVER[probe]["httpGet"] == {"path": path, "port": "http"}
    host, _, port = CONFIGURATION["http"].rpartition(":")
    assert host == "0.0.0.0"  # the kubelet connects to the pod's address
    (container_port,) = [one["containerPort"] for one in SERVER["ports"] if one["name"] == "http"]
    annotations = SPEC["template"]["metadata"]["annotations"]
    assert str(container_port) == port == annotations["prometheus.io/port"]
    assert annotations["prometheus.io/path"] == "/metrics"


def test_a_start_may_take_ten_minutes() -> None:
    assert SERVER["startupProbe"]["periodSeconds"] * SERVER["startupProbe"]["failureThreshold"] == 600


def test_the_pod_has_time_to_drain() -> None:
    assert POD["terminationGracePeriodSeconds"] == 45
    assert int(parsed(UNIT.read_text())["Service"]["TimeoutStopSec"]) == 45
    assert DRAIN_S + NODE_STOP_S < 45


def test_the_pod_runs_as_the_user_of_the_image_without_rights() -> None:
    user = int(only("USER").text.partition(":")[0])
    context = POD["securityContext"]
    assert {context[name] for name in ("runAsUser", "runAsGroup", "fsGroup")} == {user}
    assert context["runAsNonRoot"] is True
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert SERVER["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
    }  # fmt: skip
    assert POD["automountServiceAccountToken"] is False


def test_the_folders_that_the_image_writes_are_volumes() -> None:
    (claim,) = SPEC["volumeClaimTemplates"]
    assert MOUNTS[only("VOLUME").text]["name"] == claim["metadata"]["name"] == "data"
    assert claim["spec"]["accessModes"] == ["ReadWriteOncePod"]
    for folder in environment().values():
        assert any(Path(folder).is_relative_to(mount) for mount in MOUNTS)
    assert MOUNTS["/tmp"]["name"] == "tmp"  # of the JVM; the root file system is read-only
    assert {one["name"] for one in SERVER["volumeMounts"]} == {*VOLUMES, "data"}


def test_the_server_reads_the_mounted_configuration_and_clients_file() -> None:
    assert SERVER["args"] == ["--config", "/etc/aeron-spark/config/server.toml", "--log-format", "json"]
    assert "/etc/aeron-spark/config" in MOUNTS
    assert CONFIGURATION["authorizedKeys"] == f"{CLIENTS}/authorized_keys"
    assert list(OBJECTS["Secret/aeron-spark-clients"]["stringData"]) == ["authorized_keys"]
    assert VOLUMES["clients"]["secret"]["secretName"] == "aeron-spark-clients"
    assert VOLUMES["clients"]["secret"]["defaultMode"] == 0o440  # others must not be able to write the file
    assert not any("subPath" in one for one in SERVER["volumeMounts"])  # Kubernetes never updates a subPath


def test_the_shared_memory_has_room_for_all_connections() -> None:
    volume = VOLUMES[MOUNTS["/dev/shm"]["name"]]["emptyDir"]
    assert volume["medium"] == "Memory"
    assert mebibytes(volume["sizeLimit"]) * MIB == total(shared_memory_terms(LOAD)) == 2_272 * MIB
    assert (
        "304 MiB + 6 x 1 MiB x (100 + 100) + 48 MiB x 16 = 2,272 MiB"
        in (ROOT / "deploy" / "kubernetes.yaml").read_text()
    )


def test_the_memory_has_room_for_server_node_and_shared_memory() -> None:
    needed = sum(map(total, (server_terms(LOAD), node_terms(LOAD), shared_memory_terms(LOAD)))) / MIB
    assert round(needed) == 3_454
    assert needed < mebibytes(SERVER["resources"]["limits"]["memory"])
    assert SERVER["resources"]["limits"]["memory"] == SERVER["resources"]["requests"]["memory"]
    assert "at most 3,454 MiB" in (ROOT / "deploy" / "kubernetes.yaml").read_text()
