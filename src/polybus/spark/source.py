"""The data source that Spark knows as `servicebus`: it hands out readers and writers and does nothing else."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from polybus.errors import ConfigError
from polybus.spark.batch_reader import FilteringBatchReader, ServiceBusBatchReader
from polybus.spark.columns import spark_schema
from polybus.spark.options import SinkOptions, SourceOptions, sink_options, source_options
from polybus.spark.stream_reader import ServiceBusStreamReader
from polybus.spark.tables import is_table, over, recalled, remembered, table_options
from polybus.spark.writers import ServiceBusBatchWriter, ServiceBusStreamWriter


class ServiceBusDataSource(DataSource):  # type: ignore[misc]
    """`spark.read`, `readStream`, `write` and `writeStream` with `format("servicebus")`."""

    @classmethod
    def name(cls) -> str:
        return "servicebus"

    def schema(self) -> StructType:
        if is_table(self.options):
            options = table_options(self.options)
            return remembered(spark_schema(source_options(options, table=True).columns), options)
        return spark_schema(source_options(self.options).columns)

    def reader(self, schema: StructType) -> ServiceBusBatchReader:
        options = self._source(schema)
        return FilteringBatchReader(options) if options.push_filters else ServiceBusBatchReader(options)

    def streamReader(self, schema: StructType) -> ServiceBusStreamReader:  # noqa: N802
        options = self._source(schema)
        if options.states != ("active",):
            raise ConfigError(
                "a stream reads messages as they arrive, in every state; the option 'state' is for batches"
            )
        return ServiceBusStreamReader(options, table=bool(recalled(schema)))

    def writer(self, schema: StructType, overwrite: bool) -> ServiceBusBatchWriter:
        if overwrite:
            raise ConfigError("messages cannot be overwritten; use mode('append')")
        return ServiceBusBatchWriter(self._sink(schema), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> ServiceBusStreamWriter:  # noqa: N802
        if overwrite:
            raise ConfigError("messages cannot be overwritten; use outputMode('append') or 'update'")
        return ServiceBusStreamWriter(self._sink(schema), schema)

    def _source(self, schema: StructType) -> SourceOptions:
        table = recalled(schema)
        options = source_options(over(table, self.options), bool(table))
        if schema.fieldNames() != list(options.columns):
            raise ConfigError("the columns are chosen with the option 'columns', not with a schema")
        return options

    def _sink(self, schema: StructType) -> SinkOptions:
        table = recalled(schema)
        return sink_options(over(table, self.options), bool(table))
