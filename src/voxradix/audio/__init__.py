"""Audio: codecs that turn codes into a waveform and back, recordings, and the files that sound is written to."""

from voxradix.audio.codec import Codec, CodecStream
from voxradix.audio.container import Container, Writer, containers
from voxradix.audio.loading import load_codec
from voxradix.audio.moss import MossCodec
from voxradix.audio.moss_loading import load_moss_codec
from voxradix.audio.recording import Recording, read_recording
from voxradix.audio.wav import check_writable, wav_bytes, write_file

__all__ = [
    "Codec",
    "CodecStream",
    "Container",
    "MossCodec",
    "Recording",
    "Writer",
    "check_writable",
    "containers",
    "load_codec",
    "load_moss_codec",
    "read_recording",
    "wav_bytes",
    "write_file",
]
