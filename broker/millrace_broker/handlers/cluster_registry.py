"""The APIs that a member of a cluster serves beyond those of `registry`; the controller and brokers call them."""

from __future__ import annotations

from millrace_broker.handlers import control_requests, controller_requests
from millrace_broker.handlers.api import Api

CLUSTER_APIS: dict[int, Api] = {api.key: api for api in (*control_requests.APIS, *controller_requests.APIS)}
