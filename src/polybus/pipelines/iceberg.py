"""Iceberg tables, through `pyiceberg`: a batch is one snapshot, with the query and the batch among its properties.

The table's own properties, changed in the same transaction, keep the last batch of each query, for snapshots expire.
Without a catalogue of one's own there is one in SQLite, in the captured folder.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from polybus.errors import ConfigError
from polybus.limits import LAKE_COMMIT_TRIES
from polybus.pipelines.lake import Lake, LakeBatch
from polybus.pipelines.layout import Layout
from polybus.pipelines.manifests import LakeFile
from polybus.pipelines.object_stores import AZURE, Location, ObjectUrl

CATALOGUE: Final = "_catalog.db"
TABLE: Final = "polybus.messages"


class IcebergLake(Lake):
    whole = True
    suffix = "parquet"

    def __init__(self, root: Location, layout: Layout, options: dict[str, str]) -> None:
        super().__init__(root, layout)
        self.location = iceberg_location(root)
        self._name = options.get("table", TABLE)
        self._properties = {name: value for name, value in options.items() if name != "table"}
        self._opened: Any = None

    def _catalogue(self) -> Any:
        if self._opened is None:
            try:
                from pyiceberg.catalog import load_catalog
            except ImportError:
                raise ConfigError("Iceberg tables need: pip install 'polybus[pipelines]'") from None
            if isinstance(self.root, ObjectUrl) and self.root.kind == AZURE and find_spec("adlfs") is None:
                raise ConfigError("Iceberg tables on Azure need: pip install 'polybus[pipelines,azure]'")
            self._opened = load_catalog(
                "polybus", **{**iceberg_options(self.root), **(self._properties or self._own())}
            )
        return self._opened

    def _own(self) -> dict[str, str]:
        assert isinstance(self.root, Path), "the file is refused where a table on an object store has no catalogue"
        self.root.mkdir(parents=True, exist_ok=True)
        return {"type": "sql", "uri": f"sqlite:///{self.root / CATALOGUE}", "warehouse": self.location}

    def last(self, query: str) -> int:
        return int(self._known(query)[0])

    def ends(self, query: str, last: int) -> str:  # noqa: ARG002
        return self._known(query)[1]

    def _known(self, query: str) -> tuple[str, str]:
        table = self.table()
        number, _, ends = ("-1" if table is None else table.properties.get(_property(query), "-1")).partition(" ")
        return number, ends

    def commit(self, batch: LakeBatch, files: list[LakeFile], schema: Any) -> None:
        """Data files are put in place first: the snapshot alone makes them count."""
        self.folder.put_in_place(batch.id, files)
        self._add(batch, [self.named(file.path) for file in files], schema)
        self.folder.clear(batch.id, files)

    def named(self, path: str) -> str:
        """What the table calls one of its files."""
        return self.folder.whole(path) if isinstance(self.root, Path) else f"{self.location}/{path}"

    def inside(self, named: str) -> str | None:
        """The path, within the folder, of a file that the table names; None where it lies elsewhere."""
        if isinstance(self.root, Path):
            path = local_path(named)
            return str(path.relative_to(self.root)) if path.is_relative_to(self.root) else None
        start = f"{self.location}/"
        return named.removeprefix(start) if named.startswith(start) else None

    def _add(self, batch: LakeBatch, paths: list[str], schema: Any) -> None:
        """The batch as a snapshot, on top of whatever others commit meanwhile."""
        from pyiceberg.exceptions import CommitFailedException

        told = {"polybus.query": batch.query, "polybus.batch": str(batch.number)}
        for _ in range(LAKE_COMMIT_TRIES):
            try:
                with self._ready_table(schema).transaction() as transaction:
                    with transaction.update_schema() as update:
                        update.union_by_name(schema)
                    transaction.add_files(paths, snapshot_properties=told)
                    transaction.set_properties({_property(batch.query): f"{batch.number} {batch.ends}"})
                return
            except CommitFailedException:
                # Somebody else was quicker; or it is in, and the catalogue was asked twice.
                if self.last(batch.query) >= batch.number:
                    return
        raise ConfigError(f"{self.root}: others commit all the time, and batch {batch.number} found no gap")

    def _ready_table(self, schema: Any) -> Any:
        """The table, made and partitioned where it was not, also where a crash came between the two."""
        catalogue = self._catalogue()
        catalogue.create_namespace_if_not_exists(self._name.rpartition(".")[0])
        table = catalogue.create_table_if_not_exists(self._name, schema, location=self.location)
        if table.current_snapshot() is None and table.spec().is_unpartitioned():
            with table.update_spec() as spec:
                _partition(spec, self.layout.levels)
        return table

    def table(self) -> Any:
        """The table as it is now; None where nothing was captured yet."""
        catalogue = self._catalogue()
        return catalogue.load_table(self._name) if catalogue.table_exists(self._name) else None

    def files(self) -> list[str]:
        table = self.table()
        named = [] if table is None else [task.file.file_path for task in table.scan().plan_files()]
        return sorted(str(local_path(each)) if isinstance(self.root, Path) else each for each in named)


def iceberg_location(root: Location) -> str:
    """A folder as pyiceberg names it: it knows Azure's by the account."""
    if isinstance(root, Path):
        return root.as_uri()
    if root.kind != AZURE:
        return root.url
    account = root.resolved().get("AZURE_STORAGE_ACCOUNT_NAME")
    if not account:
        raise ConfigError(f"{root}: an Iceberg table needs the 'account' of its store")
    return f"abfss://{root.container}@{account}.dfs.core.windows.net/{root.prefix}"


_FILE_IO: Final = {
    "AWS_ENDPOINT_URL": "s3.endpoint",
    "AWS_REGION": "s3.region",
    "AWS_ACCESS_KEY_ID": "s3.access-key-id",
    "AWS_SECRET_ACCESS_KEY": "s3.secret-access-key",
    "AWS_SESSION_TOKEN": "s3.session-token",
    "AZURE_STORAGE_ACCOUNT_NAME": "adls.account-name",
    "AZURE_STORAGE_ACCOUNT_KEY": "adls.account-key",
    "AZURE_STORAGE_SAS_KEY": "adls.sas-token",
    "AZURE_STORAGE_CLIENT_ID": "adls.client-id",
    "AZURE_STORAGE_CLIENT_SECRET": "adls.client-secret",
    "AZURE_STORAGE_TENANT_ID": "adls.tenant-id",
    "GOOGLE_BASE_URL": "gcs.service.host",
}
"""Variables of stores as pyiceberg calls them."""


def iceberg_options(root: Location) -> dict[str, str]:
    """What pyiceberg needs to reach a table's files, secrets included."""
    if isinstance(root, Path):
        return {}
    told = root.resolved()
    found = {_FILE_IO[name]: value for name, value in told.items() if name in _FILE_IO}
    endpoint = told.get("AZURE_STORAGE_ENDPOINT")
    if endpoint:
        # Only so can its driver be told of a place that is not Azure's own.
        key = f"AccountKey={told.get('AZURE_STORAGE_ACCOUNT_KEY', '')}"
        account = f"AccountName={told['AZURE_STORAGE_ACCOUNT_NAME']}"
        scheme = f"DefaultEndpointsProtocol={urlsplit(endpoint).scheme}"
        found["adls.connection-string"] = f"{scheme};{account};{key};BlobEndpoint={endpoint};"
    return found


def local_path(told: str) -> Path:
    """Where a data file lies: the capture names it by its path, engines by a URL."""
    return Path(unquote(urlsplit(told).path) if told.startswith("file:") else told)


def _partition(spec: Any, levels: tuple[str, ...]) -> None:
    """The same parts as the folders, as far as they are made from columns."""
    from pyiceberg.transforms import DayTransform, HourTransform, IdentityTransform

    if "hour" in levels and "date" in levels:
        # A folder of an hour alone has that hour of every day, which is no part of a table.
        spec.add_field("enqueued_time", HourTransform(), "enqueued_hour")
    elif "date" in levels:
        spec.add_field("enqueued_time", DayTransform(), "enqueued_day")
    if "partition" in levels:
        spec.add_field("partition", IdentityTransform(), "by_partition")


def _property(query: str) -> str:
    return f"polybus.last-batch.{query}"
