"""Audio: codecs that turn codes into a waveform, and WAV files."""

from voxradix.audio.codec import Codec, CodecStream
from voxradix.audio.loading import load_codec
from voxradix.audio.wav import check_writable, wav_bytes, write_file

__all__ = ["Codec", "CodecStream", "check_writable", "load_codec", "wav_bytes", "write_file"]
