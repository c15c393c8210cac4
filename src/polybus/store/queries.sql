-- Every statement that the PostgreSQL store sends, by name. {schema} is the store's schema.

-- name: session
-- Each limit ends a wait that nobody could end otherwise: a slow statement, a lock, a forgotten transaction.
SELECT set_config('statement_timeout', %(statement_ms)s, false),
       set_config('lock_timeout', %(silence_ms)s, false),
       set_config('idle_in_transaction_session_timeout', %(silence_ms)s, false),
       set_config('client_min_messages', 'warning', false)

-- name: promises
-- What the server promises about a commit. Off in any of these loses or tears what was acknowledged.
SELECT current_setting('fsync'), current_setting('synchronous_commit'), current_setting('full_page_writes')

-- name: replication
-- What a commit waits for. Without a name of a standby it waits for none, whatever synchronous_commit says.
SELECT current_setting('synchronous_commit'), current_setting('synchronous_standby_names')

-- name: opening_lock
-- Openers of one store go one by one, also while its tables do not exist yet.
SELECT pg_advisory_xact_lock(hashtextextended('polybus.store ' || %(schema)s, 0))

-- name: is_made
SELECT to_regclass(%(schema)s || '.store') IS NOT NULL

-- name: create_schema
CREATE SCHEMA IF NOT EXISTS {schema}

-- name: create_store
CREATE TABLE {schema}.store (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    format bytea NOT NULL,
    epoch bigint NOT NULL
)

-- name: create_kv
-- Rows come and go all the time: vacuum early, or scans walk over the dead.
CREATE TABLE {schema}.kv (
    key bytea PRIMARY KEY,
    value bytea NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 10000)

-- name: store_values_plain
-- Compressing a body that is deleted a moment later is work for nothing.
ALTER TABLE {schema}.kv ALTER COLUMN value SET STORAGE EXTERNAL

-- name: create_owner
INSERT INTO {schema}.store (format, epoch) VALUES (%(format)b, 0)

-- name: read_owner
SELECT format FROM {schema}.store FOR UPDATE

-- name: raise_format
-- Opened by a later version: from now on earlier ones are refused.
UPDATE {schema}.store SET format = %(format)s

-- name: has_lease
SELECT EXISTS (
    SELECT FROM pg_attribute WHERE attrelid = to_regclass(%(schema)s || '.store') AND attname = 'lease_until'
)

-- name: add_lease
-- Who owns the store: its process and session, and until when it keeps others out, by this server's clock.
ALTER TABLE {schema}.store
    ADD COLUMN node text,
    ADD COLUMN address text,
    ADD COLUMN process text,
    ADD COLUMN session integer,
    ADD COLUMN session_start timestamptz,
    ADD COLUMN lease_until timestamptz

-- name: take
-- Only from nobody, from oneself, from one whose lease has run out, or (where a lease alone does not count) from an
-- owner whose session has ended.
UPDATE {schema}.store
SET epoch = epoch + 1,
    node = %(node)s,
    address = %(address)s,
    process = %(process)s,
    session = pg_backend_pid(),
    session_start = (SELECT backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()),
    lease_until = clock_timestamp() + make_interval(secs => %(seconds)s)
WHERE lease_until IS NULL
   OR lease_until <= clock_timestamp()
   OR process = %(process)s
   OR NOT %(by_lease)s::boolean AND NOT EXISTS (
       SELECT FROM pg_stat_activity AS living
       WHERE living.pid = session AND living.backend_start IS NOT DISTINCT FROM session_start
   )
RETURNING epoch

-- name: renew
UPDATE {schema}.store
SET lease_until = clock_timestamp() + make_interval(secs => %(seconds)s)
WHERE epoch = %(epoch)s::bigint
RETURNING epoch

-- name: give_back
UPDATE {schema}.store SET lease_until = clock_timestamp() WHERE epoch = %(epoch)s::bigint

-- name: owner
SELECT node, address, epoch, lease_until FROM {schema}.store

-- name: own
-- Holds the owner row against an opener until the transaction ends; no row where the epoch has moved on.
SELECT 1 FROM {schema}.store WHERE epoch = %(epoch)s::bigint FOR SHARE

-- name: commit
-- One statement, one transaction, one round trip: nothing is written unless the epoch is still ours.
-- A key is in `gone` or in `keys`, never in both.
WITH owner AS MATERIALIZED (
    SELECT 1 FROM {schema}.store WHERE epoch = %(epoch)s::bigint FOR SHARE
), removed AS (
    DELETE FROM {schema}.kv
    WHERE key = ANY(%(gone)b::bytea[]) AND EXISTS (SELECT FROM owner)
), written AS (
    INSERT INTO {schema}.kv (key, value)
    SELECT put.key, put.value
    FROM owner, unnest(%(keys)b::bytea[], %(values)b::bytea[]) AS put (key, value)
    ON CONFLICT (key) DO UPDATE SET value = excluded.value
)
SELECT count(*) FROM owner

-- name: delete_range
DELETE FROM {schema}.kv WHERE key >= %(start)b AND key < %(end)b

-- name: get
SELECT key, value FROM {schema}.kv WHERE key = ANY(%(keys)b::bytea[])

-- name: scan
-- Rows while their bytes fit, the first one always. Lengths are known without reading the values.
SELECT key, value
FROM (
    SELECT key, value,
           row_number() OVER ordered AS nth,
           sum(octet_length(key) + octet_length(value)) OVER ordered AS upto_bytes
    FROM (
        SELECT key, value FROM {schema}.kv
        WHERE key >= %(start)b AND key < %(end)b
        ORDER BY key
        LIMIT %(limit)s
    ) AS page
    WINDOW ordered AS (ORDER BY key ROWS UNBOUNDED PRECEDING)
) AS counted
WHERE nth = 1 OR upto_bytes <= %(max_bytes)s
ORDER BY key

-- name: one_moment
-- A copy shows the rows of one moment; it waits while those of other stores are made, and must not be ended for that.
BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY

-- name: no_hurry
SELECT set_config('idle_in_transaction_session_timeout', '0', true)
