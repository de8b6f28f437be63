"""TLS to the broker: the server's certificate and its name are always checked, unless the URL says otherwise in words.

kombu's own defaults are not safe: ``rediss://`` without options checks nothing, ``amqps://`` not the name. So each is
told. A private CA is given as for the cache: ``rediss://user:password@host/0?ssl_ca_certs=/etc/ssl/ours.pem``. Not so
for RabbitMQ: what Celery finds in the environment goes to py-amqp as it stands, which knows no such names. There it
is OpenSSL's own SSL_CERT_FILE.
"""

from __future__ import annotations

import ssl
from typing import Any, Final, NoReturn
from urllib.parse import parse_qsl, urlsplit

from api_client.environment import without_password
from api_client.errors import ConfigurationError

_CHECKS: Final = {"required": ssl.CERT_REQUIRED, "optional": ssl.CERT_OPTIONAL, "none": ssl.CERT_NONE}
_FILES: Final = frozenset({"ssl_ca_certs", "ssl_certfile", "ssl_keyfile"})
_ALLOWED: Final = "ssl_ca_certs, ssl_certfile, ssl_keyfile, ssl_cert_reqs=required and ssl_check_hostname=true"


def connection_settings(broker_url: str) -> dict[str, Any]:
    """Return Celery's settings of where the broker is, and of TLS to it.

    Raises:
        ConfigurationError: no URL, or an option of TLS that there is not.
    """
    if not broker_url.startswith(("rediss://", "amqps://")):
        return {"broker_url": broker_url}
    try:
        query = urlsplit(broker_url).query
    except ValueError:
        raise ConfigurationError("CELERY_BROKER_URL", "'***'", "allowed is a URL that can be read") from None
    options = {name: value for name, value in parse_qsl(query, keep_blank_values=True) if name.startswith("ssl_")}
    if broker_url.startswith("amqps"):
        if options:
            _refuse(broker_url, "for amqps:// the authorities are those of SSL_CERT_FILE; allowed is no option of TLS")
        # kombu puts the URL's host in; without the word no name is checked.
        return {"broker_url": broker_url, "broker_use_ssl": {"cert_reqs": ssl.CERT_REQUIRED, "server_hostname": None}}
    verifies = _CHECKS.get(options.pop("ssl_cert_reqs", "required").lower().removeprefix("cert_"))
    checks_name = {"true": True, "false": False}.get(options.pop("ssl_check_hostname", "true").lower())
    if verifies is None or checks_name is None or not options.keys() <= _FILES:
        _refuse(broker_url, f"the options of TLS are {_ALLOWED}")
    tls = {"ssl_cert_reqs": verifies, "ssl_check_hostname": checks_name and verifies is not ssl.CERT_NONE, **options}
    return {"broker_url": broker_url, "broker_use_ssl": tls}


def _refuse(broker_url: str, allowed: str) -> NoReturn:
    raise ConfigurationError("CELERY_BROKER_URL", f"'{without_password(broker_url)}'", allowed)
