"""Every number that bounds something, with its reason. Nothing else in the tree hard-codes a limit."""

from __future__ import annotations

from typing import Final, NamedTuple

INFINITE_MS: Final = (2**63 - 1) // 10_000
"""Never, as a duration: .NET's TimeSpan.MaxValue, which counts 100 ns, in whole milliseconds."""

# --- Messages (the cloud service's own quotas) ---
STANDARD_MESSAGE_BYTES = 256 * 1024
"""Largest message or batch in Basic and Standard; also the send links' max-message-size there."""
PREMIUM_MESSAGE_BYTES = 1024 * 1024
"""Default of a premium entity's MaxMessageSizeInKilobytes."""
PREMIUM_MESSAGE_BYTES_MAX = 100 * 1024 * 1024
KEY_CHARACTERS: Final = 128
"""Longest message id, session id and partition key."""
PROPERTIES_BYTES: Final = 64 * 1024
"""All properties of one message; more would let headers starve bodies."""
PROPERTY_BYTES: Final = 32 * 1024
PEEK_PATIENCE_MS = 1_000
"""How long a peek waits for one partition before it asks the next: a disk that reads at all answers sooner (C4)."""
PEEK_REPLY_BYTES = 256 * 1024
"""A peek's reply is capped at this (C5)."""

# --- Entities ---
PARTITIONS_STANDARD = 16
ENTITIES = 10_000
PARTITIONED_ENTITIES = 100
SUBSCRIPTIONS_PER_TOPIC = 2_000
SQL_RULES_PER_TOPIC = 2_000
CORRELATION_RULES_PER_TOPIC = 100_000
ENTITY_PATH_CHARACTERS = 260
NAME_CHARACTERS = 50
"""Subscription and rule names."""
AUTHORIZATION_RULES = 12
RULE_TEXT_CHARACTERS = 1024
ACTION_STATEMENTS = 32
FORWARD_HOPS = 4
"""A message forwarded more often than this goes to the transfer dead-letter queue."""

# --- Transactions ---
TRANSACTION_MS = 120_000
TRANSACTION_MESSAGES = 100

# --- amqp: what a peer may make us do ---
AMQP_NESTING: Final = 64
"""Deepest nesting of lists, maps, arrays and described values; the Python SDK's decoder stops there too."""
AMQP_ZERO_WIDTH_ITEMS = 16
"""Items of an array whose items take no bytes (null, true): their count is all there is to check it by."""

# --- Sections of one message ---
MESSAGE_SECTIONS: Final = 4_096
"""A body of many data sections is legal; unlimited ones burn CPU for each byte of input."""

# --- A broker's memory ---
WINDOW_ENTRIES = 1_024
"""Messages of one log in memory ahead of its receivers; a page from the store costs about 2 us a message."""
WINDOW_BYTES = 1 << 20
"""Bytes of one log in memory; sixteen partitions then hold 16 MiB at the most, however long the backlog."""
PAGE_ENTRIES = 512
SHARED_BODY_BYTES = 256
"""A body at least this large is stored once for all its copies; below, the reference costs as much as the bytes."""
SEPARATE_BODY_BYTES = 32 * 1024
"""A body at least this large has a record of its own, so that abandoning the message does not rewrite it."""
RECENT_IDS = 20_000
"""Message ids kept in memory for duplicate detection; a million of them would take 139 MB."""
SWEEP_ROWS = 256
"""Rows that one step of expiry, scheduling, pruning or retention works on, so that no step holds up the loop."""
SESSIONS_IN_MEMORY = 4_096
"""Ids of sessions that wait for a receiver; the rest are found by scanning, a page at a time."""

# --- rules: filters and actions ---
RULE_DEPTH = 64
"""Deepest nesting of parentheses, NOT, signs and functions: beyond what people write, well inside Python's
recursion limit (parsing takes up to eight frames for each level)."""
RULE_STRING_CHARACTERS = PROPERTIES_BYTES
"""Longest string that `+` may build; otherwise `SET a = a + a`, 32 times, would fill the memory."""
RULE_BUDGET = 60_000
"""What a topic's rules may cost for one message, in steps of about a quarter of a microsecond (half in plain Python):
2,000 rules of ten conditions each. Past it the message is dead-lettered where it was not judged, and the loop goes on."""

RULE_BATCH_ASKED = 200_000
"""SQL rules that all messages of one batch ask together, 100 messages of a topic with 2,000: a batch is judged and stored
in one step of the loop, all or none. Past it the batch is refused, and its sender divides it."""

NETWORK_RULES = 128
"""IP rules of one namespace, as the cloud has it: each connection, and each request over HTTP, is judged by them."""

# --- Descriptions and names (namespace), documents and tokens (gateway) ---
LOCK_MS_MIN = 5_000
LOCK_MS_MAX = 300_000
"""The cloud's own range of LockDuration."""
TIME_TO_LIVE_MS_MIN = 1_000
BASIC_TIME_TO_LIVE_MS = 14 * 86_400_000
"""A message in the Basic tier never lives longer; also the default there."""
DUPLICATE_WINDOW_MS_MIN = 20_000
DUPLICATE_WINDOW_MS_MIN_FILE = 5_000
"""The emulator's configuration file may ask for a shorter window than the cloud's management API."""
DUPLICATE_WINDOW_MS_MAX = 7 * 86_400_000
IDLE_MS_MIN = 300_000
"""AutoDeleteOnIdle; shorter would delete entities between two polls of a slow client."""
DELIVERY_COUNT_MAX = 2_147_483_647
"""NServiceBus asks for exactly this."""
USER_METADATA_CHARACTERS = 1_024
KEY_NAME_CHARACTERS = 256
KEY_TEXT_CHARACTERS = 256
PARTITIONS_MAX = 0x8000
"""The partition id is the top 16 bits of a sequence number, which must stay a positive long."""
ADDRESS_CHARACTERS = 2_048
"""A percent-encoded path of 260 characters with scheme, host and suffixes; longer text is not looked at."""
XML_BODY_BYTES = 128 * 1024
"""A description with twelve keys and a full rule takes a tenth of it; larger bodies are attacks."""
XML_DEPTH = 32
"""An entry nests eight deep; expat and our readers never see more."""
XML_ELEMENTS = 2_048
"""A rule with as many properties as it may have takes 1,550."""
XML_ATTRIBUTES = 16
"""Attributes of one element."""
RULE_PROPERTIES = 512
"""Parameters or correlation properties of one rule; each costs every message a comparison."""
SAS_TOKEN_CHARACTERS = 4_096
"""A token with a twice encoded path and query stays below 2,000; more is not parsed."""
CONFIG_FILE_CHARACTERS = 16 * 1024 * 1024
"""10,000 entities with every property written out take about a third of it."""
CONFIG_FILE_DEPTH = 64
"""The schema nests fourteen deep; the JSON reader recurses."""
AMQP_FRAME_BYTES: Final = 65_536
"""Our max-frame-size: what the cloud service says, and what a peer can make us hold before a frame is whole."""
AMQP_FRAME_BYTES_BEFORE_OPEN = 4_096
"""Until a peer has opened. AMQP asks for 512; SDKs with long user agents and PLAIN passwords need more."""
AMQP_UNREAD_BYTES = 65_536
"""What a peer may send ahead while its login is being decided; the Python SDK sends its first links ahead."""
AMQP_OUTGOING_FRAME_BYTES = 1024 * 1024
"""Our frames are no larger, whatever a peer allows (some allow 4 GiB), so that links take turns."""
AMQP_CHANNEL_MAX = 4_999
"""Sessions of one connection, less one: the cloud service's figure."""
AMQP_HANDLE_MAX = 255
"""Links of one session, less one: the cloud service's figure."""
AMQP_LINKS_PER_CONNECTION = 5_000
"""Of all its sessions, refused ones included; else 5,000 sessions of 256 links would be a gigabyte of links."""
AMQP_SESSION_WINDOW: Final = 5_000
"""Transfer frames that a peer may send before it hears from us: the cloud service's figure."""
AMQP_UNSETTLED_OVERRUN = 10_000
"""Unanswered deliveries of a session beyond the credit of its links; the Python SDK does not count credit."""
AMQP_FRAMES_PER_DELIVERY = 8_192
"""Five times what the largest message needs in full frames; enough for 4 MiB in the smallest frames."""
AMQP_UNSIZED_LINK_BYTES = 1024 * 1024
"""The largest message on a link that announces no limit of its own: tokens and management requests."""
AMQP_TOKEN_BYTES = 32 * 1024
"""A request that shows a token: the longest tokens have 16 KiB. Who sends it is unknown until it is read."""
AMQP_PARTIAL_BYTES = PREMIUM_MESSAGE_BYTES_MAX + 32 * 1024 * 1024
"""Bytes of unfinished deliveries of one connection: one of the largest, and room beside it."""
AMQP_STRANGER_BYTES = 128 * 1024
"""What a connection may make us hold before its peer has shown who it is: unfinished deliveries, attaches, replies. A
token and the request around it take 8 KiB; a thousand strangers then hold 128 MB at the most."""
AMQP_STRANGER_LINKS = 32
"""Links, and sessions, of a connection before its peer has shown who it is; the SDKs open three."""
AMQP_PERFORMATIVE_BYTES = 16 * 1024
"""An open, begin, attach, flow, detach, end or close: the longest that clients write names a filter of 1,024 characters
and a few addresses. What is decoded takes up to sixty times its bytes, so it is refused unread."""
AMQP_TURN_FRAMES: Final = 256
AMQP_TURN_FIELD_BYTES: Final = 32 * 1024
"""Frames, and bytes of their fields without payloads, that are read of one connection in one turn of the loop: a few
milliseconds at the worst. Others get their turn before the next."""
AMQP_TURN_SECONDS: Final = 0.005
"""How long one connection's events are worked on before others get their turn."""
AMQP_TURN_MADE = 500
"""Messages of one request that are made in one turn of the loop: two milliseconds."""
AMQP_TURN_EVENTS: Final = 8
"""Deliveries of a client that are taken before that time is looked at again: reading the clock costs, too."""
AMQP_TURN_DISPOSED: Final = 64
"""Deliveries of one disposition that are settled before that time is looked at again; one may name thousands."""
AMQP_HELD_DELIVERIES = 100
"""Deliveries that a peer may send on a link before we have answered its attach."""
AMQP_CACHED_SHAPES: Final = 8
"""Shapes of transfers or dispositions that a session remembers; a client uses two or three."""
AMQP_CACHED_SHAPE_BYTES: Final = 64
"""The longest shape that is remembered: all without a state, and those of a transaction."""
AMQP_HANDSHAKE_MS = 10_000
"""A peer that has not opened by then is dropped, so that silent sockets cost nothing for long."""
AMQP_IDLE_TIMEOUT_MS = 120_000
"""What we advertise. The Python SDK is silent for up to half of it plus 31 seconds."""
AMQP_SHORTEST_IDLE_TIMEOUT_MS = 200
"""A peer that asks for less would make us do nothing but send heartbeats; it is refused."""
AMQP_CLOSE_MS = 5_000
"""How long a peer may take to answer our close."""

# --- Messaging stores ---
STORE_COMMIT_SECONDS = 6.0
"""A commit that takes longer counts as hung. Two hung stores in a row still leave time to reroute a send within
the 15 s of B10, and a disk whose syncs take 2 s each is slow but not lost."""
STORE_READ_SECONDS = 10.0
"""A read that takes longer counts as hung; no send waits for it, so B10 does not bound it."""
STORE_CLOSE_SECONDS = 10.0
"""Closing waits for the commit under way and for one flush, then is given up: a hung disk must not stop a stop."""
STORE_READ_THREADS = 4
"""Reads under way at once where they may wait on a disk or a network: one slow page must not hold up the other partitions,
and a store that pages more than this at once is bound by its server anyway."""
STORE_KEY_BYTES = 2_048
"""Longest key: PostgreSQL's index takes rows up to a third of its 8 KiB page."""
STORE_COPY_ROWS = 1_000
STORE_COPY_BYTES = 4 * 1024 * 1024
"""One batch of a copy from store to store: large enough that the sync is cheap, small enough to hold twice."""

JWT_CHARACTERS = 16 * 1024
"""Longest JSON web token; Entra ID's have 2 to 8 KB, with all the groups that they may name."""
JWT_LEEWAY_SECONDS = 30
"""How far the issuer's clock may be from ours."""
JWKS_SECONDS = 10
JWKS_BYTES = 1 << 20
"""Entra ID's key set has 16 KB."""
JWKS_REFRESH_SECONDS = 3_600
"""How often an issuer's keys are read; a key that is not known is looked for at once, but not more often than the next."""
JWKS_RETRY_SECONDS = 30
CERTIFICATE_CHECK_SECONDS = 30
"""How soon replaced certificates are noticed; two looks at a file in a minute cost nothing."""

# --- Backups of a running bus ---
BACKUP_HOLD_SECONDS = 5.0
"""How long all stores may stand still together while they are linked; below STORE_COMMIT_SECONDS, so that a commit that
waits for it is not taken for hung by whoever sent."""
BACKUP_PIECE_BYTES = 256 * 1024
"""One piece of a file on its way out: large enough for a disk, small enough that a slow reader costs nothing."""
BACKUP_MANIFEST_BYTES = 64 * 1024 * 1024
"""Longest manifest that is read: 400,000 files, a hundred times what stores of many terabytes have."""

# --- RocksDB ---
ROCKS_CACHE_BYTES = 96 * 1024 * 1024
"""Blocks and write buffers of all stores of the process together; four stores unbounded grew by 331 MB."""
ROCKS_WRITE_BUFFERS_BYTES = 64 * 1024 * 1024
"""The write buffers' share of that: what a start has to replay from the logs, a second of work at most."""
ROCKS_WRITE_BUFFER_BYTES = 16 * 1024 * 1024
"""One write buffer of one store: four busy stores fill the shared budget with one each."""
ROCKS_WAL_BYTES = 64 * 1024 * 1024
"""RocksDB's own logs of one store, which a start has to replay."""
ROCKS_RELIEF_BYTES = 2 * 1024 * 1024
"""A store looks after the shared budget each time it has written this much."""
ROCKS_WRITE_BUFFERS = 3
"""Buffers of one store that may be full, or being flushed, before its commits wait."""
JOURNAL_SEGMENT_BYTES = 16 * 1024 * 1024
"""One file of a store's journal, and the memory that its rows may take: with 50,000 messages of 1 KiB a second a third of
a second's work, so that what is settled within that time never reaches RocksDB."""
JOURNAL_SEGMENTS = 4
"""Files of one journal: one that is written, one that is left alone until its messages are settled, two on their way into
RocksDB. When all are used commits wait. A start has this much to replay."""
JOURNAL_KEPT = 1
"""Full segments that stay in memory; with more, the oldest goes into RocksDB."""
JOURNALS_BYTES = 96 * 1024 * 1024
"""Memory for the journals of all stores of the process; past that the greatest goes into RocksDB at once."""
JOURNAL_RANGES = 64
"""Deleted ranges in one segment: each read looks at all of them."""
JOURNAL_STEP_ROWS = 256
JOURNAL_STEP_BYTES = 256 * 1024
"""What goes into RocksDB at once, for it holds Python's lock meanwhile: about half a millisecond."""
JOURNAL_PAUSE_SECONDS = 0.0005
"""Between two such steps: others need the lock more urgently."""
JOURNAL_DOUBTS = 512
"""Deletions of a segment for which RocksDB is asked whether it has the row at all. Where it has most of them, a backlog is
being drained, and the rest is deleted unasked."""
JOURNAL_LOOK_BYTES = 1024 * 1024
"""What is committed between two looks at the disk's free space, as long as there is plenty."""
ROCKS_OPEN_FILES = 256
"""Table files held open by one store; sixteen stores stay below the usual 4,096 descriptors, half used."""
ROCKS_LOG_BYTES = 1024 * 1024
ROCKS_LOG_FILES = 2
"""RocksDB's own diary, not data: the last words of a store that failed are in it."""
ROCKS_DELETION_WINDOW = 131_072
ROCKS_DELETION_TRIGGER = 65_536
"""A table file in which half of a window is deletions is compacted, for a scan walks over every deletion that is still
there. The window is longer than one flushed file: on a backlog each of those is half deletions, and to merge them one
by one with all that lies below cost more than everything else that is done for a message."""
ROCKS_FRESH_FILES = 16
"""Flushed files that are merged at once with what lies below them. Each merge writes again what is there, for every
file has deletions at the head of a log and messages at its end; four times RocksDB's own number is a fourth of the
work, and a scan hardly feels the difference."""
ROCKS_FRESH_FILES_SLOW = 32
ROCKS_FRESH_FILES_MOST = 48
"""Flushed files from which on commits go as fast as the merges do, and with which they wait for them."""
ROCKS_STALL_SECONDS = 0.002
"""Between two attempts to write while RocksDB is behind with its work in the background."""
ROCKS_LEVEL_BYTES = 16 * 1024 * 1024
"""Of the level that flushed files are merged into, as stored. It is rewritten at each merge, so it may not be the whole
of a backlog, and messages that are alike are a thirtieth of their size there; the levels below are merged file by
file, where they overlap."""
ROCKS_FILE_BYTES = 8 * 1024 * 1024
"""Of one table file, as stored: small enough that the head of a log and its end are in different files."""
ROCKS_BLOCK_BYTES = 16 * 1024
"""Of a table file, what is read, checked and decompressed at once. RocksDB's 4 KiB are three messages of 1 KiB: a bulk
read then pays more for blocks than for messages."""
ROCKS_LONG_SCAN = 256
"""Rows that a scan asks for from which on it is read in bulk, past the cache: a page of a log is."""
ROCKS_STRIDE = 256
"""Rows of a bulk read between two looks at how many bytes they are."""
ROCKS_FLOOR_BYTES = 64 * 1024 * 1024
"""Free disk below which a commit is refused before anything is written: RocksDB needs room to flush its buffers,
and a write that runs out of space half-way fences the store."""

# --- PostgreSQL ---
POSTGRES_CONNECT_SECONDS = 5
POSTGRES_STATEMENT_MS = 5_000
"""Below STORE_COMMIT_SECONDS, so that a slow server gives up first and says that nothing was written."""
POSTGRES_SILENCE_MS = 5_000
"""Unacknowledged bytes on the socket, a lock waited for, a transaction left open: each ends after this."""
POSTGRES_KEEPALIVE_SECONDS = 2
POSTGRES_LEASE_SECONDS = 3
"""How long an owner that does not renew its lease keeps others out of its store; short enough to be waited for."""
POSTGRES_RENEW_SECONDS = 1
"""Between two renewals: two of them may fail before the lease runs out."""
POSTGRES_TAKE_SECONDS = 0.05
"""Between two looks at a lease that somebody else holds."""

# --- Nodes of one cluster ---
LEASE_MARGIN_MS = 100
"""An owner stops handing out so much before its lease ends: two clocks do not run equally fast, and a hand-over takes
a moment."""
NODE_LOOK_SECONDS = 0.25
"""Between two looks at the members, where no notice comes: it is part of the time that a take-over takes."""
NODE_WATCH_SECONDS = 0.05
"""Between two looks of an owner at its own leases: one that is over is noticed before the next owner serves."""
NODE_TAKE_SECONDS = 0.1
"""Between two tries to take a store whose lease another still has."""
NODE_DRAIN_SECONDS = 10
"""How long a node that stops waits until others have taken what it owns."""
LINK_DEAD_MS = 3_000
"""How long a node may take to answer on a link before that is cut: as long as a lease lasts."""
LEDGER_ROW_SENDS = 64
"""Sends that one row of a store's ledger names: it is written anew with each of them."""
LEDGER_LOOK_MS = 20
"""Between two questions about a send whose owner is gone."""
NODE_NAME_CHARS = 63
"""A node's name is a label: it stands in certificates, in rows and on lines."""
MOVE_HOLD_MS = 2_000
"""How long requests for a store that moves are held: a planned move takes a tenth of it, and SDKs back off for seconds
when they are refused."""
MOVE_SECONDS = 5
"""How long a move keeps others from beginning: one that dies in the middle of it must not stop them for ever."""
NODE_CERTIFICATE_DAYS = 397
NODE_AUTHORITY_DAYS = 36_500
"""The authority lives in the cluster's database; whoever can read it is the cluster."""

# --- Links between the processes of one bus ---
CLUSTER_CONNECT_SECONDS = 3
"""A node that does not answer for so long is tried again later: its lease is over by then."""
CLUSTER_FRAME_BYTES = PREMIUM_MESSAGE_BYTES_MAX + 32 * 1024 * 1024
"""The largest frame: the largest message with room for what is said of it. A peer that announces more is cut off."""
CLUSTER_SENDS_BYTES = 16 * 1024 * 1024
"""Bytes of sends to one partition elsewhere that are not confirmed yet; beyond them senders must slow down."""
CLUSTER_DEMAND = 256
"""Messages that an owner is asked for at a time for one log, however much credit receivers have."""
MEMBER_START_MS = 30_000
"""How long a leader that starts waits for stores of other members: beyond it they are away, as one that does not open."""
MEMBER_APPLY_MS = 3_000
"""How long a change of the catalogue waits for a member to apply it: one that takes longer is cut off and asks anew."""
MEMBER_SERVE_MS = 2_000
"""How long the creation of an entity waits until its partitions serve for all members, wherever they are."""
MEMBER_TELL_MS = 1_000
"""How often a member tells the counters of its stores; states are told at once."""
LINK_RETRY_MS = 50
"""How soon a link that broke is tried again, at first; each time twice as long."""
LINK_RETRY_MS_MAX = 1_000
LINK_PING_MS = 1_000
"""How often a member asks another whether it is there."""
LINK_SILENT_MS = 10_000
"""How long it may take to answer: then its link is cut, and whoever waits hears that it is gone. Far above the longest
turn of a loop, for a busy member must not be taken for a dead one."""
WORKERS = 256
"""Processes of one bus on one machine: far more than machines have cores, few enough for a link between any two."""
WORKER_TELL_SECONDS = 0.05
"""How often a worker looks whether its number of clients has changed."""
WORKER_RESTART_SECONDS = 0.1
"""How soon a dead worker is started again, at first; each time twice as long."""
WORKER_RESTART_SECONDS_MAX = 5.0
WORKER_WELL_SECONDS = 30.0
"""Whoever has lived so long is started again at once."""
WORKER_STOP_SECONDS = 30.0
"""How long a worker may take to let its clients go, and to close its stores: beyond its own patience with both."""
HTTP_PASSED_BYTES = 16 * 1024 * 1024
"""The body of a request that another process of the bus has to answer: what is that long is no pipeline's small talk."""
CLUSTER_DELIVERY_BYTES = 1024 * 1024
"""Bytes of deliveries in one frame: more of them leave in the next."""

# --- Messaging stores at work ---
UNCOMMITTED_BYTES = 64 * 1024 * 1024
"""Bytes that may wait for one store's sync; past that, sends are refused as busy instead of filling memory."""
REOPEN_MS = 200
"""First wait before a fenced store is opened again; it doubles up to the maximum."""
REOPEN_MS_MAX = 5_000
FORWARD_BATCH = 256
"""Messages that one step of forwarding moves between two partitions."""
FORWARD_RETRY_MS = 1_000
FORWARD_RETRIES = 10
"""A destination that stays disabled or full for this many tries gets its messages dead-lettered at the source."""
SESSION_WAIT_MS = 65_000
"""How long a receiver waits for the next session when it does not say (docs/protocol/amqp.md#next-session)."""
SESSION_SEEK_MS = 200
"""A store that has not found a session by then is slow or hangs, and those who wait look elsewhere meanwhile (F1)."""

# --- Listening ---
HANDSHAKE_SECONDS = 10.0
"""A client that has not said what it speaks by then is dropped; ten thousand silent sockets cost nothing after it."""
LISTEN_BACKLOG = 1_024
OPEN_FILES = 65_536
"""The process raises its limit of open files to this where it may: five thousand connections and their stores."""
STRANGERS = 1_000
"""Sockets of clients that have not shown who they are, over all protocols; a newer one takes the place of the oldest."""
STORE_DESCRIPTORS = 288
"""Descriptors that are kept for one messaging store: its table files, logs and locks."""
DESCRIPTORS_IN_TURN = 32
"""Descriptors by which clients may reach into the rest while strangers that were dropped for them are being closed."""
DESCRIPTORS_RESERVED = 128
"""Descriptors for everything else: listeners, the loop, the catalogue's log, a file that an operator asks for."""
DISK_RESERVE_BYTES = 256 * 1024 * 1024
"""Free space below which nothing may be sent, so that receiving and settling can still be written."""
DISK_CHECK_SECONDS = 2.0
MEMORY_RETURN_SECONDS = 5.0
"""How often free memory is given back after connections have ended; it takes some milliseconds of a thread."""
IDLE_CHECK_SECONDS = 15.0
"""How often entities are looked at that delete themselves when idle; the shortest idle time is five minutes."""
STOP_SECONDS = 8.0
"""How long a stop waits for clients to hear of it before their sockets are closed."""
HTTP_HEADER_BYTES = 96 * 1024
"""Request line and headers together: 64 KiB of message properties travel as headers, and some more."""
HTTP_HEAD_SECONDS = 10.0
"""From the first byte of a request to the end of its headers; a client that sends a byte now and then would stay."""
HTTP_UNREAD_SECONDS = 300.0
"""How long an answer waits for a client that reads nothing of it: as long as a receive may wait for a message."""
HTTP_CONNECTIONS = 5_000
"""Open connections for HTTP, as many as AMQP may have."""
HTTP_TURN_LINES = 200
"""Lines that are read of one connection in one turn of the loop: each is a header, or the frame of a chunk."""
HTTP_TURN_BYTES = 64 * 1024
WEBSOCKET_TURN_BYTES = 4 * 1024
"""Bytes of the same: 600 of the smallest WebSocket frames, a few milliseconds."""
HTTP_KEEP_ALIVE_SECONDS = 120
"""Receives over one kept connection are answered from its cache; docs recommend keeping it (C6)."""

# --- AMQP gateway: what one client may have ---
AMQP_CONNECTIONS = 5_000
"""Open connections of one gateway: the cloud service's quota of a namespace."""
AMQP_TOKEN_MS = 20_000
"""A client without a login of its own must bring its first token by then: the cloud service's figure."""
AMQP_EARLY_LINK_MS = 2_000
"""A management link that is opened before its token waits so long for it: some round trips, also of a slow network."""
AMQP_EARLY_LINKS = 64
"""Links of one connection that may wait so: a client opens two for each entity that it manages messages of."""
AMQP_GRANTS_PER_CONNECTION = 5_000
"""Audiences for which one connection may hold a token: as many as it may have links."""
AMQP_SEND_CREDIT = 1_000
"""Messages that a sender may have under way; enough for a group commit, little enough to bound memory."""
AMQP_BATCH_MESSAGES = 4_500
"""Messages of one batch, as the cloud service has it: they are stored in one step of the loop, all or none."""
AMQP_REQUEST_CREDIT = 100
"""Requests of one token or management link under way: the cloud service's figure."""
AMQP_REQUESTS_UNDER_WAY = 200
"""Management requests of one link that may wait for a store; the Python SDK does not count credit."""
AMQP_REPLIES_HELD = 1_000
"""Replies that wait for credit on a reply link; a client that lets more pile up loses its link."""
AMQP_REPLIES_HELD_BYTES = 4 * 1024 * 1024
"""Bytes of those replies over all links of a connection: sixteen of the largest, which are peeks."""
AMQP_MANAGEMENT_MS = 60_000
"""How long a management request may take when it does not say: the SDKs' own patience."""
AMQP_TURN_BYTES: Final = 256 * 1024
"""Message bytes that one connection gets in one turn of the loop, so that a large credit cannot fill memory."""
AMQP_UNSENT_BYTES: Final = 512 * 1024
"""Unsent bytes of one connection above which its receivers wait; with one turn's bytes it stays below 1 MB."""
AMQP_UNREAD_ANSWER_BYTES = 2 * 1024 * 1024
"""What is written to a client that does not read, beyond one message of the largest size; then the connection ends. A
client that reads now and then never gets there: deliveries stop at AMQP_UNSENT_BYTES."""
AMQP_UNANSWERED_BYTES: Final = 4 * 1024 * 1024
"""Bytes of sends that wait for their commit; above it the socket is not read, since Python ignores credit."""
AMQP_UNSETTLED_DELIVERIES = 10_000
"""Messages that a receiving link may hold without having decided on them; past that it gets no more until it has."""
AMQP_RECEIVERS_PER_ENTITY = 5_000
"""Receiving links of one queue or topic: the cloud service's quota of concurrent receives."""
AMQP_PEEKED_MESSAGES = 4_096
"""Messages of one peek; 256 KiB of the smallest possible messages are not more."""
AMQP_BROWSED_MESSAGES = 250
"""Messages that a browsing link reads at once; more would only wait in memory."""
AMQP_SESSIONS_LISTED = 1_000
"""Session ids in one reply; the SDKs ask for 100 at a time."""
AMQP_LOCKS_PER_REQUEST = 4_096
"""Lock tokens or sequence numbers in one management request; each costs work before the reply."""
AMQP_DELETED_STANDARD = 500
AMQP_DELETED_PREMIUM = 4_000
"""Messages that one batch-delete removes: the cloud service's figures."""
AMQP_TRANSACTIONS_PER_CONNECTION = 500
"""Open transactions of one connection; each may hold a hundred messages in memory."""

# --- partition: what a broker holds ---
SESSION_WINDOW_ENTRIES = 64
SESSION_WINDOW_BYTES = 128 * 1024
"""Messages of one held session in memory ahead of its receiver; a thousand held sessions then take 128 MiB at most."""
STAGE_ROWS = 1_000
"""Messages of a stage that one publishing step moves into the log: one batch of a megabyte or so."""

# --- HTTP: management, messages, bulk ---
HTTP_QUERY_CHARACTERS = 8_192
"""Longest query string; the longest that a client needs names a partition, a range and a few columns."""
HTTP_QUERY_FIELDS = 32
HTTP_HEADERS = 128
"""Headers of one request. Custom properties of a message travel as headers, and 64 KiB hold no more useful ones."""
HTTP_BODY_SECONDS = 30
"""A body must be here by then; a client that sends a byte a minute would hold memory and a connection for ever."""
HTTP_DRAINED_BYTES = 1024 * 1024
HTTP_DRAIN_SECONDS = 2
"""What is read and thrown away of a refused body, so that the client gets to read why; past it we hang up."""
HTTP_RECEIVE_SECONDS = 60
HTTP_RECEIVE_SECONDS_MAX = 300
"""How long a receive waits for a message: by default, and at most."""
HTTP_BATCH_MESSAGES = 4_096
"""Messages in one JSON batch; more would be smaller than their own punctuation."""
HEALTH_PROBE_SECONDS = 2.0
"""A store that does not commit a probe by then counts as not ready; orchestrators give up after a few seconds."""

# --- operations: tools for operators ---
CHECK_FINDINGS = 1_000
"""Findings that a check keeps to show; a store that is damaged throughout would have millions."""
CHECK_CACHE_BYTES = 16 * 1024 * 1024
"""Of one store that is looked at. It shares no cache with a bus, so that every block is read from the disk."""
CHECK_PAGE = 1_000
"""Rows whose index entries a check looks up at once: enough for one multi-get, little enough to hold."""

# --- namespace: stores that come back ---
RECOVER_MS = 100
"""Between two tries to bring up a store's partitions while another store, or the catalogue, is not there yet."""
REROUTE_MS = 15_000
"""B10: a send whose partitions fail one after the other is answered by then, whatever becomes of it."""
DOUBT_MS = 2_500
"""How long a send in doubt waits for the catalogue; with two hung commits it stays within the 15 s of B10."""

# --- cli: commands that are clients ---
CLI_CONNECT_SECONDS = 10
"""A person waits at the terminal; whatever has not answered by then is down."""
CLI_LOOK_SECONDS = 2
"""For a look at whether the key is right, before the SDK is asked; without an answer it is asked anyway."""
CLI_SECONDS = 60
"""For one HTTP answer of a bus that is busy."""
CLI_STREAM_SECONDS = 600
"""Between two pieces of a long answer: a backup begins only when all of it has been copied on the bus's side."""
CLI_RETRIES = 1
"""Of the SDK: enough for a connection that was closed while idle, and a refusal is told at once."""
CURSOR_LAG_MS = 7 * 86_400_000
"""How long settled messages are kept for a cursor that has not read them; then it is truncated, loudly."""
CURSOR_LAG_MS_MAX = 90 * 86_400_000
CURSORS_PER_LOG = 64
"""Cursors of one log; each is a pipeline of its own, and each settlement must stay as cheap as with one."""
CURSOR_NAME_CHARACTERS = 128
CURSOR_LEASE_SECONDS_MAX = 3_600
"""The longest lease; a driver that dies blocks its successor for no longer."""
RANGE_GAPS = 1_000
"""Gaps that one range read tells apart; beyond, they run together."""
STAGE_MS = 86_400_000
"""A stage that nobody has published by then is an orphan: no batch of a pipeline takes a day."""
PRODUCER_PAST_QUERIES = 256
"""Queries that a producer's record remembers as fenced; a zombie older than as many takeovers is no worry."""
CLI_PAGE = 250
"""Messages that a command asks for at once; the SDK holds them all before it gives the first."""
EVENTS_KEPT = 1_000_000
EVENTS_TRIMMED = 100_000
"""Events that one log of a partition keeps, about 100 bytes each, and how many too many are removed at once."""
JSON_DENSE_BYTES = 512 * 1024
JSON_VALUES = 100_000
"""A longer text of JSON has at most so many values: it is read in one step of the loop, and values take the time. Bodies
in base64 are long, and few."""
BULK_JSON_BYTES = 1024 * 1024
"""Body of a request of the bulk API that carries no messages: a thousand numbers, stages or positions fit in it."""
BULK_STEP_ROWS = 100
BULK_STEP_BYTES = 512 * 1024
"""Messages that a bulk read takes in one turn of the loop: a few milliseconds."""
BULK_BATCH_ROWS = 5_000
BULK_BATCH_BYTES = 4 * 1024 * 1024
"""Messages of one Arrow batch: Spark was fastest with 1,000 to 10,000 rows or 4 to 8 MB."""
BULK_COLUMNS_ROWS = 2_000
"""Messages of one Arrow batch whose columns the bus makes itself: it does so in one turn of the loop."""
BULK_STAGE_BYTES = 64 * 1024 * 1024
BULK_STAGE_ROWS = 1_000_000
BULK_STAGE_SECONDS = 300
BULK_STAGES = 8
"""One stage request, and how many are read at once: half a gigabyte at most waits to be taken apart."""
BULK_FRAME_ROWS = 200
"""Rows that are made into messages in one turn of the loop, and written at once."""
MOVE_NUMBERS = 1_000
"""Messages that one move takes by their numbers; they travel in one batch for each partition."""
BULK_MOVE_BYTES = 16 * 1024 * 1024
"""A move with bodies in it: a repaired message of several megabytes, or many small ones, in base64."""
TRANSFER_BATCH = 50
"""Messages that are moved from one bus to another at once: their locks must hold until all of them are settled."""
TRANSFER_WAIT_SECONDS = 3
"""How long nothing must come from a queue to be taken for empty, when a bus is moved to another."""
TEMPLATE_DEPTH = 20
TEMPLATE_COPIES = 800
TEMPLATE_RESOURCES = 10_000
"""Nesting, repetitions and resources of a Resource Manager template: the cloud's 800 for a copy, and more than a
namespace can hold for the whole."""
ARM_PAGE = 100
"""Resources in one answer of the resource manager's API, as the cloud has it; the next page has a link."""
RETRY_SECONDS = 30 * 24 * 3600
"""How long an abandoned message may be asked to rest. Whoever wants more schedules a message of their own."""
JOBS_AT_ONCE = 8
"""Purges, redrives and the like that run at once: each reads as fast as its stores answer."""
JOBS_REMEMBERED = 100
"""Jobs that have ended and can still be asked about."""
JOB_WAIT_SECONDS = 60
"""How long a request may wait for its job to end, before it has to ask again."""
JOB_SAMPLES = 20
"""Sequence numbers that a dry run shows of the messages it has found."""
SESSIONS_PER_PAGE = 1_000
"""Sessions that one answer lists: each costs a few reads."""
HOLDER_CHARACTERS = 256
"""What is shown of a receiver that holds a session: clients choose these names."""
DRY_RUN_MATCHES = 1_000
"""Messages that a dry run of a rule names; it counts all of them."""
DRY_RUN_MESSAGES = 100_000
"""Messages that one dry run of a rule looks at, a few seconds' work; it says where to go on."""
EVENTS_PER_READ = 10_000

# --- spark: the pipeline's own patience ---
SPARK_REQUEST_SECONDS = 60
"""For one answer, or the next bytes of one; a bus that is silent for longer is not there."""
SPARK_RETRY_SECONDS = 30
"""How long a request is repeated while the bus is away; Spark then repeats the task, which helps with nothing else."""
SPARK_RETRY_PAUSE_SECONDS = 0.1
SPARK_RETRY_PAUSE_SECONDS_MAX = 2.0
SPARK_LEASE_SECONDS = 60
"""A driver that dies without a word blocks another query from its cursor for so long; it renews three times in it."""
SPARK_STAGE_BYTES = 16 * 1024 * 1024
SPARK_STAGE_ROWS = 20_000
"""Rows of one stage request: the bus holds a request in memory, and eight of them at once."""
SPARK_PUBLISH_STAGES = 4_000
"""Stages that one epoch may have: about 220 bytes each, in one request of at most a megabyte."""
SPARK_BAD_ROW_CHARACTERS = 100_000
"""Of a bad row that is put aside, as JSON; it must itself be a message of any tier."""
SPARK_SHOWN_ROW_CHARACTERS = 500
"""Of a row that cannot be a message, in the error that says so."""
WEBSOCKET_MESSAGE_BYTES = 1024 * 1024
"""One WebSocket message holds AMQP frames of at most 64 KiB each; no client gathers more than a few of them."""

# --- Listening: what old clients can take ---
TCP_SEGMENT_BYTES = 32_000
"""Largest TCP segment that we ask for. The asynchronous Python SDK up to 7.13 writes back the segment size that it
reads from its socket, and Linux refuses more than 32,767, which a TLS connection over loopback otherwise has."""

# --- pipelines ---
PIPELINE_NAME_CHARACTERS = 100
"""A pipeline's name is also that of its cursor (128 at most), its producer and its folder."""
PIPELINES_PER_FILE = 64
"""Queries that one session of Spark is asked to run; each has threads and a planning process of its own."""
PIPELINE_POLL_SECONDS = 0.5
"""How often the runner looks at its pipelines: a batch of Spark takes about as long at the least."""
PIPELINE_DUE_MS = 5_000
"""How often a resting pipeline looks whether enough waits to begin early: one small request to the bus."""
PIPELINE_STOP_SECONDS = 30
"""How long a job may take to end by itself when it is told to, before what Spark does for it is cancelled."""
BODY_SAMPLE_ROWS = 10_000
"""Bodies from which a schema is inferred: the first batch of a busy queue has as many."""
PIPELINE_HISTORY_LINES = 5_000
"""Lines of a pipeline's history before the older half goes: some hundred kilobytes, weeks of batches."""
PIPELINE_ERROR_CHARACTERS = 2_000
"""Of an error in a line and on the status page: Spark's hold whole stack traces."""

# --- pipelines: redrive, skew, sla ---
REDRIVE_REQUEST_BYTES = 768 * 1024
"""Of one request to move dead letters with what is altered of them; a single one may be larger."""
REDRIVE_SILENCES = 3
"""Requests in a row without an answer after which a redrive gives up: one store may be away, not the bus."""

# Bulk reads as stored records

BULK_RECORD_STEP_ROWS = 2_000
BULK_RECORD_STEP_BYTES = 2 * 1024 * 1024
"""Records that a bulk read takes in one turn of the loop: they are not taken apart, so that is a millisecond or two."""
BULK_MESSAGE_FRAME_ROWS = 500
"""Whole messages of a stage that are looked at in one turn of the loop, and written at once."""
BULK_RANGES = 100
"""Ranges that one such read may name: their numbers must fit into the URL. A task of Spark has one for each partition
that it reads, and asks again for more."""
BULK_PIECE_BYTES = 256 * 1024
"""What is written to a socket at once. The event loop keeps what the socket does not take in one buffer and moves all
of it after each send."""
SPARK_INTAKE_BYTES = 64 * 1024
"""Parts of an answer from which on a task reads them into memory that it uses again."""
SPARK_LAYOUTS = 16
"""Kinds of messages that a task knows by their layout: each costs a look at the lengths of all messages."""
SPARK_SPLIT_ROWS = 1_000
"""Messages of a partition that stay together where hot ones are split: a task's own cost is that of some thousand."""
SPARK_LAYOUTS_LEARNED = 4
SPARK_LAYOUT_ROWS = 25
"""Kinds that are learned from one batch, and messages of a kind that make it worth it: learning costs a millisecond."""
SPARK_LAYOUT_BYTES = 2_048
"""The front of a message up to its body, beyond which it is walked: fronts are copied out to be compared."""
CAPTURE_OPEN_FILES = 64
"""Files that one task of a capture writes at once; a backlog of days has more folders than that."""
CAPTURE_HANDING_OVER = 4
"""Files that a task hands over at a time: an upload waits for the store, not for the processor."""
CAPTURE_BUFFER_BYTES = 128 * 1024 * 1024
"""Rows of one task that wait in memory to become row groups of a good size."""
CAPTURE_BYTES = 256 * 1024 * 1024
"""A batch of a capture unless the file says otherwise: large enough for good files, small enough for one machine."""

# Stopping

STOP_GOODBYE_SECONDS = 1.0
"""How long a stop waits for clients that have all their answers and were told of it: a live one answers in a round
trip, a silent one reads the close from its socket when it wakes."""

# --- gateway: filters of lists ---
HTTP_FILTER_CHARACTERS = 2_048
"""Of a `$filter`: people write a line."""
HTTP_FILTER_DEPTH = 16
"""Parentheses inside parentheses in a `$filter`; it is read by functions that call each other."""
BACKFILL_BATCH_ROWS = 200_000
"""Positions of one batch of a back-fill: a lost one is repeated in seconds, and files are of a good size."""
REPLAY_STEP_ROWS = 100_000
"""Rows of one step of a replay that does not wait: an epoch that is staged in a few seconds."""

# --- pipelines: tables ---
OBJECT_RETRIES = 8
OBJECT_RETRY_SECONDS = 60
"""How often, and for how long, a request to an object store that is busy or away is tried; then the batch fails, and
the pipeline starts again from its checkpoint."""
OBJECT_READS = 16
"""Small objects (manifests) that are read at a time: each costs a round trip."""
OBJECT_BUFFER_BYTES = 4 * 1024 * 1024
"""What is read of a large object at once."""
OBJECT_COMPACTION_SECONDS = 3_600
"""After this a compaction of a folder on an object store is taken for dead, and a living one gives up."""
LAKE_COMMIT_TRIES = 20
"""Times that a batch, or a compaction, is offered to an Iceberg table while others commit there."""

# --- namespace: staged messages ---
STAGE_BLOCK_ROWS = 250
STAGE_BLOCK_BYTES = 256 * 1024
"""Staged messages that are one row of the store, and their bytes: a stage is written, read and deleted by the row, and
a publishing step moves a few of them."""
STAGE_UNSYNCED_BYTES = 4 * 1024 * 1024
"""What one stage request may have on its way to the disks; it is looked at meanwhile, so that syncs cost no time."""

# Small batches of a stream
SPARK_HANDED_OVER_ROWS = 256
SPARK_HANDED_OVER_BYTES = 1024 * 1024
"""A batch of so few messages is one task's. Where they are small too they are read where the batch is planned, in a few
milliseconds: a task that runs Python costs some 60, and what goes through the driver must be little."""

# --- What a peer may cost ---
LOG_KIND_LINES = 5
LOG_KIND_SECONDS = 60.0
"""Warnings of one kind that are written in so long; the rest is a number. A peer must not fill a disk with them."""
LOOP_STEP_MS = 20
"""The longest that one step of the loop may take because of what a peer sent: all others wait meanwhile."""
# --- gateway: live figures ---
LIVE_SECONDS = 2.0
"""Between two events of the stream that pages watch: people see what moves, and the bus hardly notices."""
LIVE_IDLE_SHARE = 50
"""A pause is at least so many times as long as counting took: figures cost no more than 2 % of the bus's time."""
LIVE_HISTORY = 150
"""Totals that are kept for those who begin to watch: five minutes at the usual pace."""
LIVE_ENTITIES_PER_TURN = 50
"""Entities that are counted before others get their turn of the loop, as for metrics."""
LIVE_STREAMS = 64
"""Pages that may watch at once."""

# --- gateway: what runners tell of pipelines ---
PIPELINE_TOLD_BYTES = 2 * 1024 * 1024
"""What a runner tells of one pipeline at a time; most of it is a report, a page of some hundred kilobytes."""
PIPELINES_TOLD = 200
"""Pipelines that are remembered; they are in memory only."""
PIPELINE_TOLD_MS = 24 * 3_600_000
"""How long a pipeline is remembered that nobody tells of any more: one looks in the morning at what ran at night."""
PIPELINE_SILENT_MS = 30_000
"""A runner that has told nothing for so long is taken for gone; it tells every few seconds."""
PIPELINE_TELL_SECONDS = 5.0
"""How often a runner tells the bus of its pipelines."""
PIPELINE_TOLD_RUNS = 20
"""Runs of a pipeline that are told: the last ones."""


# --- What a peer may cost: the limits above, seen from one who wants to do harm ---
class PeerCost(NamedTuple):
    """One thing that a peer can use up, by the names of the limits that hold it. `docs/security.md` is made of these."""

    what: str
    before: tuple[str, ...]
    """Limits for whoever has not shown who it is."""
    after: tuple[str, ...]
    """Limits for whoever has."""


PEER_COSTS: Final = (
    PeerCost(
        "bytes held for one connection",
        ("AMQP_STRANGER_BYTES", "HTTP_HEADER_BYTES", "AMQP_UNREAD_BYTES"),
        ("AMQP_PARTIAL_BYTES", "AMQP_REPLIES_HELD_BYTES", "AMQP_UNANSWERED_BYTES", "HTTP_DRAINED_BYTES"),
    ),
    PeerCost(
        "bytes written to it that it does not read",
        ("AMQP_UNREAD_ANSWER_BYTES",),
        ("AMQP_UNREAD_ANSWER_BYTES", "AMQP_UNSENT_BYTES", "AMQP_TURN_BYTES"),
    ),
    PeerCost(
        "descriptors, over all connections",
        ("STRANGERS",),
        ("AMQP_CONNECTIONS", "HTTP_CONNECTIONS", "STORE_DESCRIPTORS", "DESCRIPTORS_RESERVED"),
    ),
    PeerCost(
        "links and sessions of one connection",
        ("AMQP_STRANGER_LINKS",),
        ("AMQP_LINKS_PER_CONNECTION", "AMQP_GRANTS_PER_CONNECTION", "AMQP_SESSION_WINDOW"),
    ),
    PeerCost(
        "seconds of silence, or for what it has begun",
        ("HANDSHAKE_SECONDS", "HTTP_HEAD_SECONDS", "AMQP_TOKEN_MS"),
        ("AMQP_IDLE_TIMEOUT_MS", "HTTP_KEEP_ALIVE_SECONDS", "HTTP_BODY_SECONDS", "HTTP_UNREAD_SECONDS"),
    ),
    PeerCost(
        "CPU in one step of the loop",
        ("LOOP_STEP_MS", "AMQP_TURN_FRAMES", "AMQP_TURN_FIELD_BYTES", "HTTP_TURN_LINES", "HTTP_TURN_BYTES"),
        ("LOOP_STEP_MS", "AMQP_TURN_SECONDS", "AMQP_TURN_DISPOSED", "AMQP_TURN_MADE", "RULE_BUDGET", "JSON_VALUES"),
    ),
    PeerCost(
        "names and texts",
        (
            "ADDRESS_CHARACTERS",
            "AMQP_TOKEN_BYTES",
            "AMQP_PERFORMATIVE_BYTES",
            "HTTP_QUERY_CHARACTERS",
            "HTTP_HEADERS",
        ),
        ("PROPERTIES_BYTES", "RULE_TEXT_CHARACTERS", "ENTITY_PATH_CHARACTERS", "USER_METADATA_CHARACTERS"),
    ),
    PeerCost(
        "what one request may ask for",
        (),
        (
            *("AMQP_BATCH_MESSAGES", "HTTP_BATCH_MESSAGES", "RULE_BATCH_ASKED", "TRANSACTION_MESSAGES"),
            *("MOVE_NUMBERS", "PEEK_REPLY_BYTES", "BULK_JSON_BYTES"),
        ),
    ),
)
"""What a peer may cost, before and after it is known, in bytes, descriptors, seconds and CPU."""
