"""The one exception whose text is meant for a person."""


class RegionFedError(Exception):
    """A mistake that the user can mend.

    The message is one sentence that says what was wrong, where, and what is allowed. The command line prints it
    without a traceback and exits non-zero.
    """
