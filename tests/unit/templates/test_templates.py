"""Templates worked out: expressions, parameters, variables, loops, conditions, nesting, order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from polybus.errors import TemplateError
from polybus.templates.evaluation import Scope
from polybus.templates.template import parameters_of, resources_of

BICEP = json.loads((Path(__file__).parent / "bicep.json").read_text())
QUEUE = "Microsoft.ServiceBus/namespaces/queues"


def value(expression: str, **variables: Any) -> Any:
    return Scope({"variables": variables}, {}).value(expression)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("plain", "plain"),
        ("[[concat('a')]", "[concat('a')]"),
        ("[concat('it''s', '-', 5)]", "it's-5"),
        ("[concat(createArray(1), createArray(2, 3))]", [1, 2, 3]),
        ("[format('{0}/{1:N0}', 'a', 7)]", "a/7"),
        ("[toUpper(substring('partition', 0, 4))]", "PART"),
        ("[join(split('a,b;c', createArray(',', ';')), '-')]", "a-b-c"),
        ("[if(equals(mod(7, 3), 1), 'yes', parameters('missing'))]", "yes"),
        ("[and(not(false()), or(false(), less(1, 2)))]", True),
        ("[coalesce(null(), 'x')]", "x"),
        ("[union(createObject('a', 1), createObject('b', createObject('c', 2)))]", {"a": 1, "b": {"c": 2}}),
        ("[createObject('Key', 1).key]", 1),
        ("[range(2, 3)[1]]", 3),
        ("[contains('abc', 'b')]", True),
        ("[empty('')]", True),
        ("[string(true())]", "True"),
        ("[div(-7, 2)]", -3),
        ("[max(createArray(1, 9, 3))]", 9),
        ("[padLeft(7, 3, '0')]", "007"),
        ("[variables('outer')]", "q-inner"),
        (
            "[resourceId('Microsoft.ServiceBus/namespaces/queues', 'ns', 'q')]",
            "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/polybus/providers"
            "/Microsoft.ServiceBus/namespaces/ns/queues/q",
        ),
    ],
)
def test_expressions(expression: str, expected: object) -> None:
    found = value(expression, outer="[concat('q-', variables('inner'))]", inner="inner")
    assert found == expected
    assert type(found) is type(expected)


def test_unique_strings_follow_from_what_they_are_made_of() -> None:
    assert value("[uniqueString('a', 'b')]") == value("[uniqueString('a', 'b')]") != value("[uniqueString('a')]")
    assert len(value("[uniqueString(resourceGroup().id)]")) == 13


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("[listKeys('x', '2021')]", "listkeys() is not known"),
        ("[concat('a'", None),
        ("[concat('a',]", "cannot be read"),
        ("[concat 'a']", "cannot be read"),
        ("[variables('nothing')]", "no variable"),
        ("[parameters('nothing')]", "no parameter"),
        ("[substring('abc', 2, 5)]", "outside"),
        ("[div(1, 0)]", "by zero"),
        ("[copyIndex()]", "outside of its copy"),
        ("[createObject('a', 1).b]", "there is no"),
        ("[add('a', 1)]", "cannot be worked out"),
        ("[variables('circle')]", "made of itself"),
        ("[" + "not(" * 50 + "true()" + ")" * 50 + "]", "deeper"),
    ],
)
def test_what_cannot_be_worked_out_says_why(expression: str, words: str | None) -> None:
    if words is None:
        assert value(expression) == expression  # it does not end as an expression does
        return
    with pytest.raises(TemplateError, match=words.replace("(", r"\(").replace(")", r"\)")):
        value(expression, circle="[variables('circle')]")


def test_what_bicep_writes() -> None:
    found = resources_of(BICEP, {"namespaceName": "Shop"})
    assert [each.path for each in found] == [
        "namespaces/Shop",
        "namespaces/Shop/queues/orders",
        "namespaces/Shop/queues/invoices",
        "namespaces/Shop/topics/shop-events",
        "namespaces/Shop/topics/shop-events/subscriptions/audit",
        "namespaces/Shop/topics/shop-events/subscriptions/audit/rules/large",
    ]
    assert found[2].properties == {"enablePartitioning": True, "lockDuration": "PT2M", "maxDeliveryCount": 6}
    assert found[4].properties == {"forwardTo": "orders"}
    few = resources_of(BICEP, {"namespaceName": "Shop", "withAudit": False, "queues": []})
    assert [each.path for each in few] == ["namespaces/Shop", "namespaces/Shop/topics/shop-events"]


def template(*resources: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"resources": list(resources), **more}


def queue(name: str, **more: Any) -> dict[str, Any]:
    return {"type": QUEUE, "name": f"ns/{name}", "apiVersion": "2021-11-01", **more}


def test_nested_resources_and_their_order() -> None:
    nested = {
        "type": "Microsoft.ServiceBus/namespaces",
        "name": "ns",
        "resources": [
            {"type": "queues", "name": "a", "dependsOn": ["ns", "[resourceId('" + QUEUE + "', 'ns', 'b')]"]},
            {"type": "Microsoft.ServiceBus/namespaces/queues", "name": "ns/b"},
            {
                "type": "topics",
                "name": "t",
                "resources": [{"type": "subscriptions", "name": "s", "dependsOn": ["t"]}],
            },
        ],
    }
    assert [each.path for each in resources_of(template(nested))] == [
        "namespaces/ns",
        "namespaces/ns/queues/b",
        "namespaces/ns/topics/t",
        "namespaces/ns/queues/a",
        "namespaces/ns/topics/t/subscriptions/s",
    ]


def test_a_deployment_inside_has_values_of_its_own() -> None:
    inner = template(queue("[parameters('name')]") | {"name": "[concat('ns/', parameters('name'))]"})
    inner["parameters"] = {"name": {"type": "string"}}
    module = {
        "type": "Microsoft.Resources/deployments",
        "name": "module",
        "properties": {
            "expressionEvaluationOptions": {"scope": "inner"},
            "parameters": {"name": {"value": "[parameters('outer')]"}},
            "template": inner,
        },
    }
    document = template(module, parameters={"outer": {"type": "string", "defaultValue": "deep"}})
    assert [each.path for each in resources_of(document)] == ["namespaces/ns/queues/deep"]


def test_loops_in_properties_and_variables() -> None:
    document = template(
        queue("q", properties={"copy": [{"name": "rights", "count": 2, "input": "[copyIndex('rights', 1)]"}]}),
        variables={"copy": [{"name": "names", "count": 3, "input": "[concat('n', copyIndex('names'))]"}]},
    )
    assert resources_of(document)[0].properties == {"rights": [1, 2]}
    assert Scope(document, {}).value("[variables('names')]") == ["n0", "n1", "n2"]


@pytest.mark.parametrize(
    ("document", "parameters", "words"),
    [
        ([], {}, "JSON object"),
        ({"$schema": "https://example.org/other.json#", "resources": []}, {}, "schema"),
        (template({"type": "Microsoft.Storage/storageAccounts", "name": "x"}), {}, "cannot be had"),
        (template({"type": QUEUE, "name": "alone"}), {}, "does not fit"),
        (template(queue("a"), queue("A")), {}, "twice"),
        (template(queue("a", dependsOn=["b"]), queue("b", dependsOn=["a"])), {}, "circle"),
        (template(queue("a", dependsOn=["nothing"])), {}, "not in the template"),
        (template(queue("a", copy={"name": "x", "count": 100_000})), {}, "count"),
        (template(parameters={"p": {"type": "string"}}), {}, "no value"),
        (template(parameters={"p": {"type": "int"}}), {"p": "text"}, "type int"),
        (template(parameters={"p": {"type": "int"}}), {"p": True}, "type int"),
        (template(parameters={"p": {"type": "string", "allowedValues": ["a"]}}), {"p": "b"}, "may be a"),
        (template(parameters={"p": {"type": "int", "maxValue": 5}}), {"p": 6}, "bounds"),
        (template(), {"q": 1}, "no parameter"),
    ],
)
def test_templates_that_cannot_be(document: Any, parameters: dict[str, Any], words: str) -> None:
    with pytest.raises(TemplateError, match=words):
        resources_of(document, parameters)


def test_parameters_files() -> None:
    assert parameters_of({"parameters": {"a": {"value": [1]}}}) == {"a": [1]}
    assert parameters_of({"a": 1}) == {"a": 1}
    with pytest.raises(TemplateError, match="key vault"):
        parameters_of({"parameters": {"a": {"reference": {}}}})
