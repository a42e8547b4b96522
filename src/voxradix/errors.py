"""The one exception for what a caller can put right."""


class VoxradixError(ValueError):
    """A request, file or setting that cannot be used.

    The message is one line: what is wrong, with the value, and what would be right. The command line prints
    it and exits with 2; a server answers with a 4xx.
    """
