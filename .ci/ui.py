"""``make ui``: run Airflow of this clone until Ctrl-C or SIGTERM."""

from __future__ import annotations

import os
import signal
import sys
import time

from airflow_services import HOST, USER, Api, Services, ServicesFailed, airflow_home


def say(text: str) -> None:
    """Print a progress line at once."""
    print(f"ui: {text}", flush=True)


def main() -> int:
    """Start, print where and how to log in, watch, and end everything on a signal."""
    port = int(os.environ.get("PORT") or 8080)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts background jobs with it ignored
    try:
        with Services(port, say) as services:
            print("\nAirflow is up.", flush=True)
            print(f"  address       http://{HOST}:{port}\n  user          {USER}\n  password      {Api(port).password}")
            trigger = f"AIRFLOW_HOME={airflow_home()} .venv/bin/airflow dags trigger deepspark_train --conf '{{}}'"
            print(f"  from a shell  {trigger}\n\nCtrl-C ends it.", flush=True)
            while True:
                services.check()
                time.sleep(1)
    except KeyboardInterrupt:
        say("ended")
        return 0
    except ServicesFailed as error:
        print(f"ui: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
