"""Audio: codecs that turn codes into a waveform, and the files it is written to."""

from voxradix.audio.codec import Codec, CodecStream, load_codec
from voxradix.audio.container import Container, Writer, containers
from voxradix.audio.wav import check_writable, wav_bytes, write_file

__all__ = [
    "Codec",
    "CodecStream",
    "Container",
    "Writer",
    "check_writable",
    "containers",
    "load_codec",
    "wav_bytes",
    "write_file",
]
