"""`polybus check`: looks at everything that a data folder holds, changes nothing, and says what does not fit.

Every record of every store against its checksum and version; every index row against its message and every message
against its index rows; the counters against what they count; all of it against the catalogue. The format itself
lives in `partition.records` and in the catalogue; only what must hold between records is known here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from polybus.amqp.codec import decode
from polybus.errors import ProtocolError, StoreCorrupt, StoreError
from polybus.hosting.partition_host import MARKS
from polybus.hosting.places import own_stores
from polybus.operations.catalogue_facts import CatalogueFacts, EntityFacts
from polybus.operations.findings import PREFIX_BYTES, CheckFinding, Findings
from polybus.operations.message_tables import BROKEN
from polybus.operations.partition_check import PartitionCheck
from polybus.operations.store_reader import StoreReader, open_reader
from polybus.partition.kinds import DEAD_LETTER, KINDS, MAIN
from polybus.partition.records import after, unsealed


@dataclass
class EntityReport:
    """What lies in the partitions of one entity."""

    name: str
    kind: str
    partitions: int
    reachable: int = 0
    """How many of the partitions lie in stores that could be read."""
    active: int = 0
    deferred: int = 0
    scheduled: int = 0
    dead_letter: int = 0
    transfer: int = 0
    retained: int = 0
    size_bytes: int = 0
    findings: int = 0

    def add(self, check: PartitionCheck) -> None:
        self.reachable -= not check.readable
        self.findings += check.findings
        self.scheduled += check.tables.scheduled
        self.transfer += check.tables.transfers
        self.size_bytes += check.counters.size
        for log_id, log in check.logs.items():
            self.retained += log.retained
            if log_id % KINDS == MAIN:
                self.active += log.active
                self.deferred += log.deferred
            elif log_id % KINDS == DEAD_LETTER:
                self.dead_letter += log.active + log.deferred
            else:
                self.transfer += log.active + log.deferred


@dataclass
class StoreReport:
    url: str
    store_id: str
    partitions: int = 0
    rows: int = 0


@dataclass
class Report:
    """The result of a check. It is clean where nothing was found."""

    catalogue_records: int = 0
    stores: list[StoreReport] = field(default_factory=list)
    entities: list[EntityReport] = field(default_factory=list)
    findings: list[CheckFinding] = field(default_factory=list)
    finding_count: int = 0

    @property
    def clean(self) -> bool:
        return self.finding_count == 0

    @property
    def rows(self) -> int:
        return self.catalogue_records + sum(store.rows for store in self.stores)


def store_urls(data: Path) -> list[str]:
    """The messaging stores that a data folder holds, in the order of their names."""
    return own_stores(data, None)


def catalogue_url(data: Path) -> str:
    return f"rocksdb:{data / 'catalogue'}"


def check(catalogue: str, stores: list[str]) -> Report:
    """Looks at the catalogue and the stores at these addresses.

    StoreError where one cannot be looked at at all; what is damaged is a finding, not an error.
    """
    findings = Findings()
    readers: list[StoreReader] = []
    try:
        facts = _catalogue_facts(catalogue, findings)
        for url in stores:
            try:
                readers.append(open_reader(url))
            except StoreCorrupt as error:
                findings.add(CheckFinding(url, "store", None, "", str(error)))
        return _OfflineCheck(facts, readers, findings).run()
    finally:
        for reader in readers:
            reader.close()


def _catalogue_facts(url: str, findings: Findings) -> CatalogueFacts:
    reader = open_reader(url)
    try:
        return CatalogueFacts(reader, findings)
    finally:
        reader.close()


class _OfflineCheck:
    def __init__(self, facts: CatalogueFacts, readers: list[StoreReader], findings: Findings) -> None:
        self._facts = facts
        self._readers = readers
        self._findings = findings
        self._checks: dict[tuple[int, int], PartitionCheck] = {}
        self._removed: dict[int, set[int]] = {}
        for entity_id, number in facts.tombstones:
            self._removed.setdefault(entity_id, set()).add(number)

    def run(self) -> Report:
        report = Report(self._facts.records)
        for reader in self._readers:
            report.stores.append(self._check_store(reader))
        self._look_for_missing_stores()
        self._compare_transfers()
        report.entities = self._entity_reports()
        report.findings = self._findings.kept
        report.finding_count = self._findings.count
        return report

    def _note(self, reader: StoreReader, what: str, problem: str, key: str = "") -> None:
        self._findings.add(CheckFinding(reader.url, what, None, key, problem))

    # Stores

    def _check_store(self, reader: StoreReader) -> StoreReport:
        report = StoreReport(reader.url, reader.store_id.hex())
        if reader.store_id not in self._facts.stores:
            self._note(reader, "store", "the catalogue does not know this messaging store")
        if sum(other.store_id == reader.store_id for other in self._readers) > 1:
            self._note(reader, "store", "another of the given stores has the same id: one is a copy")
        try:
            for prefix in self._partition_prefixes(reader):
                report.partitions += 1
                report.rows += self._check_partition(reader, prefix)
            report.rows += self._check_marks(reader)
        except StoreError as error:
            self._note(reader, "store", str(error))
        return report

    def _partition_prefixes(self, reader: StoreReader) -> list[bytes]:
        found: list[bytes] = []
        start, end = b"", b"\xff" * 64
        while (row := next(reader.rows(start, end), None)) is not None:
            key = row[0]
            if key.startswith(MARKS):
                start = after(MARKS)
            elif key.startswith(b"P") and len(key) > PREFIX_BYTES:
                found.append(key[:PREFIX_BYTES])
                start = after(key[:PREFIX_BYTES])
            else:
                self._note(reader, "store", "no table of a messaging store has such a key", f"key {key.hex()}")
                start = key + b"\0"
        return found

    def _check_partition(self, reader: StoreReader, prefix: bytes) -> int:
        entity_id, index = int.from_bytes(prefix[1:5], "big"), int.from_bytes(prefix[5:], "big")
        entity = self._facts.entities.get(entity_id)
        if entity is None:
            if (entity_id, 0) not in self._facts.tombstones and entity_id not in self._facts.unreadable:
                text = f"rows of entity {entity_id}, which does not exist and is not being removed"
                self._note(reader, f"entity {entity_id} partition {index}", text)
            return 0
        if index >= len(entity.placement) or entity.placement[index] != reader.store_id:
            self._note(
                reader, f"{entity.name} partition {index}", "its rows lie in a store where it was never placed"
            )
            return 0
        check = PartitionCheck(reader, entity, index, self._removed.get(entity_id, set()), self._findings)
        check.run()
        self._checks[entity_id, index] = check
        return check.rows

    def _check_marks(self, reader: StoreReader) -> int:
        """Marks name what a send in doubt may have left in another store; the catalogue knows of the doubt."""
        count = 0
        for key, value in reader.rows(MARKS, after(MARKS)):
            count += 1
            store = key[len(MARKS) : len(MARKS) + 16]
            try:
                keys, _ = decode(unsealed(value, "a mark"), 0)
                if not isinstance(keys, list):
                    raise StoreCorrupt("a mark is not a list of keys")
            except (*BROKEN, ProtocolError) as error:
                self._note(reader, "marks", str(error), f"key {key.hex()}")
                continue
            if store not in self._facts.doubts:
                text = f"a mark about store {store.hex()}, which the catalogue does not doubt"
                self._note(reader, "marks", text, f"key {key.hex()}")
        return count

    # Between stores

    def _look_for_missing_stores(self) -> None:
        given = {reader.store_id for reader in self._readers}
        missing: dict[bytes, int] = {}
        for entity in self._facts.entities.values():
            for store in entity.placement:
                if store not in given:
                    missing[store] = missing.get(store, 0) + 1
        for store, partitions in missing.items():
            text = f"{partitions} partitions were placed on this messaging store, and it is not there to be looked at"
            self._findings.add(CheckFinding(f"store {store.hex()}", "store", None, "", text))

    def _compare_transfers(self) -> None:
        """No partition has taken over more than its source has given."""
        for check in self._checks.values():
            for source, number in check.tables.seen.items():
                giver = self._checks.get(source)
                if giver is not None and giver.readable and number > giver.counters.transfer_counter:
                    text = f"took over number {number}, the source has given {giver.counters.transfer_counter}"
                    name = f"entity {source[0]} partition {source[1]}"
                    place = (check.reader.url, check.entity.name, check.index)
                    self._findings.add(CheckFinding(*place, f"inbox from {name}", text))

    def _entity_reports(self) -> list[EntityReport]:
        reports: dict[int, EntityReport] = {}
        given = {reader.store_id for reader in self._readers}
        for entity in sorted(self._facts.entities.values(), key=_by_name):
            kind = "topic" if entity.topic else "queue"
            reachable = sum(store in given for store in entity.placement)
            reports[entity.id] = EntityReport(entity.name, kind, entity.partition_count, reachable)
        for (entity_id, _), check in self._checks.items():
            reports[entity_id].add(check)
        return list(reports.values())


def _by_name(entity: EntityFacts) -> tuple[str, str]:
    return entity.namespace.lower(), entity.name.lower()
