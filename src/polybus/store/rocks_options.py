"""How RocksDB is set up: one place for every option, and the memory that all stores of the process share.

`rocksdict` reads a database's own OPTIONS file when it opens it and prefers what it finds there for each
column family. So options are always passed for every family by name, or the shared cache would be forgotten
at the first restart.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Protocol

from rocksdict import (
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    DBRecoveryMode,
    Options,
    WriteBufferManager,
    WriteOptions,
)

from polybus import limits
from polybus.store.format import FORMAT_NAME

_BACKGROUND_JOBS = 2
_BYTES_PER_SYNC = 1024 * 1024
_BLOOM_BITS = 10


class Buffered(Protocol):
    """What holds write buffers of the budget, and a journal in memory, and can be asked to write them out."""

    def buffered_bytes(self) -> int: ...

    def flush_soon(self) -> None: ...

    def journaled_bytes(self) -> int: ...

    def retire_soon(self) -> None: ...


class Budget:
    """The block cache and the write buffers of all stores; the buffers are charged to the cache.

    RocksDB makes the store that is writing flush when the budget is used up, whoever uses it. Idle stores that
    keep their buffers would so make a busy one flush at every write. `relieve` asks the greatest holder first.
    """

    def __init__(self, cache_bytes: int, write_buffers_bytes: int) -> None:
        self.cache = Cache(cache_bytes)
        self.write_buffers = WriteBufferManager.new_write_buffer_manager_with_cache(
            write_buffers_bytes, False, self.cache
        )
        self._relief_bytes = write_buffers_bytes * 3 // 4
        self._holders: list[Buffered] = []

    def join(self, holder: Buffered) -> None:
        self._holders.append(holder)

    def leave(self, holder: Buffered) -> None:
        if holder in self._holders:
            self._holders.remove(holder)

    def relieve(self) -> None:
        if self.write_buffers.get_usage() > self._relief_bytes:
            max(list(self._holders), key=lambda holder: holder.buffered_bytes()).flush_soon()
        if sum(holder.journaled_bytes() for holder in list(self._holders)) > limits.JOURNALS_BYTES:
            max(list(self._holders), key=lambda holder: holder.journaled_bytes()).retire_soon()


@cache
def shared_budget() -> Budget:
    return Budget(limits.ROCKS_CACHE_BYTES, limits.ROCKS_WRITE_BUFFERS_BYTES)


def rocks_options(budget: Budget, *, create: bool) -> Any:
    options = Options(raw_mode=True)
    options.create_if_missing(create)
    options.create_missing_column_families(create)
    options.set_error_if_exists(create)
    _set_durability(options)
    _set_memory(options, budget)
    _set_files(options)
    return options


def families(options: Any) -> dict[str, Any]:
    """The store's rows are in the default family; its own record has one for itself, out of reach of scans."""
    return {"default": options, FORMAT_NAME: options}


def synced_writes() -> Any:
    options = WriteOptions()
    options.sync = True
    return options


def written_only() -> Any:
    """For a write that a sync follows. RocksDB refuses it where it would have to wait."""
    options = WriteOptions()
    options.no_slowdown = True
    return options


def _set_durability(options: Any) -> None:
    # The default mode opened a log with one flipped bit in its middle with half of the synced records gone.
    options.set_wal_recovery_mode(DBRecoveryMode.tolerate_corrupted_tail_records())
    options.set_paranoid_checks(True)
    # `logcheck` takes records of recycled logs for damage.
    options.set_recycle_log_file_num(0)
    # The journal's mark is in a family of its own, which is never full: without this a log is kept for its sake.
    options.set_max_total_wal_size(limits.ROCKS_WAL_BYTES)


def _set_memory(options: Any, budget: Budget) -> None:
    options.set_write_buffer_manager(budget.write_buffers)
    options.set_write_buffer_size(limits.ROCKS_WRITE_BUFFER_BYTES)
    options.set_max_write_buffer_number(limits.ROCKS_WRITE_BUFFERS)
    table = BlockBasedOptions()
    table.set_block_cache(budget.cache)
    table.set_block_size(limits.ROCKS_BLOCK_BYTES)
    table.set_cache_index_and_filter_blocks(True)
    table.set_pin_l0_filter_and_index_blocks_in_cache(True)
    # Most looked-up keys are message ids that were never seen: the filter answers without a read.
    table.set_bloom_filter(_BLOOM_BITS, False)
    options.set_block_based_table_factory(table)


def _set_files(options: Any) -> None:
    options.set_compression_type(DBCompressionType.lz4())
    options.set_level_compaction_dynamic_level_bytes(True)
    options.set_max_bytes_for_level_base(limits.ROCKS_LEVEL_BYTES)
    options.set_target_file_size_base(limits.ROCKS_FILE_BYTES)
    # A share of the whole file would be half on any backlog that goes in as fast as it goes out; 0 is no such limit.
    options.add_compact_on_deletion_collector_factory(
        limits.ROCKS_DELETION_WINDOW, limits.ROCKS_DELETION_TRIGGER, 0.0
    )
    options.set_level_zero_file_num_compaction_trigger(limits.ROCKS_FRESH_FILES)
    options.set_level_zero_slowdown_writes_trigger(limits.ROCKS_FRESH_FILES_SLOW)
    options.set_level_zero_stop_writes_trigger(limits.ROCKS_FRESH_FILES_MOST)
    options.set_max_background_jobs(_BACKGROUND_JOBS)
    # Flushes and compactions write back as they go, so that a commit's sync does not wait for their pages.
    options.set_bytes_per_sync(_BYTES_PER_SYNC)
    options.set_avoid_unnecessary_blocking_io(True)
    options.set_max_open_files(limits.ROCKS_OPEN_FILES)
    options.set_keep_log_file_num(limits.ROCKS_LOG_FILES)
    options.set_max_log_file_size(limits.ROCKS_LOG_BYTES)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
