"""The values of a template: its parameters and variables, and whatever has expressions in it."""

from __future__ import annotations

from typing import Any

from polybus.errors import TemplateError
from polybus.limits import TEMPLATE_COPIES, TEMPLATE_DEPTH
from polybus.templates.expression import FunctionCall, Literal, Member, Node, is_expression, parse
from polybus.templates.functions import FUNCTIONS

Json = dict[str, Any]
SUBSCRIPTION = "00000000-0000-0000-0000-000000000000"
GROUP = "polybus"
_SCOPE = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}"
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "securestring": (str,),
    "int": (int,),
    "bool": (bool,),
    "object": (dict,),
    "secureobject": (dict,),
    "array": (list,),
}


class Scope:
    """What expressions can name. Variables are worked out when they are first asked for."""

    def __init__(self, template: Json, given: Json) -> None:
        self._variables = _object(template, "variables")
        self._known: Json = {}
        self._under_way: list[str] = []
        self._copies: dict[str, int] = {}
        self._own: dict[str, Any] = {"parameters": self._parameter, "variables": self._variable}
        self.parameters: Json = {}
        declared = _object(template, "parameters")
        unknown = [name for name in given if name.lower() not in {each.lower() for each in declared}]
        if unknown:
            raise TemplateError(f"the template has no parameter {unknown[0]!a}")
        values = {name.lower(): value for name, value in given.items()}
        for name, described in declared.items():
            self.parameters[name.lower()] = self._checked(name, described, values)

    # Parameters and variables

    def _checked(self, name: str, described: Any, given: Json) -> Any:
        if not isinstance(described, dict):
            raise TemplateError(f"the parameter {name!a} is not described by an object")
        if name.lower() in given:
            value = given[name.lower()]
        elif "defaultValue" in described:
            value = self.value(described["defaultValue"])
        elif described.get("nullable") is True:
            return None
        else:
            raise TemplateError(f"the parameter {name!a} has no value and no default")
        kind = str(described.get("type", "")).lower()
        if kind in _TYPES and (not isinstance(value, _TYPES[kind]) or (kind != "bool" and isinstance(value, bool))):
            raise TemplateError(f"the parameter {name!a} must be of the type {kind}")
        _check_bounds(name, described, value)
        return value

    def _parameter(self, name: str) -> Any:
        if name.lower() not in self.parameters:
            raise TemplateError(f"the template has no parameter {name!a}")
        return self.parameters[name.lower()]

    def _variable(self, name: str) -> Any:
        folded = {key.lower(): key for key in self._variables}
        key = folded.get(name.lower())
        if key is None:
            return self._copied_variable(name)
        if key not in self._known:
            if key in self._under_way:
                raise TemplateError(f"the variable {key!a} is made of itself")
            self._under_way.append(key)
            self._known[key] = self.value(self._variables[key])
            self._under_way.pop()
        return self._known[key]

    def _copied_variable(self, name: str) -> Any:
        """One that is made by `copy`, beside the others."""
        for each in self._variables.get("copy", []):
            if isinstance(each, dict) and str(each.get("name", "")).lower() == name.lower():
                return self._loop(each, each.get("input"))
        raise TemplateError(f"the template has no variable {name!a}")

    # Loops

    def count(self, described: Any) -> int:
        """How often a `copy` repeats."""
        count = self.value(described.get("count")) if isinstance(described, dict) else None
        if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= TEMPLATE_COPIES:
            raise TemplateError(f"the count of a copy must be a number from 0 to {TEMPLATE_COPIES}")
        return count

    def enter(self, loop: str, index: int) -> None:
        self._copies.pop(loop.lower(), None)
        self._copies[loop.lower()] = index

    def leave(self, loop: str) -> None:
        del self._copies[loop.lower()]

    def _loop(self, described: Json, each: Any) -> list[Any]:
        name, made = str(described.get("name", "")), []
        for index in range(self.count(described)):
            self.enter(name, index)
            made.append(self.value(each))
            self.leave(name)
        return made

    def _copy_index(self, *given: Any) -> int:
        texts = [each for each in given if isinstance(each, str)]
        name = texts[0].lower() if texts else next(reversed(self._copies), None)
        if name is None or name not in self._copies:
            raise TemplateError("copyIndex() stands outside of its copy")
        return self._copies[name] + sum(each for each in given if isinstance(each, int))

    # Values

    def value(self, raw: Any, depth: int = 0) -> Any:
        """A value of the template with its expressions worked out."""
        if depth > TEMPLATE_DEPTH:
            raise TemplateError(f"the template is nested deeper than {TEMPLATE_DEPTH}")
        if isinstance(raw, str):
            if is_expression(raw):
                return self._node(parse(raw), raw)
            return raw[1:] if raw.startswith("[[") else raw
        if isinstance(raw, list):
            return [self.value(item, depth + 1) for item in raw]
        if isinstance(raw, dict):
            made = {str(self.value(key)): self.value(item, depth + 1) for key, item in raw.items() if key != "copy"}
            loops = raw.get("copy")
            if isinstance(loops, list):
                made.update({str(each["name"]): self._loop(each, each.get("input")) for each in loops})
            elif loops is not None:
                made["copy"] = self.value(loops, depth + 1)
            return made
        return raw

    def _node(self, node: Node, whole: str) -> Any:
        if isinstance(node, Literal):
            return node.value
        if isinstance(node, Member):
            return _member(self._node(node.of, whole), self._node(node.key, whole), whole)
        if node.function == "if":
            if len(node.arguments) != 3:
                raise TemplateError(f"if() takes three values: {whole[:200]!a}")
            chosen = 1 if self._node(node.arguments[0], whole) is True else 2
            return self._node(node.arguments[chosen], whole)
        return self._call(node, whole)

    def _call(self, node: FunctionCall, whole: str) -> Any:
        function = self._own.get(node.function) or _AROUND.get(node.function) or FUNCTIONS.get(node.function)
        if node.function == "copyindex":
            function = self._copy_index
        if function is None:
            raise TemplateError(f"the function {node.function}() is not known here: {whole[:200]!a}")
        arguments = [self._node(argument, whole) for argument in node.arguments]
        try:
            return function(*arguments)
        except TemplateError:
            raise
        except Exception as error:
            raise TemplateError(f"{node.function}() cannot be worked out in {whole[:200]!a}: {error}") from None


def _object(template: Json, name: str) -> Json:
    value = template.get(name) or {}
    if not isinstance(value, dict):
        raise TemplateError(f"'{name}' of a template must be an object")
    return value


def _check_bounds(name: str, described: Json, value: Any) -> None:
    allowed = described.get("allowedValues")
    if isinstance(allowed, list) and value not in allowed:
        raise TemplateError(f"the parameter {name!a} may be {', '.join(map(str, allowed))}")
    measured = value if isinstance(value, int) else len(value) if hasattr(value, "__len__") else 0
    low = described.get("minValue", described.get("minLength"))
    high = described.get("maxValue", described.get("maxLength"))
    if (isinstance(low, int) and measured < low) or (isinstance(high, int) and measured > high):
        raise TemplateError(f"the parameter {name!a} is out of its bounds, {low} to {high}")


def _member(of: Any, key: Any, whole: str) -> Any:
    if isinstance(of, dict):
        for name, value in of.items():
            if name.lower() == str(key).lower():
                return value
    elif isinstance(of, list) and isinstance(key, int) and 0 <= key < len(of):
        return of[key]
    raise TemplateError(f"there is no {key!r} in what {whole[:200]!a} looks at")


def resource_id(*given: str) -> str:
    """The id of a resource: its type, and a name for each part of that; an Azure subscription and a group may lead."""
    at = next((place for place, each in enumerate(given) if "/" in each), None)
    if at is None:
        raise TemplateError("resourceId() takes a type such as Microsoft.ServiceBus/namespaces/queues")
    provider, *types = given[at].split("/")
    names = [part for each in given[at + 1 :] for part in each.split("/")]
    if len(types) != len(names):
        raise TemplateError(f"resourceId({given[at]!r}) takes {len(types)} names, and has {len(names)}")
    parts = [part for pair in zip(types, names, strict=True) for part in pair]
    return "/".join([_SCOPE, "providers", provider, *parts])


_AROUND: dict[str, Any] = {
    "resourceid": resource_id,
    "resourcegroup": lambda: {"name": GROUP, "id": _SCOPE, "location": "local", "tags": {}},
    "subscription": lambda: {
        "subscriptionId": SUBSCRIPTION,
        "id": f"/subscriptions/{SUBSCRIPTION}",
        "tenantId": SUBSCRIPTION,
        "displayName": GROUP,
    },
    "deployment": lambda: {"name": "polybus"},
    "tenant": lambda: {"tenantId": SUBSCRIPTION},
    "environment": lambda: {"name": "polybus"},
}
