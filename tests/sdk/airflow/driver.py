"""Starts a bus, makes Airflow a home with its own database, and runs the checks in Airflow's own environment."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.sdk.celery.driver import tally
from tests.sdk.driving import environment, verdict

from polybus.testing.server import ServerProcess

HERE = Path(__file__).parent


def connections(server: ServerProcess) -> dict[str, str]:
    """The connections that the checks name: messages go to the plain port, management to the one with TLS."""
    texts = {"bus": server.connection_string, "bus_admin": server.admin_connection_string}
    kind = "azure_service_bus"
    return {
        f"AIRFLOW_CONN_{name.upper()}": json.dumps({"conn_type": kind, "schema": text}) for name, text in texts.items()
    }


def surroundings(server: ServerProcess, home: Path) -> dict[str, str]:
    own = {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(HERE / "dags"),
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "WARNING",
        "REQUESTS_CA_BUNDLE": str(server.authority),
    }
    return environment(server, **connections(server), **own)


def command(python: str, chosen: list[str]) -> list[str]:
    only = ["-k", chosen[0]] if chosen else []
    own = ["-c", "/dev/null", "--rootdir", str(HERE), "--noconftest", "-p", "no:cacheprovider"]
    return [python, "-m", "pytest", "-q", "-rf", *own, *only, str(HERE / "airflow_checks.py")]


def main() -> int:
    python, *chosen = sys.argv[1:]
    with tempfile.TemporaryDirectory() as name, ServerProcess(Path(name) / "data") as server:
        told = surroundings(server, Path(name) / "airflow")
        airflow = Path(python).with_name("airflow")
        subprocess.run([python, str(airflow), "db", "migrate"], env=told, check=True, stdout=subprocess.DEVNULL)
        told.pop("PYTHONPATH", None)
        done = subprocess.run(command(python, chosen), env=told, cwd=HERE, capture_output=True, text=True)
    print((done.stdout + done.stderr)[-20_000:])
    return verdict(done.returncode, *tally(done.stdout), server)


if __name__ == "__main__":
    sys.exit(main())
