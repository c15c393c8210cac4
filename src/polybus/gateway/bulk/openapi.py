"""The description of the bulk API that is served at `/$polybus/openapi.json`, for tools that make clients."""

from __future__ import annotations

from typing import Any

from polybus import __version__, limits
from polybus.gateway.bulk.arrow import ARROW_TYPE, END_KEY
from polybus.gateway.bulk.rows import WRITE_COLUMNS
from polybus.message.columns import READ_COLUMNS
from polybus.namespace.entities.options import OPTION_NAMES

_LINES = "application/x-ndjson"
_JSON = "application/json"
_XML = "application/xml"
"""The form of an error for those who do not ask for JSON."""
_ENTITY = "/$polybus/entities/{entity}"
_INTEGER = {"type": "integer", "format": "int64", "minimum": 0}
_MAYBE = {"type": ["integer", "null"]}
_TEXT = {"type": "string"}
_OBJECT = {"type": "object"}
_POSITIONS = {"type": "object", "additionalProperties": _INTEGER}


def openapi() -> dict[str, Any]:
    """The whole document."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Polybus bulk API",
            "version": __version__,
            "description": "Logs by position, cursors, staged epochs, moves. See docs/reference/bulk.md.",
        },
        "security": [{"sas": []}],
        "paths": {
            **_reading(),
            **_cursors(),
            **_writing(),
            **_verbs(),
            **_jobs(),
            "/$polybus/stores": {"get": _of_namespace("All messaging stores")},
            "/$polybus/cursors": {"get": _of_namespace("All cursors of the namespace")},
            "/$polybus/pipelines": {"get": _of_namespace("All pipelines that runners tell of")},
            **_pipelines(),
        },
        "components": {
            "securitySchemes": {"sas": {"type": "apiKey", "in": "header", "name": "Authorization"}},
            "schemas": {
                "Error": {
                    "type": "object",
                    "properties": {
                        "error": {
                            "type": "object",
                            "properties": {"code": _INTEGER, "sub_code": _MAYBE, "detail": _TEXT},
                        }
                    },
                }
            },
        },
    }


def _reading() -> dict[str, Any]:
    generation = _query("entity_id", _TEXT, "refuse an entity that was created again under its name")
    partition = _query("partition", _INTEGER, "the partition", required=True)
    shape = [
        _query("columns", _TEXT, f"of {', '.join(READ_COLUMNS)}"),
        _query("body", {"type": "boolean"}, "false leaves the bodies out"),
        _query("properties", {"type": "boolean"}, "false leaves the properties out"),
    ]
    form = _query("format", {"enum": ["arrow", "json"]}, "the form of the answer")
    stored = _query("format", {"enum": ["arrow", "json", "records"]}, "the form of the answer")
    ends = f"; the last Arrow batch has the metadata {END_KEY.decode()}, the last line the key `end`"
    return {
        f"{_ENTITY}/log": {
            "get": _operation(
                "Where the log begins and ends", [_query("time", _TEXT, "also find this time"), generation], "Listen"
            )
        },
        f"{_ENTITY}/partitions": {"get": _operation("Each partition: its store, state and counts", [], "Manage")},
        f"{_ENTITY}/range": {
            "get": _stream(
                f"Messages by position{ends}",
                [
                    _query("partition", _INTEGER, "the partition; for records `ranges` names it"),
                    _query("first", _INTEGER, "first position"),
                    _query("last", _INTEGER, "last position, included"),
                    _query("ranges", _TEXT, "PARTITION:FIRST-LAST, several with commas between, for records"),
                    *shape,
                    stored,
                    generation,
                ],
            )
        },
        f"{_ENTITY}/browse": {
            "get": _stream(
                f"Messages as they are now{ends}",
                [
                    _query("state", _TEXT, "active, deferred, scheduled (comma between), or dead-lettered"),
                    _query("partition", _INTEGER, "only this partition"),
                    _query("first", _INTEGER, "first sequence number"),
                    *[_query(name, _TEXT, text) for name, text in _CHOICE.items() if name != "state"],
                    *shape,
                    form,
                    generation,
                ],
            )
        },
        f"{_ENTITY}/events": {
            "get": _operation(
                "What happened to messages",
                [partition, _query("first", _INTEGER, "first event"), _query("limit", _INTEGER, "at most so many")],
                "Listen",
            ),
            "put": _operation("Start or stop keeping events", [], "Manage", {"enabled": {"type": "boolean"}}),
        },
    }


def _pipelines() -> dict[str, Any]:
    name = {"name": "pipeline", "in": "path", "required": True, "schema": _TEXT}
    told = {"state": _TEXT, "kind": _TEXT, "what": _TEXT, "report": _TEXT, "lag": _INTEGER}
    return {
        f"{_ENTITY}/pipelines/{{pipeline}}": {
            "put": _operation("A runner tells of a pipeline", [name], "Listen", told),
            "get": _operation("One pipeline with its runs and its report", [name], "Listen"),
        }
    }


def _cursors() -> dict[str, Any]:
    name = {"name": "cursor", "in": "path", "required": True, "schema": _TEXT}
    fencing = _query("fencing", _INTEGER, "the lease's number")
    path = f"{_ENTITY}/cursors/{{cursor}}"
    start = {"oneOf": [{"enum": ["earliest", "latest"]}, _POSITIONS]}
    lag = {"max_lag_seconds": _INTEGER, "max_lag_bytes": _INTEGER}
    lease = {"holder": _TEXT, "ttl_seconds": _INTEGER, "fencing": _INTEGER, "force": {"type": "boolean"}}
    return {
        f"{_ENTITY}/cursors": {"get": _operation("The cursors of a log", [], "Listen")},
        path: {
            "put": _operation("Create, or find", [name], "Listen", {"start": start, "time": _TEXT, **lag}),
            "get": _operation("One cursor", [name], "Listen"),
            "delete": _operation("Delete", [name, fencing, _query("force", _TEXT, "needs Manage")], "Listen"),
        },
        f"{path}/advance": {
            "post": _operation("Move on", [name], "Listen", {"positions": _POSITIONS, "fencing": _INTEGER})
        },
        f"{path}/lease": {
            "post": _operation("Take or renew the lease", [name], "Listen", lease),
            "delete": _operation("Give the lease back", [name, fencing], "Listen"),
        },
    }


def _writing() -> dict[str, Any]:
    stages = {"type": "array", "items": _OBJECT}
    stage = _operation(
        f"Stage rows; columns {', '.join(WRITE_COLUMNS)}",
        [
            _query("producer", _TEXT, "claim the producer for this query"),
            _query("query", _TEXT, "the query's id"),
            _query("unknown", {"enum": ["properties"]}, "unknown columns become properties"),
        ],
        "Send",
    )
    stage["requestBody"] = {"required": True, "content": {ARROW_TYPE: {}, _LINES: {}}}
    publish = {"producer": _TEXT, "query": _TEXT, "epoch": _INTEGER, "stages": stages, "wait_seconds": _INTEGER}
    move = {"numbers": {"type": "array", "items": _INTEGER}, "to": _TEXT, "changes": _OBJECT, "edits": _OBJECT}
    producer = {"name": "producer", "in": "path", "required": True, "schema": _TEXT}
    return {
        f"{_ENTITY}/stage": {"post": stage},
        f"{_ENTITY}/publish": {"post": _operation("Publish an epoch", [], "Send", publish)},
        f"{_ENTITY}/abort": {"post": _operation("Throw stages away", [], "Send", {"stages": stages})},
        f"{_ENTITY}/producers/{{producer}}": {"get": _operation("How far a producer is", [producer], "Send")},
        f"{_ENTITY}/move": {"post": _operation("Move messages by number", [], "Listen here, Send there", move)},
    }


_CHOICE = {
    "state": "active, deferred, scheduled (comma between), or dead-lettered",
    "from": "enqueued at this time or later",
    "before": "enqueued before this time",
    "due_from": "scheduled for this time or later",
    "due_before": "scheduled for before this time",
    "filter": "a condition, as a subscription's SQL rule has it",
}
"""The words by which messages are chosen."""


def _verbs() -> dict[str, Any]:
    """What deals with many messages at once, as a job."""
    words = {name: {"type": "string", "description": text} for name, text in _CHOICE.items()}
    flag = {"type": "boolean"}
    common: dict[str, Any] = {
        **words,
        "partition": _INTEGER,
        "dry_run": flag,
        "count": flag,
        "limit": _INTEGER,
        "rate": {"type": "number", "exclusiveMinimum": 0},
        "wait_seconds": {"type": "integer", "minimum": 0, "maximum": limits.JOB_WAIT_SECONDS},
    }
    message = {"message": _OBJECT}
    rule = {
        "rule": _OBJECT,
        "filter": _TEXT,
        "action": _TEXT,
        "limit": _INTEGER,
        "first": _INTEGER,
        "look_at": _INTEGER,
    }
    redrive = {"to": _TEXT, "edit": _OBJECT, "edits": _OBJECT}
    later = {"to": _TEXT, "by_seconds": {"type": "number"}}
    session = {"name": "session", "in": "path", "required": True, "schema": _TEXT}
    page = [_query("limit", _INTEGER, "at most so many"), _query("after", _TEXT, "`next` of the answer before")]
    return {
        f"{_ENTITY}/purge": {"post": _operation("Remove messages for good", [], "Listen", common)},
        f"{_ENTITY}/redrive": {
            "post": _operation("Send dead letters on", [], "Listen here, Send there", {**common, **redrive})
        },
        f"{_ENTITY}/defer": {"post": _operation("Defer active messages", [], "Listen", common)},
        f"{_ENTITY}/undefer": {"post": _operation("Make deferred messages active again", [], "Listen", common)},
        f"{_ENTITY}/scheduled/cancel": {"post": _operation("Take scheduled messages back", [], "Send", common)},
        f"{_ENTITY}/scheduled/move": {
            "post": _operation("Give scheduled messages another time", [], "Send", {**common, **later})
        },
        f"{_ENTITY}/options": {
            "get": _operation("Options that no SDK has a property for", [], "Listen"),
            "put": _operation("Set them; null takes one away", [], "Manage", dict.fromkeys(OPTION_NAMES, _TEXT)),
        },
        f"{_ENTITY}/sessions": {"get": _operation("Sessions with their counts and holders", page, "Listen")},
        f"{_ENTITY}/sessions/{{session}}/state": {
            "get": _operation("The state of one session, in base64", [session], "Listen")
        },
        f"{_ENTITY}/dry-run": {
            "post": _operation("Try a message on rules, or a rule on messages", [], "Listen", {**message, **rule})
        },
    }


def _jobs() -> dict[str, Any]:
    job = {"name": "job", "in": "path", "required": True, "schema": _TEXT}
    trace = _of_namespace("Everything that happened to one message")
    trace["parameters"] = [
        _query("message_id", _TEXT, "the message's id, or"),
        _query("trace_id", _TEXT, "the id of the trace that its sender began"),
        _query("from", _TEXT, "nothing older than this time"),
    ]
    return {
        "/$polybus/trace": {"get": trace},
        "/$polybus/jobs": {"get": _of_namespace("Jobs that run, and the last that ended")},
        "/$polybus/jobs/{job}": {
            "get": {**_operation("How far a job is", [], "Listen"), "parameters": [job]},
            "delete": {**_operation("Stop a job", [], "Listen"), "parameters": [job]},
        },
    }


def _query(name: str, schema: dict[str, Any], text: str, *, required: bool = False) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": required, "description": text, "schema": schema}


def _operation(
    summary: str, parameters: list[dict[str, Any]], right: str, body: dict[str, Any] | None = None
) -> dict[str, Any]:
    entity = {"name": "entity", "in": "path", "required": True, "schema": _TEXT}
    operation: dict[str, Any] = {
        "summary": summary,
        "description": f"Needs: {right}.",
        "parameters": [entity, *parameters],
        "responses": {
            "2XX": {"description": "Done", "content": {_JSON: {}}},
            "204": {"description": "Done, and there is nothing to say"},
            "default": {"description": "Refused", "content": {_JSON: {"schema": {"$ref": _ERROR}}, _XML: {}}},
        },
    }
    if body is not None:
        schema = {"type": "object", "properties": body}
        operation["requestBody"] = {"content": {_JSON: {"schema": schema}}}
    return operation


def _of_namespace(summary: str) -> dict[str, Any]:
    """An operation whose path names no entity, and which must not have it as a parameter either."""
    return {**_operation(summary, [], "Manage"), "parameters": []}


_ERROR = "#/components/schemas/Error"


def _stream(summary: str, parameters: list[dict[str, Any]]) -> dict[str, Any]:
    operation = _operation(summary, parameters, "Listen")
    operation["responses"]["2XX"] = {"description": "Rows", "content": {ARROW_TYPE: {}, _LINES: {}}}
    return operation
