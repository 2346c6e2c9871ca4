"""The REST API: jobs, incidents, plans and the stream of alerts, for people, scripts and the console."""

from lineside.remediation.api.app import Service, create_app
from lineside.remediation.api.server import ApiServer, PortTaken

__all__ = ["ApiServer", "PortTaken", "Service", "create_app"]
