"""The checker: what a history of services and tasks must be, whatever was killed meanwhile. Pure.

`check(history)` gives all that is wrong; history.py says what a history is, violation.py what may be wrong with one.
"""

from raptor.testing.checker.checking import check as check
from raptor.testing.checker.checking import counted as counted
from raptor.testing.checker.history import Bounds as Bounds
from raptor.testing.checker.history import Command as Command
from raptor.testing.checker.history import Declared as Declared
from raptor.testing.checker.history import Dump as Dump
from raptor.testing.checker.history import Fault as Fault
from raptor.testing.checker.history import History as History
from raptor.testing.checker.history import Image as Image
from raptor.testing.checker.history import Kept as Kept
from raptor.testing.checker.history import Life as Life
from raptor.testing.checker.history import Line as Line
from raptor.testing.checker.history import Unrecorded as Unrecorded
from raptor.testing.checker.violation import Violation as Violation

__all__ = [
    "Bounds", "Command", "Declared", "Dump", "Fault", "History", "Image", "Kept", "Life", "Line", "Unrecorded",
    "Violation", "check", "counted",
]  # fmt: skip
