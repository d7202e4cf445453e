"""What state is: channels, their update rules and their versions."""

from .base import MISSING, Channel, ChannelError, Missing, Overwrite
from .reducer import BinaryOperatorAggregate, foldable
from .scheduling import BarrierChannel, TriggerChannel
from .topic import Topic
from .values import AnyValue, EphemeralValue, LastValue, UntrackedValue
from .versioned import CONTAINERS, Folded, FoldError, VersionedChannels

__all__ = [
    "CONTAINERS",
    "MISSING",
    "AnyValue",
    "BarrierChannel",
    "BinaryOperatorAggregate",
    "Channel",
    "ChannelError",
    "EphemeralValue",
    "FoldError",
    "Folded",
    "LastValue",
    "Missing",
    "Overwrite",
    "Topic",
    "TriggerChannel",
    "UntrackedValue",
    "VersionedChannels",
    "foldable",
]
