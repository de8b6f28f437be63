"""Names of the permissions that a command's users lack, for refusals by cache or broker."""

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
    """Add to a refusal the missing permissions, and the users of deploy/redis that have them.

    Args:
        settings: the settings, whose users the command uses.
        missing: returns the permissions that the command needs and the cache's user lacks.
        user: the user of deploy/redis that has them all.

    Raises:
        CacheUnavailable, TriggerFailed: the command was refused.
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
