"""One message: its sections located in the sender's bytes, which stay untouched, and the broker's marks."""

from polybus.message.message import Message
from polybus.message.overlay import REMOVED, Overlay
from polybus.message.rendering import Marks, render
from polybus.message.view import View

__all__ = ["REMOVED", "Marks", "Message", "Overlay", "View", "render"]
