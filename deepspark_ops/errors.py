"""Errors of the pipeline, by the caller's remedy.

    DeepSparkError              base
      ConfigError               fix the input: an option, a path, a file's content
      DataError                 fix or re-make the data: a shard, an image list, too many bad records
      ExchangeUnavailable       retry: the server did not answer in time
      ProtocolError             report: a peer sent what the protocol does not allow
        HandshakeFailed         retry a few times: a changed byte looks like a wrong secret; then report
        PushRefused             a push was nonsense and is not in the center; the worker ends
        WorkerFenced            leave: this process was given up in the middle of an exchange; it may join again
          WorkerReplaced        leave: a newer process is the worker now
      TrainingFailed            the run itself failed: loss not finite, workers given up, nothing exchanged

``str(error)`` is the whole message for the user: where, what was found, what is allowed, what to do.
The command line prints the message and exits with code 2, also for ``caffe_import.errors.CaffeImportError``.
"""

from __future__ import annotations


class DeepSparkError(Exception):
    """An error with a clear message, which ends a stage."""


class ConfigError(DeepSparkError, ValueError):
    """The user can correct an option, a path or a file."""


class DataError(DeepSparkError):
    """Data are missing, damaged or different from the manifest."""


class ExchangeUnavailable(DeepSparkError):
    """The exchange server gave no answer in time; the caller may retry."""


class ProtocolError(DeepSparkError):
    """A peer broke the wire format, or failed to authenticate."""


class HandshakeFailed(ProtocolError):
    """The two sides of a new connection do not agree on run and secret, or a byte was changed on the way."""


class PushRefused(ProtocolError):
    """A worker's push is refused: not finite, or absurdly long; the center is unchanged."""


class WorkerFenced(ProtocolError):
    """This process was given up as lost in the middle of an exchange, and is not the worker any more."""


class WorkerReplaced(WorkerFenced):
    """A newer process is the worker now."""


class TrainingFailed(DeepSparkError):
    """Training cannot go on or ended without a result."""
