"""`polybus pipelines check`: everything that can be known of a file without running it."""

from __future__ import annotations

from typing import Any

from polybus.errors import ConfigError, EntityNotFound, Unauthorized
from polybus.pipelines.declaration import Declaration
from polybus.pipelines.kind import PipelineKind


def check_pipelines(declaration: Declaration, connect: bool) -> list[dict[str, Any]]:
    """Each pipeline with remarks; ConfigError for the first that cannot run."""
    found = []
    for kind in declaration.pipelines:
        try:
            remarks = kind.check() + (_entities(kind) if connect else [])
        except ConfigError as error:
            raise ConfigError(f"{declaration.file}: pipeline {kind.name!r}: {error}") from None
        found.append({"name": kind.name, "kind": kind.kind, "what": kind.describe(), "remarks": remarks})
    return found


def _entities(kind: PipelineKind) -> list[str]:
    remarks = []
    for reference in kind.entities():
        bus = reference.open()
        try:
            bus.log()
        except EntityNotFound:
            raise ConfigError(f"there is no entity {reference.entity!r} on the bus") from None
        except Unauthorized:
            # A key that may only send cannot look; sending will tell.
            remarks.append(f"the key may not look at {reference.entity!r}")
        finally:
            bus.close()
    return remarks
