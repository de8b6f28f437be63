"""TLS to the broker: the server's certificate and its name are always checked, unless the URL says otherwise in words.

kombu's own defaults are not safe: ``rediss://`` without options checks nothing, ``amqps://`` not the name. So each is
told, and a private CA is given in the same way for both, and as for the cache:
``rediss://user:password@host/0?ssl_ca_certs=/etc/ssl/ours.pem``.
"""

from __future__ import annotations

import ssl
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit

from api_client.environment import without_password
from api_client.errors import ConfigurationError

_CHECKS: Final = {"required": ssl.CERT_REQUIRED, "optional": ssl.CERT_OPTIONAL, "none": ssl.CERT_NONE}
# What may stand in a URL, and what py-amqp calls it.
_FILES: Final = {"ssl_ca_certs": "ca_certs", "ssl_certfile": "certfile", "ssl_keyfile": "keyfile"}
_ALLOWED: Final = "ssl_ca_certs, ssl_certfile, ssl_keyfile, ssl_cert_reqs=required and ssl_check_hostname=true"


def connection_settings(broker_url: str) -> dict[str, Any]:
    """Return Celery's settings of where the broker is, and of TLS to it.

    Raises:
        ConfigurationError: no URL, or an option of TLS that there is not.
    """
    if not broker_url.startswith(("rediss://", "amqps://")):
        return {"broker_url": broker_url}
    try:
        parts = urlsplit(broker_url)
    except ValueError:
        raise ConfigurationError("CELERY_BROKER_URL", "'***'", "allowed is a URL that can be read") from None
    options = parse_qsl(parts.query, keep_blank_values=True)
    own = {name: value for name, value in options if name.startswith("ssl_")}
    # In the settings alone: what stands in the URL would take the place of all of it, and py-amqp knows other names.
    query = urlencode([(name, value) for name, value in options if name not in own])
    verifies = _CHECKS.get(own.pop("ssl_cert_reqs", "required").lower().removeprefix("cert_"))
    checks_name = {"true": True, "false": False}.get(own.pop("ssl_check_hostname", "true").lower())
    if verifies is None or checks_name is None or not own.keys() <= _FILES.keys():
        raise ConfigurationError(
            "CELERY_BROKER_URL", f"'{without_password(broker_url)}'", f"the options of TLS are {_ALLOWED}"
        )
    checks_name = checks_name and verifies is not ssl.CERT_NONE
    if parts.scheme == "rediss":
        tls: dict[str, Any] = {"ssl_cert_reqs": verifies, "ssl_check_hostname": checks_name, **own}
    else:
        tls = {"cert_reqs": verifies, **{_FILES[name]: value for name, value in own.items()}}
        if checks_name:
            tls["server_hostname"] = None  # kombu puts the URL's in; without the word no name is checked
    return {"broker_url": parts._replace(query=query).geturl(), "broker_use_ssl": tls}
