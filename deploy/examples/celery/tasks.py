"""A Celery application whose queue is a share group: `celery -A tasks worker`, see `README.md`."""

from __future__ import annotations

import os
import time
from pathlib import Path

import share_transport  # noqa: F401 - it registers share://
from celery import Celery, Task
from celery.exceptions import Reject

app = Celery("shop", broker=os.environ.get("BROKER_URL", "share://localhost:9092"))
app.conf.update(
    broker_transport_options={
        "visibility_timeout": float(os.environ.get("VISIBILITY_TIMEOUT", "30")),
        "kafka": {"bootstrap.servers": servers} if (servers := os.environ.get("BOOTSTRAP_SERVERS")) else {},
        "group_config": {"share.delivery.count.limit": 5},
    },
    broker_connection_retry_on_startup=True,
    task_acks_late=True,  # a task that a dying worker had is done by another
    task_reject_on_worker_lost=True,
    task_ignore_result=True,
    worker_prefetch_multiplier=1,  # what waits in a worker has its lock running
    worker_enable_remote_control=False,  # needs fan-out, which share groups have not
)
DONE = Path(os.environ.get("DONE_FOLDER", "done"))


def write_down(name: str) -> None:
    """Leave an empty file for each time a task is carried out."""
    DONE.mkdir(exist_ok=True)
    (DONE / f"{name}.{time.time_ns()}").touch()


@app.task
def send_mail(number: int, seconds: float = 0.0) -> None:
    """Take some time."""
    time.sleep(seconds)
    write_down(f"mail-{number}")


@app.task
def pack(number: int, gate: str) -> None:
    """Wait until a file is there."""
    write_down(f"packing-{number}")
    while not Path(gate).exists():
        time.sleep(0.05)
    write_down(f"pack-{number}")


@app.task(bind=True)
def charge(self: Task, number: int, failures: int = 0) -> None:
    """Fail at first: the message is released, and comes again with a higher delivery count."""
    delivery_count = self.request.delivery_count
    write_down(f"try-{number}-{delivery_count}")
    if delivery_count <= failures:
        raise Reject("the bank does not answer", requeue=True)
    write_down(f"charge-{number}")


@app.task(bind=True, max_retries=3)
def call_back(self: Task, number: int) -> None:
    """Fail once: Celery's own retry sends a new message, and acknowledges this one."""
    write_down(f"call-{number}-{self.request.retries}")
    if self.request.retries < 1:
        raise self.retry(countdown=0)


@app.task
def refuse(number: int) -> None:
    """Never come again."""
    write_down(f"refuse-{number}")
    raise Reject("no such customer", requeue=False)
