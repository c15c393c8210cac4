"""The brokers that we measure ourselves against, each started on loopback and stopped by its process id."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

LOADGEN = Path(__file__).parent / "loadgen"


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


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


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
