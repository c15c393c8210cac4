"""A template taken apart: its resources with everything worked out, in the order in which they can be created.

Resources may be a list, or an object with symbolic names as Bicep writes it; they may be nested, repeated, left out by a
condition, or lie in a deployment inside of the template, as Bicep writes modules.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from polybus.errors import TemplateError
from polybus.limits import TEMPLATE_DEPTH, TEMPLATE_RESOURCES
from polybus.templates.evaluation import Json, Scope

PROVIDER = "Microsoft.ServiceBus"
_DEPLOYMENT = "microsoft.resources/deployments"
_SCHEMAS = ("deploymenttemplate.json", "subscriptiondeploymenttemplate.json")


@dataclass
class Resource:
    """One resource: `types` behind the provider's name, and a name for each of them."""

    types: tuple[str, ...]
    names: tuple[str, ...]
    properties: Json
    sku: Json = field(default_factory=dict)
    labels: set[str] = field(default_factory=set)
    """What `dependsOn` may call it, folded."""
    depends_on: list[str] = field(default_factory=list)

    @property
    def kind(self) -> str:
        return "/".join(self.types)

    @property
    def path(self) -> str:
        """Types and names in turn, as in the resource manager's paths."""
        return "/".join(part for pair in zip(self.types, self.names, strict=True) for part in pair)


def resources_of(template: object, parameters: Json | None = None) -> list[Resource]:
    """What a template asks for, each resource behind those that it depends on."""
    found: list[Resource] = []
    reader = _Reader(found)
    reader.read(template, parameters or {}, 0)
    seen: set[str] = set()
    for each in found:
        if each.path.lower() in seen:
            raise TemplateError(f"{each.path} is in the template twice")
        seen.add(each.path.lower())
    return _ordered(found, reader.absent)


class _Reader:
    def __init__(self, found: list[Resource]) -> None:
        self._found = found
        self.absent: set[str] = set()
        """What is named and not made: there already, or left out."""

    def read(self, template: object, parameters: Json, depth: int) -> None:
        if not isinstance(template, dict) or "resources" not in template:
            raise TemplateError("a template is a JSON object with 'resources'")
        schema = str(template.get("$schema", "")).lower().split("/")[-1].rstrip("#")
        if schema and schema not in _SCHEMAS:
            raise TemplateError(f"the $schema names {schema!a}, which is not a template for a resource group")
        if depth > TEMPLATE_DEPTH:
            raise TemplateError(f"deployments are nested deeper than {TEMPLATE_DEPTH}")
        self._list(Scope(template, parameters), template["resources"], None, depth)

    def _list(self, scope: Scope, raw: object, parent: Resource | None, depth: int) -> None:
        if isinstance(raw, dict):
            rows = [(str(label), each) for label, each in raw.items()]
        elif isinstance(raw, list):
            rows = [("", each) for each in raw]
        else:
            raise TemplateError("'resources' must be a list, or an object of symbolic names")
        for label, each in rows:
            if not isinstance(each, dict):
                raise TemplateError("a resource must be a JSON object")
            self._repeated(scope, label, each, parent, depth)

    def _repeated(self, scope: Scope, label: str, raw: Json, parent: Resource | None, depth: int) -> None:
        copy = raw.get("copy")
        if copy is None:
            self._one(scope, label, raw, parent, depth, set())
            return
        name = str(scope.value(copy.get("name", "")) if isinstance(copy, dict) else "")
        for index in range(scope.count(copy)):
            scope.enter(name, index)
            self._one(scope, label, raw, parent, depth, {name.lower()})
            scope.leave(name)

    def _one(self, scope: Scope, label: str, raw: Json, parent: Resource | None, depth: int, loops: set[str]) -> None:
        if len(self._found) >= TEMPLATE_RESOURCES:
            raise TemplateError(f"a template may have {TEMPLATE_RESOURCES} resources")
        kind = str(scope.value(raw.get("type", "")))
        if kind.lower() == _DEPLOYMENT:
            self._deployment(scope, raw, depth)
            return
        wanted = scope.value(raw.get("condition", True))
        # What is left out is not worked out either: its values may be nowhere.
        shown = raw if wanted is not False else {key: raw[key] for key in raw if key not in ("properties", "sku")}
        resource = self._resource(scope, kind, shown, parent)
        resource.labels |= {label.lower(), *loops} - {""}
        if raw.get("existing") is True or wanted is False:
            self.absent |= {resource.path.lower(), *resource.labels}
            if wanted is False:
                return
        else:
            self._found.append(resource)
        if "resources" in raw:
            self._list(scope, raw["resources"], resource, depth + 1)

    def _resource(self, scope: Scope, kind: str, raw: Json, parent: Resource | None) -> Resource:
        name = str(scope.value(raw.get("name", "")))
        types, names = kind.split("/"), name.split("/")
        if parent is not None and types[0].lower() != PROVIDER.lower():
            types, names = [*parent.types, *types], [*parent.names, *names]
        elif types[0].lower() != PROVIDER.lower():
            raise TemplateError(f"a resource of the type {kind[:100]!a} cannot be had on a bus")
        else:
            types = types[1:]
            if parent is not None and len(names) < len(types):
                names = [*parent.names, *names]
        if not types or len(types) != len(names) or not all(names):
            raise TemplateError(f"the name {name[:100]!a} does not fit the type {kind[:100]!a}")
        rest = {key: scope.value(value) for key, value in raw.items() if key in ("properties", "sku")}
        depends = [str(scope.value(each)) for each in raw.get("dependsOn") or []]
        return Resource(
            tuple(types),
            tuple(names),
            rest.get("properties") or {},
            rest.get("sku") or {},
            labels={names[-1].lower(), "/".join(names).lower()},
            depends_on=depends,
        )

    def _deployment(self, scope: Scope, raw: Json, depth: int) -> None:
        """A template in the template: with values of its own, or with those around it."""
        if scope.value(raw.get("condition", True)) is False:
            return
        properties = raw.get("properties") or {}
        inner = str((properties.get("expressionEvaluationOptions") or {}).get("scope", "outer")).lower() == "inner"
        template = properties.get("template")
        if template is None:
            raise TemplateError("a deployment inside of a template must have its template with it")
        if inner:
            given = {
                name: scope.value(each).get("value") for name, each in (properties.get("parameters") or {}).items()
            }
            self.read(template, given, depth + 1)
        else:
            self._list(scope, template.get("resources", []), None, depth + 1)


# Order


def _ordered(resources: list[Resource], absent: set[str]) -> list[Resource]:
    waiting = list(resources)
    done: list[Resource] = []
    needs = {id(each): _needs(each, resources, absent) for each in resources}
    ready: set[int] = set()
    while waiting:
        free = [each for each in waiting if needs[id(each)] <= ready]
        if not free:
            raise TemplateError(
                f"resources depend on each other in a circle: {', '.join(each.path for each in waiting)}"
            )
        done += free
        ready |= {id(each) for each in free}
        waiting = [each for each in waiting if id(each) not in ready]
    return done


def _needs(resource: Resource, resources: list[Resource], absent: set[str]) -> set[int]:
    """Those that must be there before: what it says, and the entity that it lies in."""
    found: set[int] = set()
    for wanted in resource.depends_on:
        named = _named(wanted, resource, resources)
        if not named and _tail(wanted) not in absent and wanted.lower() not in absent:
            raise TemplateError(f"{resource.path} depends on {wanted[:200]!a}, which is not in the template")
        found |= named
    for each in resources:
        inside = len(each.names) < len(resource.names)
        if inside and resource.path.lower().startswith(each.path.lower() + "/"):
            found.add(id(each))
    return found


def _named(wanted: str, resource: Resource, resources: list[Resource]) -> set[int]:
    text, tail = wanted.lower(), _tail(wanted)
    others = [each for each in resources if each is not resource]
    return {id(each) for each in others if each.path.lower() == tail or text in each.labels}


def _tail(wanted: str) -> str:
    """Types and names in turn, of a whole id or of a part of one."""
    provider = PROVIDER.lower()
    return wanted.lower().split(f"/providers/{provider}/")[-1].removeprefix(f"{provider}/")


def parameters_of(document: Any) -> Json:
    """The values in a parameters file, or in a plain object of names and values."""
    if not isinstance(document, dict):
        raise TemplateError("a parameters file is a JSON object")
    inner = document.get("parameters", document)
    if not isinstance(inner, dict):
        raise TemplateError("'parameters' must be an object")
    found: Json = {}
    for name, each in inner.items():
        if "reference" in (each if isinstance(each, dict) else {}):
            raise TemplateError(f"the parameter {name!a} refers to a key vault, and there is none here")
        found[name] = each["value"] if isinstance(each, dict) and "value" in each else each
    return found
