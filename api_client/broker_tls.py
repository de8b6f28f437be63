"""TLS to the broker: the server's certificate and its name are always checked, unless the URL says otherwise in words.

kombu's own defaults are not safe: ``rediss://`` without options checks nothing, ``amqps://`` not the name. So each is
told. A private CA is given as for the cache, on Redis and RabbitMQ alike:
``amqps://user:password@host//?ssl_ca_certs=/etc/ssl/ours.pem``. py-amqp knows other names for the same, so for it the
options go out of the URL.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any, Final, NoReturn
from urllib.parse import parse_qsl, urlencode, urlsplit

from api_client.environment import without_password
from api_client.errors import ConfigurationError

_CHECKS: Final = {"required": ssl.CERT_REQUIRED, "optional": ssl.CERT_OPTIONAL, "none": ssl.CERT_NONE}
_FILES: Final = frozenset({"ssl_ca_certs", "ssl_certfile", "ssl_keyfile"})
_ALLOWED: Final = "ssl_ca_certs, ssl_certfile, ssl_keyfile, ssl_cert_reqs=required and ssl_check_hostname=true"


def connection_settings(broker_url: str) -> dict[str, Any]:
    """Return Celery's settings of where the broker is, and of TLS to it.

    Raises:
        ConfigurationError: no URL, an option of TLS that there is not, or a file of certificates that is not there.
    """
    if not broker_url.startswith(("rediss://", "amqps://")):
        return {"broker_url": broker_url}
    try:
        parts = urlsplit(broker_url)
    except ValueError:
        raise ConfigurationError("CACHE_BROKER_URL", "'***'", "allowed is a URL that can be read") from None
    given = parse_qsl(parts.query, keep_blank_values=True)
    options = {name: value for name, value in given if name.startswith("ssl_")}
    verifies = _CHECKS.get(options.pop("ssl_cert_reqs", "required").lower().removeprefix("cert_"))
    checks_name = {"true": True, "false": False}.get(options.pop("ssl_check_hostname", "true").lower())
    if verifies is None or checks_name is None or not options.keys() <= _FILES:
        _refuse(broker_url, f"the options of TLS are {_ALLOWED}")
    for name, path in options.items():
        if not Path(path).is_file():
            _refuse(broker_url, f"there is no file {path[:200]!r}; {name} names one (PEM)")
    checks_name = checks_name and verifies is not ssl.CERT_NONE
    if broker_url.startswith("rediss"):
        tls = {"ssl_cert_reqs": verifies, "ssl_check_hostname": checks_name, **options}
        return {"broker_url": broker_url, "broker_use_ssl": tls}
    others = urlencode([(name, value) for name, value in given if not name.startswith("ssl_")])
    tls = {"cert_reqs": verifies, **{name.removeprefix("ssl_"): path for name, path in options.items()}}
    if checks_name:
        tls["server_hostname"] = None  # kombu puts the URL's host in; without the word no name is checked
    # By hand: urlunsplit would write the vhost "/" otherwise.
    without_options = broker_url.partition("?")[0] + (f"?{others}" if others else "")
    return {"broker_url": without_options, "broker_use_ssl": tls}


def _refuse(broker_url: str, allowed: str) -> NoReturn:
    raise ConfigurationError("CACHE_BROKER_URL", f"'{without_password(broker_url)}'", allowed)
