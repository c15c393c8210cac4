"""XML text to a small tree of elements, and text to XML, both safe whatever the text is.

Why a reader of its own: ElementTree accepts document types, and the expat in use may be older than its own
guards against expanding entities and huge tokens. Here a body is refused by its size before expat sees a
byte; a document type, a second encoding, too many levels, elements or attributes end the parse at once;
nothing is ever loaded from outside. Prefixes and namespaces are dropped: clients choose them freely
(docs/protocol/atom.md#envelope).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from xml.parsers import expat

from polybus import limits
from polybus.errors import ArgumentError
from polybus.namespace.entities.validation import is_xml_character

SERVICE_BUS = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
INSTANCE = "http://www.w3.org/2001/XMLSchema-instance"
_SEPARATOR = " "


class Element:
    """An element by its local name. Text is what stands directly in it, comments left out."""

    __slots__ = ("attributes", "children", "name", "texts")

    def __init__(self, name: str, attributes: dict[str, str]) -> None:
        self.name = name
        self.attributes = attributes
        self.children: list[Element] = []
        self.texts: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self.texts)

    @property
    def is_nil(self) -> bool:
        return self.attributes.get("nil", "").strip() in ("true", "1")

    def child(self, name: str) -> Element | None:
        """The first child of that name that is not nil."""
        return next((child for child in self.children if child.name == name and not child.is_nil), None)

    def present(self) -> Iterator[Element]:
        """The children that are not nil."""
        return (child for child in self.children if not child.is_nil)


def read_xml(body: bytes) -> Element:
    """The root of a document; ArgumentError for all that is not small, plain, well-formed XML in UTF-8."""
    if len(body) > limits.XML_BODY_BYTES:
        raise ArgumentError(f"The request body is larger than {limits.XML_BODY_BYTES} bytes.")
    if body[:2] in (b"\xff\xfe", b"\xfe\xff") or b"\x00" in body:
        raise ArgumentError("The request body must be encoded in UTF-8.")
    return _XmlReader().read(body)


class _XmlReader:
    """Builds the tree out of expat's calls. It lives for one document."""

    def __init__(self) -> None:
        self._open: list[Element] = []
        self._root: Element | None = None
        self._count = 0

    def read(self, body: bytes) -> Element:
        # The encoding is forced, so that a declared one never makes expat look for a codec by name.
        parser = expat.ParserCreate(encoding="UTF-8", namespace_separator=_SEPARATOR)
        parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
        parser.buffer_text = True
        parser.XmlDeclHandler = self._declaration
        parser.StartDoctypeDeclHandler = self._refuse_document_type
        parser.EntityDeclHandler = self._refuse_document_type
        parser.ExternalEntityRefHandler = self._refuse_document_type
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        try:
            parser.Parse(body, True)
        except expat.ExpatError as error:
            reason = f"{expat.ErrorString(error.code)} in line {error.lineno}"
            raise ArgumentError(f"The request body is not well-formed XML: {reason}.") from None
        assert self._root is not None, "expat accepted a document without a root"
        return self._root

    def _declaration(self, version: str, encoding: str | None, standalone: int) -> None:
        del version, standalone
        if encoding is not None and encoding.lower() not in ("utf-8", "utf8", "us-ascii"):
            raise ArgumentError(f"The request body must be encoded in UTF-8, not in {encoding[:40]!a}.")

    def _refuse_document_type(self, *_: Any) -> int:
        raise ArgumentError("The request body must not have a document type or entities.")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._count += 1
        if len(self._open) >= limits.XML_DEPTH or self._count > limits.XML_ELEMENTS:
            raise ArgumentError("The request body has too many elements.")
        if len(attributes) > limits.XML_ATTRIBUTES:
            raise ArgumentError("An element of the request body has too many attributes.")
        element = Element(_local(name), {_local(key): value for key, value in attributes.items()})
        if self._open:
            self._open[-1].children.append(element)
        else:
            self._root = element
        self._open.append(element)

    def _end(self, name: str) -> None:
        del name
        self._open.pop()

    def _characters(self, text: str) -> None:
        self._open[-1].texts.append(text)


def _local(name: str) -> str:
    return name.rsplit(_SEPARATOR, 1)[-1]


_ESCAPES = {
    ord("&"): "&amp;",
    ord("<"): "&lt;",
    ord(">"): "&gt;",
    ord('"'): "&quot;",
    # A parser turns these into spaces or line feeds unless they are written as references.
    ord("\r"): "&#xD;",
    ord("\n"): "&#xA;",
    ord("\t"): "&#x9;",
}
_TEXT_ESCAPES = {code: text for code, text in _ESCAPES.items() if code not in (ord("\n"), ord("\t"), ord('"'))}


def escape(text: str) -> str:
    """Text for the inside of an element. What XML cannot carry is shown as a replacement character."""
    return _carried(text).translate(_TEXT_ESCAPES)


def escape_attribute(text: str) -> str:
    """Text for between the double quotes of an attribute."""
    return _carried(text).translate(_ESCAPES)


def _carried(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(character if is_xml_character(character) else "\ufffd" for character in text)


def boolean_text(value: bool) -> str:
    return "true" if value else "false"


def described_xml(name: str, inside: str) -> str:
    """A description's element. It declares the namespaces once, so that nothing inside needs an attribute."""
    return f'<{name} xmlns="{SERVICE_BUS}" xmlns:i="{INSTANCE}">{inside}</{name}>'
