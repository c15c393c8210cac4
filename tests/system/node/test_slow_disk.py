"""A disk that does not answer reads holds up those who need it, and nobody else."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from polybus.testing.server import ServerProcess
from tests.requirements.kit import Gate, http_client

QUEUE = '<entry xmlns="http://www.w3.org/2005/Atom"><content><QueueDescription/></content></entry>'


def test_the_bus_answers_while_its_stores_do_not_read(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", "--stores", "2") as server:
        gate = Gate(server)
        with http_client(server) as http:
            assert http.put("/q", content=QUEUE).status_code == 201
            assert http.post("/q/messages", content=b"1").status_code == 201
        gate.close()
        server.restart(kill=True)
        gate = Gate(server)
        for store in range(2):
            gate.switch(f"stores/{store}/hang", calls=["get", "scan"])
        with http_client(server) as http:
            with pytest.raises(httpx.ReadTimeout):
                http.delete("/q/messages/head?timeout=60", timeout=1)
            assert http.get("/health/live").status_code == 200
            assert http.post("/q/messages", content=b"2").status_code == 201
            gate.switch("heal")
            found = {http.delete("/q/messages/head?timeout=60").content for _ in range(2)}
        gate.close()
        assert found == {b"1", b"2"}
