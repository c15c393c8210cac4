"""The offline checker over simulated disks: at every death the rows must fit together, not only at the end."""

from __future__ import annotations

from polybus.operations.catalogue_facts import CatalogueFacts
from polybus.operations.check import _OfflineCheck
from polybus.operations.findings import Findings
from polybus.operations.store_reader import OpenStoreReader
from tests.support.simulation.world import World


def check_disks(world: World) -> list[str]:
    """What does not fit together in what is synced."""
    findings = Findings()
    facts = CatalogueFacts(OpenStoreReader(world.catalogue.copy()), findings)
    report = _OfflineCheck(facts, [OpenStoreReader(disk.copy()) for disk in world.disks], findings).run()
    return [f"on disk: {finding}" for finding in report.findings]
