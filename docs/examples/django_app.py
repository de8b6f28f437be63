"""Django in one file.

::

    gunicorn --workers 2 django_app:application
    python django_app.py runserver --noreload
"""

from __future__ import annotations

import sys
from dataclasses import asdict

from django.conf import settings
from django.core.management import execute_from_command_line
from django.core.management.utils import get_random_secret_key
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_POST
from friends import friends_of

from api_client import CacheError
from api_client.http import cache_headers, is_not_modified

settings.configure(
    ALLOWED_HOSTS=["127.0.0.1", "localhost"],
    ROOT_URLCONF=__name__,
    SECRET_KEY=get_random_secret_key(),
)


@require_GET
def friends(request: HttpRequest, person_id: int) -> HttpResponse:
    """Return the cached value, at once while there is one within its grace; 304 to a client that has it."""
    try:
        entry = friends_of.of(person_id=person_id).get_entry()
    except CacheError:  # nothing to answer with: the load failed, took too long, or the cache is down
        return JsonResponse({"error": "not available now"}, status=503)
    headers = cache_headers(entry)
    if is_not_modified(entry, request.headers.get("If-None-Match")):
        return HttpResponse(status=304, headers=headers)
    return JsonResponse([asdict(friend) for friend in entry.value], safe=False, headers=headers)


@csrf_exempt
@require_POST
def changed(request: HttpRequest, person_id: int) -> HttpResponse:
    """Invalidate after a write to the graph: the value is stale from now on, and the next read refreshes it."""
    friends_of.of(person_id=person_id).invalidate()
    return HttpResponse(status=204)


urlpatterns = [
    path("people/<int:person_id>/friends", friends),
    path("people/<int:person_id>/friends/changed", changed),
]
application = get_wsgi_application()

if __name__ == "__main__":
    execute_from_command_line(sys.argv)
