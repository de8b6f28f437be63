"""Servers for the demo and for tests: a Redis, and a graph that speaks Bolt. Not for production.

Each is a process of its own on the loopback address, with a random password and data that is removed with it. They end
with this process, even if it is killed. Nothing here knows about the cache.
"""

from refresher.embedded.arcadedb import ArcadeDbServer
from refresher.embedded.errors import EmbeddedServerError, ServerDidNotStart, ServerMissing
from refresher.embedded.interrupts import Interrupts
from refresher.embedded.ports import free_port
from refresher.embedded.process import GuardedProcess
from refresher.embedded.redis_server import RedisServer

__all__ = [
    "ArcadeDbServer",
    "EmbeddedServerError",
    "GuardedProcess",
    "Interrupts",
    "RedisServer",
    "ServerDidNotStart",
    "ServerMissing",
    "free_port",
]
