"""The brokers that we measure ourselves against, each started on loopback and stopped by its process id."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

LOADGEN = Path(__file__).parent / "loadgen"
ARTEMIS = "org.apache.activemq:apache-artemis:2.44.0:tar.gz:bin"
BROKER_J = "org.apache.qpid:apache-qpid-broker-j:9.2.1:tar.gz:bin"
QUEUES = ("q", *(f"q{number}" for number in range(8)))
"""What every rival has: one queue for all, and eight."""


class Unavailable(Exception):
    """A rival or a tool is not on this machine; the text says how to get it."""


def build_loadgen() -> None:
    done = subprocess.run(["make", "-s", "-C", str(LOADGEN)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unavailable(
            "the load generator needs a C compiler and Debian's libqpid-proton11-dev:\n" + done.stderr[-500:]
        )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for_port(port: int, process: subprocess.Popen[bytes], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise Unavailable(f"a rival ended with code {process.returncode} before it listened")
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise Unavailable("a rival did not listen in time")


def fetched(artifact: str) -> Path:
    """The folder that a distribution from Maven's repository is unpacked in; it is kept for the next time."""
    if shutil.which("mvn") is None or shutil.which("java") is None:
        raise Unavailable(f"{artifact} needs Java and Maven (Debian: default-jre-headless, maven)")
    _, name, version, *_ = artifact.split(":")
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "polybus-bench"
    folder = cache / f"{name}-{version}"
    if not folder.exists():
        copy = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
        command = ["mvn", "-q", "-B", copy, f"-Dartifact={artifact}", f"-DoutputDirectory={cache}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
        packed = cache / f"{name}-{version}-bin.tar.gz"
        if done.returncode or not packed.exists():
            raise Unavailable(f"Maven cannot get {artifact}: {(done.stdout or done.stderr).strip()[-200:]}")
        partial = cache / f"{folder.name}-{os.getpid()}"
        partial.mkdir()
        subprocess.run(["tar", "xzf", str(packed), "-C", str(partial)], check=True)
        packed.unlink()
        partial.rename(folder)
    return folder


def found_in(folder: Path, name: str) -> Path:
    return next(path for path in sorted(folder.rglob(name)) if path.is_file())


def processes(pid: int) -> list[int]:
    """A process and all that it has started."""
    found = [pid]
    for each in found:
        for task in Path(f"/proc/{each}/task").glob("*/children"):
            found += [int(child) for child in task.read_text().split()]
    return found


def cpu_seconds(pid: int) -> float:
    """Of the process and of those that it has started."""
    ticks = 0
    for each in processes(pid):
        fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


class Rival:
    """A server that speaks AMQP 1.0 on `port`."""

    port: int
    process: subprocess.Popen[bytes]

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    @property
    def pid(self) -> int:
        return self.process.pid


class Reference(Rival):
    """The C broker on Proton's engine: what the protocol itself costs."""

    def __init__(self) -> None:
        self.port = free_port()
        self.process = subprocess.Popen([str(LOADGEN / "proton_cserver"), str(self.port)], stderr=subprocess.DEVNULL)
        wait_for_port(self.port, self.process)


class RabbitMQ(Rival):
    """RabbitMQ with its AMQP 1.0 plugin and durable queues, everything in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        server = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
        if not server.exists():
            raise Unavailable("RabbitMQ is not here; Debian's package is rabbitmq-server")
        self.port = free_port()
        folder.mkdir(parents=True)
        (folder / "plugins").write_text("[rabbitmq_amqp1_0].\n")
        (folder / "rabbitmq.conf").write_text(f"listeners.tcp.1 = 127.0.0.1:{self.port}\n")
        self._environment = {
            **os.environ,
            "HOME": str(folder),
            "RABBITMQ_NODENAME": f"bench{self.port}@localhost",
            "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(free_port()),
        }
        self.process = subprocess.Popen(
            [str(server)], env=self._environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        wait_for_port(self.port, self.process, 120)

    def declare(self, name: str, kind: str) -> None:
        arguments = f'[{{<<"x-queue-type">>, longstr, <<"{kind}">>}}]'
        text = (
            f'rabbit_amqqueue:declare(rabbit_misc:r(<<"/">>, queue, <<"{name}">>), true, false, {arguments}, none,'
            ' <<"bench">>).'
        )
        control = shutil.which("rabbitmqctl") and "/usr/lib/rabbitmq/bin/rabbitmqctl"
        subprocess.run([str(control), "eval", text], env=self._environment, capture_output=True, check=True)

    def stop(self) -> None:
        subprocess.run(
            ["/usr/lib/rabbitmq/bin/rabbitmqctl", "stop"], env=self._environment, capture_output=True, check=False
        )
        super().stop()
        subprocess.run(
            ["epmd", "-port", self._environment["ERL_EPMD_PORT"], "-kill"], capture_output=True, check=False
        )


class Artemis(Rival):
    """ActiveMQ Artemis with its journal synced by NIO. An address that is not declared as anycast would be a topic
    without subscribers: nothing is written, and it looks three times faster."""

    def __init__(self, folder: Path) -> None:
        program = found_in(fetched(ARTEMIS), "artemis")
        self.port = free_port()
        create = [str(program), "create", str(folder), "--silent", "--nio", "--allow-anonymous", "--no-web"]
        create += ["--user", "guest", "--password", "guest", "--host", "127.0.0.1"]
        done = subprocess.run(create, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Unavailable(f"Artemis makes no instance: {done.stdout.strip()[-200:]}")
        self._configure(folder / "etc" / "broker.xml")
        log = (folder / "log.txt").open("wb")
        self.process = subprocess.Popen([str(folder / "bin" / "artemis"), "run"], stdout=log, stderr=log)
        wait_for_port(self.port, self.process, 120)

    def _configure(self, path: Path) -> None:
        text = path.read_text()
        options = "protocols=AMQP;amqpCredits=1000;amqpLowCredits=300;tcpSendBufferSize=1048576"
        acceptor = f'<acceptor name="amqp">tcp://127.0.0.1:{self.port}?{options}</acceptor>'
        text = re.sub(r"<acceptors>.*</acceptors>", f"<acceptors>{acceptor}</acceptors>", text, flags=re.DOTALL)
        queues = "".join(
            f'<address name="{name}"><anycast><queue name="{name}"/></anycast></address>' for name in QUEUES
        )
        path.write_text(text.replace("<addresses>", f"<addresses>{queues}", 1))


class BrokerJ(Rival):
    """Qpid Broker-J with its store in Berkeley DB."""

    def __init__(self, folder: Path) -> None:
        program = found_in(fetched(BROKER_J), "qpid-server")
        self.port = free_port()
        folder.mkdir(parents=True)
        policy = {"pattern": ".*", "createdOnPublish": "true", "createdOnConsume": "true", "nodeType": "queue"}
        host = {"type": "BDB", "nodeAutoCreationPolicies": [{**policy, "attributes": {}}]}
        aliases = [{"name": kind, "type": kind} for kind in ("defaultAlias", "nameAlias", "hostnameAlias")]
        port = {"name": "AMQP", "port": self.port, "bindingAddress": "127.0.0.1", "virtualhostaliases": aliases}
        node = {"name": "default", "type": "BDB", "defaultVirtualHostNode": "true"}
        configuration = {
            "name": "bench",
            "modelVersion": "9.0",
            "authenticationproviders": [{"name": "anonymous", "type": "Anonymous"}],
            "ports": [{**port, "authenticationProvider": "anonymous"}],
            "virtualhostnodes": [{**node, "virtualHostInitialConfiguration": json.dumps(host)}],
        }
        initial = folder / "initial.json"
        initial.write_text(json.dumps(configuration))
        environment = {**os.environ, "QPID_WORK": str(folder / "work")}
        log = (folder / "log.txt").open("wb")
        command = [str(program), "-icp", str(initial)]
        self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        wait_for_port(self.port, self.process, 120)

    def stop(self) -> None:
        for pid in reversed(processes(self.pid)):  # a script starts the broker
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        super().stop()
