"""The daemon's own log on standard error: one line for each event, as text, or as JSON for machines.

A line of a tenant has the field `tenant` (offload.daemon.asgi).

LOGS-1  At level DEBUG, the AWS libraries write tokens, signatures and signed URLs. Their levels here are never below
    INFO, also with `debug`. If another part of the process lowers one, the filter of the handler drops the record.
LOGS-2  uvicorn writes an error for each WebSocket that the daemon refuses, although the refusal is sent. A client could
    flood the log with it, so the filter drops it. The refusal has its line as that of any request (MISTAKE-1).
"""

from __future__ import annotations

import logging
import sys

import structlog

from offload.daemon.asgi import tenant_id

_ACCESS_FIELDS = ("method", "path", "status", "seconds", "sent_bytes", "client", "request_id", "token")
"""The fields of a line of the access log (offload.daemon.request_log)."""

_OF_AWS = ("aiobotocore", "aiohttp", "boto3", "botocore", "s3transfer", "urllib3")
_REFUSED_SOCKET = "ASGI callable returned without completing handshake."
_CHATTY = (*_OF_AWS, "asyncio")


def set_up_logs(log_format: str, *, debug: bool) -> None:
    """Send the events of all loggers to standard error. `log_format` is "text" or "json"."""
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(allow=_ACCESS_FIELDS),
        _add_tenant,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    renderer: structlog.typing.Processor
    if log_format == "json":
        renderer = structlog.processors.JSONRenderer()
    else:
        renderer = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared, processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer]
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    handler.addFilter(_has_no_secret)
    handler.addFilter(lambda record: record.msg != _REFUSED_SOCKET)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.DEBUG if debug else logging.INFO)
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.INFO)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)


def _has_no_secret(record: logging.LogRecord) -> bool:
    """Return whether the record may be written (LOGS-1)."""
    return record.levelno >= logging.INFO or record.name.partition(".")[0] not in _OF_AWS


def _add_tenant(_logger: object, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    if tenant_id.get():
        event["tenant"] = tenant_id.get()
    return event
