"""For the tests of programs that use or extend Raptor. Of Raptor itself only a command that tests imports it.

`World` is a whole node in virtual time, `inline` runs what is put at once, `run` runs one service once.
"""

from raptor.testing.inline import Inline as Inline
from raptor.testing.inline import inline as inline
from raptor.testing.once import run as run
from raptor.testing.puts import Put as Put
from raptor.testing.world import World as World
from raptor.testing.world import in_virtual_time as in_virtual_time

__all__ = ["Inline", "Put", "World", "in_virtual_time", "inline", "run"]
