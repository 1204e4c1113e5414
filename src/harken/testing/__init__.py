"""Fakes and drivers that ship with the package, for the tests of Harken and of what others build on it.

They behave like the real parts they stand for, and can be steered. Nothing in the product but the demo uses them.
"""

from harken.testing.agent import EdgeClient
from harken.testing.clock import FakeClock
from harken.testing.daemon import CallFailed, DaemonProcess, SocketClient, edge_command, running_daemon

__all__ = ["CallFailed", "DaemonProcess", "EdgeClient", "FakeClock", "SocketClient", "edge_command", "running_daemon"]
