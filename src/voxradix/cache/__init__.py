"""The prefix cache: a radix tree over rows, and the pool of slots their keys and values lie in.

It knows rows as bytes and slots as integers: no tensor, no model, no engine.
"""

from voxradix.cache.chain import Chain
from voxradix.cache.namespace import namespace
from voxradix.cache.node import Node
from voxradix.cache.pool import SlotPool
from voxradix.cache.run import Run
from voxradix.cache.tree import Insertion, Match, RadixTree

__all__ = ["Chain", "Insertion", "Match", "Node", "RadixTree", "Run", "SlotPool", "namespace"]
