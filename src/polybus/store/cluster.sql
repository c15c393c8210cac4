-- Every statement that nodes send to the database of their cluster, by name. {schema} is the cluster's schema.

-- name: session
SELECT set_config('statement_timeout', %(statement_ms)s, false),
       set_config('lock_timeout', %(silence_ms)s, false),
       set_config('idle_in_transaction_session_timeout', %(silence_ms)s, false),
       set_config('client_min_messages', 'warning', false)

-- name: joining_lock
-- Nodes join one by one: the first of them makes what all share.
SELECT pg_advisory_xact_lock(hashtextextended('polybus.cluster ' || %(schema)s, 0))

-- name: is_made
SELECT to_regclass(%(schema)s || '.members') IS NOT NULL

-- name: create_schema
CREATE SCHEMA IF NOT EXISTS {schema}

-- name: create_cluster
-- What all nodes share: the secret, the authority of their links, and what they have agreed on.
CREATE TABLE {schema}.cluster (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    format integer NOT NULL,
    secret bytea NOT NULL,
    authority bytea NOT NULL,
    authority_key bytea NOT NULL,
    agreed jsonb NOT NULL,
    moving text,
    moving_to text,
    moving_until timestamptz
)

-- name: create_members
CREATE TABLE {schema}.members (
    name text PRIMARY KEY,
    process text NOT NULL,
    address text NOT NULL,
    version text NOT NULL,
    protocol integer NOT NULL,
    joined timestamptz NOT NULL,
    heartbeat timestamptz NOT NULL,
    lease_until timestamptz NOT NULL,
    draining boolean NOT NULL DEFAULT false,
    owned jsonb NOT NULL DEFAULT '[]',
    clients jsonb NOT NULL DEFAULT '[]'
)

-- name: create_row
INSERT INTO {schema}.cluster (format, secret, authority, authority_key, agreed)
VALUES (%(format)s, %(secret)s, %(authority)s, %(authority_key)s, %(agreed)s)

-- name: shared
SELECT format, secret, authority, authority_key, agreed FROM {schema}.cluster FOR UPDATE

-- name: agree
UPDATE {schema}.cluster SET agreed = %(agreed)s

-- name: living
SELECT count(*) FROM {schema}.members WHERE lease_until > clock_timestamp() AND name <> %(name)s

-- name: holder
-- Who has the name, and for how long still; its renewals show that it lives.
SELECT process, address, lease_until, lease_until > clock_timestamp() FROM {schema}.members WHERE name = %(name)s

-- name: enter
-- A name is taken when nobody has it, when it is one's own, or when its holder has let its lease run out.
INSERT INTO {schema}.members AS member
    (name, process, address, version, protocol, joined, heartbeat, lease_until)
VALUES (%(name)s, %(process)s, %(address)s, %(version)s, %(protocol)s, clock_timestamp(), clock_timestamp(),
        clock_timestamp() + make_interval(secs => %(seconds)s))
ON CONFLICT (name) DO UPDATE
SET process = excluded.process, address = excluded.address, version = excluded.version, protocol = excluded.protocol,
    joined = excluded.joined, heartbeat = excluded.heartbeat, lease_until = excluded.lease_until,
    draining = false, owned = '[]', clients = '[]'
WHERE member.process = excluded.process OR member.lease_until <= clock_timestamp()
RETURNING name

-- name: beat
-- One that was away and whose name nobody has taken is a member again.
UPDATE {schema}.members
SET heartbeat = clock_timestamp(),
    lease_until = clock_timestamp() + make_interval(secs => %(seconds)s),
    owned = %(owned)s,
    clients = %(clients)s
WHERE name = %(name)s AND process = %(process)s
RETURNING name

-- name: leave
DELETE FROM {schema}.members WHERE name = %(name)s AND process = %(process)s

-- name: members
SELECT name, process, address, version, protocol, draining, owned, clients,
       lease_until > clock_timestamp(),
       extract(epoch FROM clock_timestamp() - heartbeat)::double precision
FROM {schema}.members ORDER BY name

-- name: move
SELECT moving, moving_to FROM {schema}.cluster WHERE moving_until > clock_timestamp()

-- name: begin_move
-- One store moves at a time, over all nodes.
UPDATE {schema}.cluster
SET moving = %(store)s, moving_to = %(target)s, moving_until = clock_timestamp() + make_interval(secs => %(seconds)s)
WHERE moving_until IS NULL OR moving_until <= clock_timestamp() OR moving = %(store)s
RETURNING 1

-- name: end_move
UPDATE {schema}.cluster SET moving = NULL, moving_to = NULL, moving_until = NULL WHERE moving = %(store)s

-- name: drain
UPDATE {schema}.members SET draining = %(draining)s WHERE name = %(name)s RETURNING name

-- name: listen
LISTEN {channel}

-- name: tell
NOTIFY {channel}
