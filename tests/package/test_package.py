"""Wheels and the source distribution are built as users build them, installed into a fresh environment, and serve."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.management import ServiceBusAdministrationClient

from polybus.testing.server import ServerProcess
from tests.package.conftest import Installation, run

PIP = (sys.executable, "-m", "pip")
OFFLINE = ("--no-deps", "--no-build-isolation", "--no-index")
NO_COMPILER = "/there/is/no/compiler"
SERVER_PACKAGES = (
    "rocksdict",
    "starlette",
    "uvicorn",
    "h11",
    "wsproto",
    "cryptography",
    "typer",
    "rich",
    "azure",
    "httpx",
)
AS_AN_EXECUTOR = f"""
import importlib, pkgutil, sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {SERVER_PACKAGES}:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Missing())
import polybus.spark, pyspark_polybus
for module in pkgutil.iter_modules(polybus.spark.__path__):
    importlib.import_module("polybus.spark." + module.name)
print(polybus.__file__)
"""


def wheel(source: Path, to: Path, **environment: str) -> Path:
    run([*PIP, "wheel", "--quiet", *OFFLINE, "--wheel-dir", to, source], **environment)  # type: ignore[arg-type]
    (made,) = to.glob("*.whl")
    return made


def compiled_parts(made: Path) -> list[str]:
    with zipfile.ZipFile(made) as opened:
        return [name for name in opened.namelist() if name.endswith(".so")]


def serves(installation: Installation, data: Path, build: str, **environment: str) -> None:
    """Starts the installed bus, says hello through it and hears hello."""
    server = ServerProcess(data, environment={"PYTHONPATH": "", "POLYBUS_BUILD": "auto"} | environment)
    server.program = (str(installation.python), "-m", "polybus")  # type: ignore[assignment]
    with server:
        assert any(f"({build} build" in line for line in server.output), server.output
        admin = ServiceBusAdministrationClient.from_connection_string(
            server.admin_connection_string, connection_verify=str(server.authority)
        )
        with admin:
            admin.create_queue("orders", enable_partitioning=True)
        with ServiceBusClient.from_connection_string(server.connection_string) as client:
            with client.get_queue_sender("orders") as sender:
                sender.send_messages(ServiceBusMessage("hello"))
            with client.get_queue_receiver("orders", max_wait_time=10) as receiver:
                (message,) = receiver.receive_messages(max_message_count=1)
                assert str(message) == "hello"
                receiver.complete_message(message)


def test_a_pure_wheel_serves_and_knows_nothing_of_the_checkout(
    checkout: Path, installation: Installation, tmp_path: Path
) -> None:
    made = wheel(checkout, tmp_path, POLYBUS_BUILD="plain")
    assert made.name.endswith("-py3-none-any.whl")
    assert compiled_parts(made) == []
    installation.pip(made)
    where = run([installation.python, "-c", "import polybus; print(polybus.__file__)"]).stdout
    assert where.startswith(str(installation.packages))
    serves(installation, tmp_path / "data", "plain")
    (tmp_path / "test_it.py").write_text("def test_it(bus):\n    assert bus.connection_string\n")
    ran = run([installation.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", tmp_path / "test_it.py"])
    assert "1 passed" in ran.stdout


def test_the_source_distribution_builds_and_serves(
    checkout: Path, installation: Installation, tmp_path: Path
) -> None:
    run([sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", tmp_path, checkout])
    (source,) = tmp_path.glob("*.tar.gz")
    installation.pip(source, POLYBUS_BUILD="plain")
    serves(installation, tmp_path / "data", "plain")


def test_without_a_compiler_the_wheel_is_pure_and_says_so_loudly(checkout: Path, tmp_path: Path) -> None:
    said = run([*PIP, "wheel", "-v", *OFFLINE, "--wheel-dir", tmp_path, checkout], CC=NO_COMPILER)
    assert "THIS IS THE PLAIN BUILD" in said.stdout + said.stderr
    (made,) = tmp_path.glob("*.whl")
    assert made.name.endswith("-py3-none-any.whl")


def test_who_insists_on_compiling_without_a_compiler_gets_no_wheel(checkout: Path, tmp_path: Path) -> None:
    command = [*PIP, "wheel", *OFFLINE, "--wheel-dir", tmp_path, checkout]
    done = run(command, check=False, CC=NO_COMPILER, POLYBUS_BUILD="compiled")  # type: ignore[arg-type]
    assert done.returncode != 0
    assert "POLYBUS_BUILD=compiled, but there is no C compiler" in done.stdout + done.stderr


def test_an_editable_install_puts_no_compiled_module_among_the_sources(
    checkout: Path, installation: Installation
) -> None:
    installation.pip("-e", checkout)
    assert list(checkout.rglob("*.so")) == []
    assert "(plain build" in installation.polybus("version").stdout


def test_insisting_on_a_build_that_is_not_there_is_one_clear_line(checkout: Path, installation: Installation) -> None:
    installation.pip("-e", checkout)
    done = installation.polybus("version", POLYBUS_BUILD="compiled")
    assert done.returncode == 1
    assert done.stderr.startswith("polybus: POLYBUS_BUILD=compiled, but there is no compiled build")
    assert len(done.stderr.splitlines()) == 1
    done = installation.polybus("version", POLYBUS_BUILD="fast")
    assert done.stderr == "polybus: POLYBUS_BUILD is auto, plain or compiled, not fast\n"


def test_an_executor_of_spark_needs_nothing_of_a_server(
    checkout: Path, installation: Installation, tmp_path: Path
) -> None:
    pytest.importorskip("pyspark")
    installation.pip(wheel(checkout, tmp_path, POLYBUS_BUILD="plain"))
    where = run([installation.python, "-c", AS_AN_EXECUTOR]).stdout
    assert where.startswith(str(installation.packages))


@pytest.mark.slow
def test_a_wheel_for_this_platform_serves_compiled_and_can_run_plain(
    checkout: Path, installation: Installation, tmp_path: Path
) -> None:
    run([sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path, checkout])
    (made,) = tmp_path.glob("*.whl")
    assert "-any" not in made.name
    assert any(name.startswith("polybus/partition/broker.") for name in compiled_parts(made))
    assert list((checkout / "src").rglob("*.so")) == []
    installation.pip(made)
    where = [installation.python, "-c", "import polybus.partition.broker as it; print(it.__file__)"]
    assert run(where).stdout.strip().endswith(".so")  # type: ignore[arg-type]
    assert run(where, POLYBUS_BUILD="plain").stdout.strip().endswith("broker.py")  # type: ignore[arg-type]
    serves(installation, tmp_path / "compiled", "compiled")
    serves(installation, tmp_path / "plain", "plain", POLYBUS_BUILD="plain")
