"""Audio: codecs that turn codes into a waveform, recordings, and WAV files."""

from voxradix.audio.codec import Codec, CodecStream
from voxradix.audio.loading import load_codec
from voxradix.audio.recording import Recording, read_recording
from voxradix.audio.wav import check_writable, wav_bytes, write_file

__all__ = [
    "Codec",
    "CodecStream",
    "Recording",
    "check_writable",
    "load_codec",
    "read_recording",
    "wav_bytes",
    "write_file",
]
