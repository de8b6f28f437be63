"""Names what a command's users lack, where cache or broker refuse for want of a permission."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress

from redis.exceptions import RedisError

from api_client.config.settings import SharedSettings
from api_client.errors import CacheUnavailable, TriggerFailed
from api_client.transport.redis_py import connect
from refresher.cli.arguments import TIMEOUT_SECONDS
from refresher.ops.permissions import USERS_GUIDE, Permissions, is_forbidden, user_of


@contextmanager
def permissions_named(
    settings: SharedSettings, missing: Callable[[Permissions], list[str]], user: str
) -> Iterator[None]:
    """Add to a refusal which permissions are missing, and which users of deploy/redis have them.

    Args:
        settings: whose users the command has.
        missing: what the cache's user lacks of what the command needs.
        user: the one of deploy/redis that lacks nothing of it.

    Raises:
        CacheUnavailable, TriggerFailed: as the command does.
    """
    try:
        yield
    except CacheUnavailable as error:
        if not is_forbidden(error.__cause__):
            raise
        lacking = ""
        with (
            suppress(RedisError, OSError),
            closing(connect(settings.redis_url, timeout_seconds=TIMEOUT_SECONDS)) as client,
        ):
            lacking = " ".join(missing(Permissions(client, settings.namespace)))
        if not lacking:
            raise
        message = f"the user {user_of(settings.redis_url)} of CACHE_REDIS_URL lacks {lacking}"
        raise CacheUnavailable(f"{message}: sign in as {user} ({USERS_GUIDE})", query=error.query) from error
    except TriggerFailed as error:
        if not is_forbidden(error.__cause__):
            raise
        variable = settings.variable_of("broker_url")
        message = f"{error}: sign in as publisher or operator in {variable} ({USERS_GUIDE})"
        raise TriggerFailed(message, query=error.query) from error
