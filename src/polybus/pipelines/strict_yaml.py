"""YAML's safe subset, strictly: no name twice in a mapping, no aliases, no tags of one's own."""

from __future__ import annotations

from typing import Any

import yaml


class NotYaml(Exception):
    """What is wrong and where, without the line itself, which may hold a key."""


class StrictLoader(yaml.SafeLoader):  # type: ignore[misc]
    """Plain data only. Aliases are refused because a few of them can stand for a document without end."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.events.AliasEvent):
            raise yaml.composer.ComposerError(None, None, "an alias is not allowed", self.peek_event().start_mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        seen: set[object] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    problem = f"the name {key.value!r} is there twice"
                    raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def document(text: str) -> Any:
    """The only document of a text."""
    try:
        loader = StrictLoader(text)
        try:
            return loader.get_single_data()
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f" (line {mark.line + 1}, column {mark.column + 1})"
        raise NotYaml(f"{getattr(error, 'problem', None) or type(error).__name__}{where}") from None
