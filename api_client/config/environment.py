"""Settings from the environment; the error for a wrong value names variable, value and allowed values.

msgspec checks and converts; the table of variables and the wording of the errors are ours.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Final, Self, TypeAlias, get_type_hints

import msgspec

from api_client.config.durations import ALLOWED as DURATION_ALLOWED
from api_client.config.durations import MAX_SECONDS, seconds, share
from api_client.config.spelling import check_keywords
from api_client.config.url_checks import split_url
from api_client.errors import ConfigurationError

DURATION: Final[dict[str, Any]] = {"duration": True, "most_without_unit": 86_400.0}
_MILLISECONDS: Final = {"milliseconds": True}
_MILLISECONDS_ALLOWED: Final = '3600000, or text such as "50ms", "5s"'
# A host and a possible port; anything else may contain a password.
_HOST: Final = re.compile(
    r"(?:\[[^\[\]]*\]|[^:\[\]]*)"
    r"(?::(?:[0-9]{0,4}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?"
)
# A path, or a host and port without a scheme.
_NO_HOST: Final = re.compile("[^:@]*(?::(?:[0-9]{1,5}|/[^:@]*))?")
_SHOWN_OPTIONS: Final = frozenset(
    {"db", "client_name", "ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_cert_reqs", "ssl_check_hostname",
     "ssl_keyfile", "heartbeat", "login_method", "policy"}
)  # fmt: skip
_TRUE, _FALSE = frozenset({"true", "1", "yes", "on"}), frozenset({"false", "0", "no", "off"})


def env(
    name: str, allowed: str | None = None, *, secret: bool = False, fallback: str = "", **bounds: Any
) -> msgspec.Meta:
    """Annotate a setting.

    Args:
        name: its variable.
        fallback: a variable that is read if ``name`` is not set.
        allowed: a description of the allowed values.
        secret: True to hide the value in errors.
        bounds: bounds as for `msgspec.Meta`.
    """
    extra = {"variable": name, "secret": secret, "fallback": fallback, **bounds.pop("extra", {})}
    return msgspec.Meta(extra=extra, description=allowed, **bounds)


def _seconds(least: str, more: str = "", extra: dict[str, Any] = DURATION, **bound: Any) -> msgspec.Meta:
    allowed = f"{least} a hundred years, {DURATION_ALLOWED}{more}"
    return msgspec.Meta(le=MAX_SECONDS, extra=extra, description=allowed, **bound)


def _milliseconds(least: str, **bound: Any) -> msgspec.Meta:
    allowed = f"milliseconds, {least} {_MILLISECONDS_ALLOWED}"
    return msgspec.Meta(le=3_600_000, extra=_MILLISECONDS, description=allowed, **bound)


_TIMEOUT: Final = {**DURATION, "most_without_unit": 60.0}
Seconds: TypeAlias = Annotated[float, _seconds("0 to", ge=0)]
PositiveSeconds: TypeAlias = Annotated[float, _seconds("more than 0, up to", gt=0)]
SecondOrMore: TypeAlias = Annotated[float, _seconds("1 s or more, up to", ge=1)]
Timeout: TypeAlias = Annotated[float, _seconds("more than 0, up to", "; more than 60 s with a unit", _TIMEOUT, gt=0)]
Milliseconds: TypeAlias = Annotated[float, _milliseconds("0 to", ge=0)]
PositiveMilliseconds: TypeAlias = Annotated[float, _milliseconds("more than 0, up to", gt=0)]
Url: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, extra={"url": True}, description="a URL")]
Switch: TypeAlias = Annotated[bool, msgspec.Meta(description="true or false")]


class _Keywords(msgspec.StructMeta):
    """Metaclass of settings, which checks keywords before msgspec sees them."""

    def __call__(self, *args: Any, **given: Any) -> Any:
        check_keywords(self.__name__, given, self.__struct_fields__)
        return super().__call__(*args, **given)


class Settings(msgspec.Struct, metaclass=_Keywords, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of the settings of reader and worker. Each field's annotation names its variable."""

    def __post_init__(self) -> None:
        for field, annotation in _annotations(type(self)).items():
            value = getattr(self, field)
            try:
                msgspec.convert(value, annotation)
            except msgspec.ValidationError:
                raise _wrong(annotation, field, value) from None
            fault_of = extra_of(annotation).get("fault_of")
            if fault_of is not None and (allowed := fault_of(value)):
                raise ConfigurationError(variable(annotation, field), _shown(annotation, value), f"expected {allowed}")

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Self:
        """Read the settings from ``environ`` (default: the process's environment).

        Raises:
            ConfigurationError: a value is wrong; names the first one's variable, value and allowed values.
        """
        source = os.environ if environ is None else environ
        notes = _annotations(cls)
        names = {field: _first_set(source, note, field) for field, note in notes.items()}
        try:
            return cls(
                **{field: _converted(notes[field], field, source[name]) for field, name in names.items() if name}
            )
        except ConfigurationError as error:
            for field, name in names.items():
                if name and variable(notes[field], field) == error.variable != name:
                    raise ConfigurationError(name, error.shown, error.allowed) from None
            raise

    @classmethod
    def given_or_from_env(cls, given: Self | None) -> Self:
        """Return ``given``, or if it is None the result of `from_env`.

        Raises:
            ConfigurationError: ``given`` is something else; or as for `from_env`.
        """
        if given is None:
            return cls.from_env()
        if not isinstance(given, cls):
            # Not shown, since a URL may contain a password.
            allowed = f"expected a {cls.__name__}, such as {cls.__name__}(redis_url=…)"
            raise ConfigurationError("settings", f"<{type(given).__name__}>", allowed)
        return given

    @classmethod
    def variables(cls) -> set[str]:
        """Return the names of the environment variables of these settings."""
        notes = _annotations(cls).items()
        return {variable(note, field) for field, note in notes} | {
            str(fallback) for _, note in notes if (fallback := extra_of(note).get("fallback"))
        }

    def variable_of(self, field: str) -> str:
        """Return the environment variable of a field's value: its fallback if only that is set."""
        note = _annotations(type(self))[field]
        name = _first_set(os.environ, note, field)
        return name if name and os.environ[name].strip() == getattr(self, field) else variable(note, field)

    def __repr__(self) -> str:
        shown = (f"{field}={_shown(note, getattr(self, field))}" for field, note in _annotations(type(self)).items())
        return f"{type(self).__name__}({', '.join(shown)})"


def variable(annotation: Any, field: str) -> str:
    """Return the name of the environment variable of a field."""
    return str(extra_of(annotation).get("variable", field))


def _first_set(source: Mapping[str, str], annotation: Any, field: str) -> str:
    """Return the variable that a field is read from: its own, its fallback, or '' if neither is set."""
    names = (variable(annotation, field), str(extra_of(annotation).get("fallback", "")))
    return next((name for name in names if source.get(name, "") != ""), "")


@cache
def _annotations(settings: type) -> dict[str, Any]:
    return get_type_hints(settings, include_extras=True)


def _metas(annotation: Any) -> list[msgspec.Meta]:
    return [meta for meta in getattr(annotation, "__metadata__", ()) if isinstance(meta, msgspec.Meta)]


def extra_of(annotation: Any) -> dict[str, Any]:
    """Return a setting's further annotations besides type and bounds, such as ``duration`` and ``secret``."""
    merged: dict[str, Any] = {}
    for meta in _metas(annotation):
        merged.update(meta.extra or {})
    return merged


def _allowed(annotation: Any) -> str:
    # The annotation nearest to the field comes last and is the most specific.
    return next((meta.description for meta in reversed(_metas(annotation)) if meta.description), "another value")


def _converted(annotation: Any, field: str, text: str) -> Any:
    _check_unit(annotation, field, text.strip())
    try:
        if extra_of(annotation).get("duration"):
            return msgspec.convert(seconds(text.strip()), annotation)
        if extra_of(annotation).get("share"):
            return msgspec.convert(share(text), annotation)
        if extra_of(annotation).get("milliseconds") and text.strip()[-1:].isalpha():
            return msgspec.convert(seconds(text) * 1000, annotation)
        if getattr(annotation, "__origin__", annotation) is bool:
            return _boolean(text.strip().lower())
        # Spaces around a password may be part of it.
        return msgspec.convert(text if extra_of(annotation).get("secret") else text.strip(), annotation, strict=False)
    except ValueError:  # including msgspec.ValidationError, whose text shows a pattern
        raise _wrong(annotation, field, text) from None


def _check_unit(annotation: Any, field: str, text: str) -> None:
    """Check that a number without a unit is plausible as seconds.

    Raises:
        ConfigurationError: the number is too large; milliseconds may be meant.
    """
    most = extra_of(annotation).get("most_without_unit")
    if most is not None and text.isascii() and text.isdecimal() and float(text) > most:
        meant = f"{text} without a unit is seconds: did you mean {text}ms?"
        raise ConfigurationError(variable(annotation, field), repr(text), f"{meant} expected {_allowed(annotation)}")


def _boolean(text: str) -> bool:
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise ValueError(text)


def _wrong(annotation: Any, field: str, value: object) -> ConfigurationError:
    return ConfigurationError(
        variable(annotation, field), _shown(annotation, value), f"expected {_allowed(annotation)}"
    )


def _shown(annotation: Any, value: object) -> str:
    extra = extra_of(annotation)
    if extra.get("secret"):
        return "***"
    if extra.get("url"):
        return f"'{without_password(str(value))}'"
    return repr(value)[:100]


def without_password(url: str) -> str:
    """Return a URL that may be shown, with ``***`` in place of all real and possible secrets.

    These are a password, a user without one (a forgotten colon), anything in place of a port (a forgotten @), the
    values of all options but a few, and the whole URL if its parts are ambiguous.
    """
    try:
        parts = split_url(url)
        if "@" in parts.path + parts.query + parts.fragment:
            # A password with a slash in it, or several URLs in one, so the place of the secrets is ambiguous.
            return "***"
        query = "?" + _without_secrets(parts.query) if parts.query else ""
        if not parts.netloc:
            without_query = url.partition("?")[0]
            return without_query + query if _NO_HOST.fullmatch(without_query) else "***"
        user, at, hosts = parts.netloc.rpartition("@")
        if not all(_HOST.fullmatch(host) for host in hosts.split(",")):
            return f"{parts.scheme}://{'***@' if at else ''}{'' if '[' in hosts else hosts.partition(':')[0]}:***"
        shown_user = f"{user.partition(':')[0]}:***@" if ":" in user else "***@" if at else ""
        return parts._replace(netloc=shown_user + hosts, query="", fragment="").geturl() + query
    except ValueError:
        return "***"


def _without_secrets(query: str) -> str:
    shown = []
    for option in query.split("&"):
        name, equals, _ = option.partition("=")
        shown.append(option if name in _SHOWN_OPTIONS else f"{name}=***" if equals else "***")
    return "&".join(shown)
