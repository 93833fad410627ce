"""Executes the commands of the pages for operators, with the values of a test for the page's names, hosts and folders.

The commands of ``aeron-spark`` meet a running server. Commands that change a machine run in a folder which stands for
it. A new command in the page fails these tests until one of them executes it, or :data:`NOT_EXECUTED` says why not.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import click
import pytest

from aeron_spark.cli import server_backup
from aeron_spark.cli.main import cli
from tests.cli.conftest import Result, run
from tests.e2e.operated_server import OperatedServer
from tests.programs import ROOT

# The pages in the order of the work of an operator, who reads them from the installation to the outages.
OPERATOR_PAGES: Final = ("operations", "access", "monitoring", "alerts", "limits", "upgrade", "outages", "node")
PAGE: Final = "\n".join((ROOT / "docs" / f"{name}.md").read_text() for name in OPERATOR_PAGES)
FENCED: Final = re.compile(r"^ *```(?:sh|text)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
SPAN: Final = re.compile(r"`([^`\n]+)`")
# Lines of a log, and of a clients file.
NO_COMMAND_LINE: Final = re.compile(r"\d{4}-\d\d-\d\dT|role[ =]|streams=|all name=")
# Programs that run the rest of the line elsewhere: as another user, or in a container.
ELSEWHERE: Final = re.compile(r"^(?:runuser -u aeron-spark --|docker exec feeds|kubectl exec aeron-spark-0 --) +")
SEVERAL_WORDS: Final = re.compile(r"[a-z][a-z0-9.-]* .+")
FOLDER_OF_MACHINE: Final = re.compile(r"(?<![\w./-])/(?=(?:etc|opt|srv|usr|var)/)")
WATCHDOG_S: Final = 10.0
RECORDED: Final = "--channel aeron:ipc --stream-id 7001"  # a stream that no other test uses

# Programs whose commands the tests do not execute.
NOT_EXECUTED: Final = {
    "apt-get": "it installs packages for this machine, from a registry",
    "docker": "it needs Docker; tests/cli/test_container.py executes the commands of the image",
    "export": "the tests give these variables to the commands",
    "journalctl": "it needs systemd; tests/e2e/test_life_of_a_server.py reads the log of a server",
    "kill": "it names a signal; tests/e2e/test_life_of_a_server.py kills servers",
    "kubectl": "it needs Kubernetes; tests/unit/deploy checks the file",
    "make": "it builds the wheel and runs benchmarks; tests/wheels.py and tests/e2e/test_benchmarks.py do",
    "mount": "it changes the shared memory of all programs",
    "pip": "it installs a release from a registry; tests/e2e/test_wheel.py installs the wheel",
    "py-spy": "it needs a program that is not a requirement",
    "python": "tests/e2e/test_benchmarks.py executes the benchmarks",
    "python3": "tests/e2e/test_unactivated.py makes environments",
    "sysctl": "it changes the kernel's settings, or needs a program that is not a requirement",
    "systemctl": "it needs systemd; tests/e2e/test_life_of_a_server.py starts, reloads and stops a server as it does",
    "useradd": "it changes the users of this machine",
}
# Texts in the page that look like commands.
NO_COMMANDS: Final = {
    "bytes waiting",
    "the archive lost its media driver",
    "the media driver in DIR stopped working",
}
# Commands of the steps for a new place or key, each with the test that executes it.
IN_OTHER_TESTS: Final = {
    "bans add --for": "tests/cli/test_connections_and_bans.py",
    "keys forget HOST:PORT": "tests/unit/cli/test_keys.py",
    "keys forget OLD-HOST:PORT": "tests/unit/cli/test_keys.py",
    "keys new --identity FILE": "tests/unit/cli/test_keys.py",
    "keys new --identity new.key": "tests/unit/cli/test_keys.py",
    "keys trust HOST:PORT NEW-KEY": "tests/unit/cli/test_keys.py",
    "keys trust NEW-HOST:PORT KEY": "tests/unit/cli/test_keys.py",
    "purge --before": "tests/cli/test_streams_server.py",
    "purge --before -30d": "tests/cli/test_streams_server.py",
    "server backup --with-identity": "tests/aeron/backup/test_online_backup.py",
    "server restore": "tests/aeron/backup/test_online_backup.py",
    "streams writers STREAM release WRITER-ID": "tests/cli/test_stream_changes.py",
}
# Commands that other tests execute than the one with a server.
WITH_A_NODE: Final = {
    "backlog",
    "doctor",
    "errors",
    "loss",
    "node status",
    "recordings delete",
    "recordings list",
    "recordings stop",
    "stat",
    "top",
}
WITH_AN_OWN_NODE: Final = {
    "node start",
    "node start --sync-level 1",
    "node stop",
    "COPY=/var/backups/aeron-spark-$(date +%Y-%m-%dT%H%M%S)",
    'install -d -m 0700 "$COPY"',
    'cp -a --sparse=always /var/lib/aeron-spark "$COPY"/data',
    'cp -a /etc/aeron-spark "$COPY"/configuration',
    "NEW=0.2.0",
    "ln -sfn /opt/aeron-spark/$NEW/bin/aeron-spark /usr/bin/aeron-spark",
}


def without_program(line: str) -> str:
    """Return a command of ``aeron-spark`` without this word and its folder, and another command unchanged."""
    inner = ELSEWHERE.sub("", line)
    name, _, rest = inner.partition(" ")
    return rest if Path(name).name == "aeron-spark" else line


def is_of_package(text: str) -> bool:
    """Return whether a text begins with the words of a command of ``aeron-spark`` that is no group."""
    command: click.Command = cli
    for word in text.split():
        if not isinstance(command, click.Group):
            break
        found = command.get_command(click.Context(command), word)
        if found is None:
            return False
        command = found
    return not isinstance(command, click.Group)


def is_command(text: str) -> bool:
    """Return whether a text between backticks is a command. The page may leave out ``aeron-spark``."""
    return text.startswith("aeron-spark ") or is_of_package(text) or SEVERAL_WORDS.fullmatch(text) is not None


def commands() -> set[str]:
    """Return the commands of the page, in its blocks and in its sentences."""
    joined = [re.sub(r"\\\n *", " ", block) for block in FENCED.findall(PAGE)]
    lines = [re.sub(r" +#.*", "", line).strip() for block in joined for line in block.splitlines()]
    in_blocks = [line for line in lines if line and not NO_COMMAND_LINE.match(line)]
    in_sentences = [text for text in SPAN.findall(FENCED.sub("", PAGE)) if is_command(text)]
    return {without_program(one) for one in [*in_blocks, *in_sentences] if one not in NO_COMMANDS}


def program(command: str) -> str:
    """Return the name of the program of a command that :func:`without_program` has returned."""
    return Path(command.split()[0]).name


def executable() -> set[str]:
    """Return the commands that the tests execute."""
    return {one for one in commands() if program(one) not in NOT_EXECUTED}


def test_each_listed_program_and_text_is_in_the_page() -> None:
    assert {*NOT_EXECUTED} <= {program(one) for one in commands()}
    assert {*IN_OTHER_TESTS} <= executable()
    for command, test in IN_OTHER_TESTS.items():
        text = (ROOT / test).read_text()
        assert all(f'"{word}"' in text for word in command.split() if word.isalpha() and word.islower()), command
    assert {*SPAN.findall(PAGE)} >= NO_COMMANDS
    assert executable() >= WITH_A_NODE | WITH_AN_OWN_NODE


class Machine:
    """A folder that stands for the machine of the page, with its configuration and the repository."""

    def __init__(self, folder: Path) -> None:
        self.folder: Final = folder
        self.repository: Final = folder / "repository"
        for name in ("repository", "etc/sysctl.d", "etc/systemd/system", "usr/bin", "srv"):
            (folder / name).mkdir(parents=True)
        (self.repository / "deploy").symlink_to(ROOT / "deploy")

    @property
    def configuration(self) -> Path:
        """The folder of the configuration and the clients file."""
        return self.folder / "etc" / "aeron-spark"

    @property
    def data_home(self) -> Path:
        """The folder of everything that the server stores."""
        return self.folder / "var" / "lib" / "aeron-spark"

    def here(self, command: str) -> str:
        """Return a command with the folders of this machine."""
        return FOLDER_OF_MACHINE.sub(f"{self.folder}/", command)


class Walk:
    """Executes commands of the page: on the server's machine, on the operator's, and in a shell."""

    def __init__(self, machine: Machine, site: OperatedServer) -> None:
        self.executed: Final[set[str]] = set()
        self._machine: Final = machine
        self._site: Final = site

    def at_server(
        self, command: str, more: str = "", *, wanted: str = "", codes: Sequence[int] = (0,),
        values: Mapping[str, object] | None = None,
    ) -> Result:  # fmt: skip
        """Execute a command of ``aeron-spark`` with ``more`` arguments as the operator on the server's machine.

        ``values`` replace texts of the page. The output must have ``wanted``, a regular expression.
        """
        return self._execute(self._site.run, command, more, wanted, codes, values or {})

    def remotely(
        self, command: str, more: str = "", *, wanted: str = "", codes: Sequence[int] = (0,),
        values: Mapping[str, object] | None = None,
    ) -> Result:  # fmt: skip
        """Execute a command likewise as the operator on another machine."""
        environ = {
            "AERON_SPARK_CONFIG_HOME": str(self._site.folder / "remote"),
            "AERON_SPARK_AERON_DIR": str(self._site.client_dir),
        }
        return self._execute(lambda *arguments: run(*arguments, **environ), command, more, wanted, codes, values or {})

    def shell(self, *lines: str, values: Mapping[str, str] | None = None) -> str:
        """Execute lines of the page in a shell, as root of the machine; return their output."""
        self.executed.update(lines)
        script = self._machine.here("\n".join(lines))
        users = {"-o aeron-spark -g aeron-spark": f"-o {os.getuid()} -g {os.getgid()}", "-o root": f"-o {os.getuid()}"}
        for text, value in {**users, **(values or {})}.items():
            script = script.replace(text, value)
        done = subprocess.run(
            ["sh", "-euc", script],
            cwd=self._machine.repository,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, (script, done.stderr)
        return done.stdout

    def _execute(
        self, execute: Callable[..., Result], command: str, more: str, wanted: str, codes: Sequence[int],
        values: Mapping[str, object],
    ) -> Result:  # fmt: skip
        self.executed.add(command)
        line = self._machine.here(f"{command} {more}")
        address = f"127.0.0.1:{self._site.port}"
        for text, value in {**values, "feeds.example:20121": address, "HOST:PORT": address}.items():
            line = line.replace(text, str(value))
        done = execute(*shlex.split(line))
        output = done.out + done.err
        assert done.code in codes, (line, output)
        assert re.search(wanted, output, re.MULTILINE), (line, output)
        return done


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "machine")


@pytest.fixture
def site(machine: Machine, shared: Path) -> Iterator[OperatedServer]:
    """A server on the node that its clients use."""
    data_home = Path(os.environ["AERON_SPARK_DATA_HOME"])
    machine.configuration.mkdir()
    one = OperatedServer(machine.configuration, data_home, shared, shared, run, WATCHDOG_S)
    yield one
    one.close()


def test_the_commands_of_the_page_do_what_it_says(
    machine: Machine, site: OperatedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_backup, "NICENESS", 0)  # this process would keep the low priority
    walk = Walk(machine, site)
    install(walk, machine, site)
    site.start()
    walk.executed.add("server")
    connect(walk, site)
    operate(walk, site)
    back_up(walk, machine, site)
    assert walk.executed == executable() - WITH_A_NODE - WITH_AN_OWN_NODE - {*IN_OTHER_TESTS}
    site.request_end()
    assert site.await_end() == 0


def install(walk: Walk, machine: Machine, site: OperatedServer) -> None:
    """Install a server, up to its start."""
    walk.shell(
        "ln -sfn /opt/aeron-spark/0.1.0/bin/aeron-spark /usr/bin/aeron-spark",
        "install -d -m 0700 -o aeron-spark -g aeron-spark /var/lib/aeron-spark",
        "install -D -m 0644 deploy/server.toml /etc/aeron-spark/server.toml",
        "install -D -m 0644 deploy/aeron-spark.service /etc/systemd/system/aeron-spark.service",
        "echo net.core.rmem_max=3145728 > /etc/sysctl.d/60-aeron-spark.conf",
    )
    assert (machine.configuration / "server.toml").read_text() == (ROOT / "deploy" / "server.toml").read_text()
    made = walk.remotely("keys new", "--json")
    walk.remotely("keys passphrase", "--remove")
    key = json.loads(made.out)["public"]
    walk.shell(
        'echo "all name=ops aeron-spark:PUBLIC-KEY" > /etc/aeron-spark/authorized_keys',
        values={"aeron-spark:PUBLIC-KEY": key},
    )
    walk.at_server("clients check /etc/aeron-spark/authorized_keys", wanted="1 key")
    walk.at_server("clients check FILE", values={"FILE": site.clients_file})
    (machine.repository / "authorized_keys").write_text(site.clients_file.read_text())
    walk.shell("install -D -m 0644 -o root authorized_keys /srv/feeds/authorized_keys")
    assert site.run("clients", "check", str(machine.folder / "srv" / "feeds" / "authorized_keys")).code == 0
    site.lines["ops"] = f"all name=ops {key}"
    site.configure()
    walk.at_server("server check --config /etc/aeron-spark/server.toml", wanted="^ok: options")
    walk.at_server("server check --config FILE", wanted="^ok: options", values={"FILE": site.config})
    walk.at_server("server check", f"--config {site.config}", wanted="^ok: options")
    for command in ("df /dev/shm", "ls /dev/shm", "ulimit -n"):
        assert walk.shell(command)


def connect(walk: Walk, site: OperatedServer) -> None:
    """Do the steps of the first day."""
    config = f"--config {site.config}"
    walk.at_server("server status --ready", config, wanted="^ready$")
    walk.at_server("server status", config, wanted="maxConnections")
    key = walk.at_server("keys show --server", wanted="^aeron-spark:").out.strip()
    trusted = {"aeron-spark:SERVER-KEY": key}
    walk.remotely("keys trust feeds.example:20121 aeron-spark:SERVER-KEY", values=trusted)
    walk.remotely("keys trust", f"HOST:PORT {key}")
    walk.remotely("ping feeds.example:20121", "-n 1", wanted="^1 pings")
    walk.remotely("streams create prices --partitions 4 --retention 7d --server feeds.example:20121")
    walk.remotely("streams list --server feeds.example:20121", wanted=r"^prices\tok\t")
    walk.remotely("streams list --server HOST:PORT", wanted=r"^prices\tok\t")
    site.add_key("desk-7", "streams=prices:read,write")
    site.write_clients()
    tested = {"NAME": "desk-7", "ACTION": "write", "[TARGET]": "prices"}
    walk.at_server("clients test NAME ACTION [TARGET]", config, wanted="allowed by line", values=tested)
    walk.at_server("clients test desk-7 write prices --config /etc/aeron-spark/server.toml", wanted="allowed by line")
    walk.at_server("server reload", config)
    walk.at_server(
        "server reload --config /etc/aeron-spark/config/server.toml",
        values={f"{site.folder}/config/server.toml": site.config},
    )
    with site.connect("desk-7").writer("prices") as writer:
        writer.write(b"row")


def back_up(walk: Walk, machine: Machine, site: OperatedServer) -> None:
    """Back up the server; its folders cannot be checked while it runs."""
    config = f"--config {site.config}"
    walk.at_server("server backup DIR", config, wanted="1 stream of ", values={"DIR": machine.folder / "first"})
    walk.at_server("server backup", f"{machine.folder / 'second'} {config}")
    walk.at_server("server verify", config, wanted="is in use by server process", codes=(3,))


def operate(walk: Walk, site: OperatedServer) -> None:
    """Watch and end connections, ban keys and networks, and purge."""
    config = f"--config {site.config}"
    listed = walk.at_server("connections list", f"{config} --json", wanted="desk-7")
    [connection] = [one for one in listed.lines if one["name"] == "desk-7"]
    walk.at_server("connections describe ID", config, wanted="prices", values={"ID": connection["id"]})
    walk.at_server("top --server", f"--count 1 --every 0.1 {config}", wanted="desk-7")
    filters = {"[--name]": "--name desk-7", "[--key]": "--key desk-7", "[--tag]": "--tag desk-7"}
    walk.at_server(
        "connections kick [ID...] [--name] [--key] [--tag] [--address]", f"--dry-run {config}",
        wanted="would end 1 connection",
        values={**filters, "[ID...]": connection["id"], "[--address]": "--address 127.0.0.1"},
    )  # fmt: skip
    walk.at_server("connections kick ID", config, wanted="ended 1 connection", values={"ID": connection["id"]})
    ended = "connections kick [ID...] [--name] [--key] [--tag] [--address]"
    others = {**filters, "[ID...]": "", "[--tag]": "--tag other", "[--address]": ""}
    walk.at_server(ended, config, wanted="no connection", codes=(1,), values=others)
    walk.at_server("bans add --key KEY", f"--for 1h --reason leaked {config}", values={"KEY": "desk-7"})
    walk.at_server("bans add --address NETWORK", config, values={"NETWORK": "203.0.113.0/24"})
    walk.at_server("bans list", config, wanted="203.0.113.0/24")
    walk.at_server("bans remove", f"--key desk-7 {config}")
    walk.remotely(
        "streams purge",
        "prices --keep 1GiB --yes --server HOST:PORT",
        wanted=r"^nothing to purge: no partition has a transaction before",
    )
    walk.remotely(
        "bench load HOST:PORT --clients 1000 --hold 60 --identity FILE",
        values={"1000": 2, "60": 1, "FILE": site.folder / "remote" / "identity"},
    )


def test_the_commands_for_a_node_do_what_the_page_says(machine: Machine, site: OperatedServer) -> None:
    walk = Walk(machine, site)
    for command in ("stat", "errors", "loss", "backlog"):
        walk.at_server(command)
    walk.at_server("node status", wanted="running")
    walk.at_server("top", "--count 1 --every 0.1")
    walk.at_server("doctor", codes=(0, 1), wanted="/dev/shm")
    rows = site.folder / "rows"
    rows.write_text("one\n")
    sent = site.run("send", str(rows), *shlex.split(RECORDED), "--record", "--ack", "archive")
    assert sent.code == 0, sent.err
    listed = walk.at_server("recordings list", f"{RECORDED} --json")
    [recording] = [one for one in listed.lines if one["id"] is not None]
    walk.at_server("recordings stop", RECORDED)
    walk.at_server("recordings delete", f"{recording['id']} --yes", wanted="deleted")
    assert walk.executed == WITH_A_NODE


@pytest.fixture
def upgraded(machine: Machine, aeron_dir: Path, shared: Path) -> Iterator[OperatedServer]:
    """A server that starts its node, with all files in the folders that the page names."""
    machine.configuration.mkdir()
    machine.data_home.mkdir(parents=True)
    one = OperatedServer(machine.configuration, machine.data_home, aeron_dir, shared, run, WATCHDOG_S)
    yield one
    one.close()


@pytest.mark.full("a node is started four times; the test above executes the other commands of the page")
def test_an_upgrade_as_the_page_describes_it_can_be_undone_with_its_copy(
    machine: Machine, upgraded: OperatedServer
) -> None:
    site = upgraded
    walk = Walk(machine, site)
    site.add_key("desk-0", "role=desks")
    site.write_clients()
    walk.at_server("node start --sync-level 1", "--term-length 64k")
    walk.at_server("node start", "--sync-level 1 --term-length 64k", wanted="running")
    walk.at_server("node stop")
    site.start()
    assert site.stream("create", "orders").code == 0
    kept, lost = site.single("desk-0"), site.single("desk-0")
    kept.commit_row()
    site.request_end()
    assert site.await_end() == 0
    walk.at_server("node stop", wanted="no node runs")
    walk.shell(
        "COPY=/var/backups/aeron-spark-$(date +%Y-%m-%dT%H%M%S)",
        'install -d -m 0700 "$COPY"',
        'cp -a --sparse=always /var/lib/aeron-spark "$COPY"/data',
        'cp -a /etc/aeron-spark "$COPY"/configuration',
    )
    walk.shell("NEW=0.2.0", "ln -sfn /opt/aeron-spark/$NEW/bin/aeron-spark /usr/bin/aeron-spark")
    site.start()
    lost.commit_row()
    assert len(site.read()) == 2
    site.request_end()
    assert site.await_end() == 0

    [copy] = (machine.folder / "var" / "backups").iterdir()
    shutil.rmtree(machine.data_home)
    shutil.copytree(copy / "data", machine.data_home, symlinks=True)
    site.start()
    assert len(site.read()) == 1
    assert (copy / "configuration" / "server.toml").read_text() == site.config.read_text()
    assert walk.executed == WITH_AN_OWN_NODE
    site.request_end()
    assert site.await_end() == 0
