"""The server: one engine over HTTP, as OpenAI's clients ask for speech, and beyond it.

The event loop never waits for a step: the engine and the codec have a thread each, and only codes cross.
"""

from voxradix.server.app import application
from voxradix.server.house import House
from voxradix.server.keys import read_key_file, read_keys
from voxradix.server.run import listen, serve
from voxradix.server.settings import Settings

__all__ = ["House", "Settings", "application", "listen", "read_key_file", "read_keys", "serve"]
