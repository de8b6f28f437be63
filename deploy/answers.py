"""Health check: exits with 0 if an HTTP server of this host replies 200: ``python answers.py 5555 /healthcheck``."""

import http.client
import sys

TIMEOUT_SECONDS = 3.0


def main(port: str, path: str) -> int:
    """Send the request; return the exit code."""
    # Not urllib, which would use the environment's proxy even for a loopback address.
    connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=TIMEOUT_SECONDS)
    try:
        connection.request("GET", path)
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        sys.stderr.write(f"error: nothing answers at port {port}: {error}\n")
        return 1
    finally:
        connection.close()
    if status != http.HTTPStatus.OK:
        sys.stderr.write(f"error: {path} at port {port} says {status}\n")
    return int(status != http.HTTPStatus.OK)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
