"""Errors for the user's mistakes: each is one message on stderr and exit code 2. All other errors are our bugs."""


class UserError(Exception):
    """A mistake in what the user gave us; the message says where, what was found, and what to do next."""


class ConfigError(UserError):
    """A setting is unknown, has the wrong type, or does not fit another one."""


class DataError(UserError):
    """A corpus is missing, malformed, or empty."""


class RunError(UserError):
    """A run directory is missing, damaged, in use, or not a run."""


class NumericalError(UserError):
    """A loss, gradient or probability is not finite, and the program cannot continue."""


class Stopped(BaseException):
    """A signal asked us to stop; `signal_number` decides the exit code (128 + n). No `except Exception` swallows it."""

    def __init__(self, signal_number: int, message: str = "") -> None:
        super().__init__(message)
        self.signal_number = signal_number
