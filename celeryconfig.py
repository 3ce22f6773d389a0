"""Every Celery setting of this project, each with its reason. Read by `rollout_tasks.app`; secrets come from the environment."""

import os

from rollout_tasks.redis_address import tls_options, without_options
from rollout_tasks.settings import settings

_settings = settings()

# A connection that is silent for this long is dead, though nobody closed it (a firewall dropped it, a machine froze):
# the worker closes it and connects again. So a worker hears nothing for at most twice that time.
_silent_seconds = min(20.0, max(5.0, _settings.visibility_timeout / 4))
_connect_seconds = 10.0

broker_url = without_options(_settings.redis_address)
# The chord's counts are kept there; nobody waits for single results (rollout_tasks/broker/result_backend.py).
result_backend = f"rollout_tasks.broker.result_backend.UnwatchedRedisBackend+{broker_url}"
# Here, and not in the URL: Celery, kombu and Flower each read a URL in another way, or need one that says this.
broker_use_ssl = redis_backend_use_ssl = tls_options(_settings.redis_address) or None
# Celery prefers these variables to its settings: messages would go elsewhere than where the run store and the leases are.
for _name in {"CELERY_BROKER_URL", "CELERY_BROKER_READ_URL", "CELERY_BROKER_WRITE_URL"} & os.environ.keys():
    os.environ[_name] = broker_url
    if broker_url != _settings.redis_address:  # child processes read the address again, with its options of TLS
        os.environ["ROLLOUT_REDIS_URL"] = _settings.redis_address
os.environ.pop("CELERY_RESULT_BACKEND", None)

# Messages are JSON and carry ids only: nothing that arrives can run code or hold a secret.
task_serializer = result_serializer = "json"
accept_content = ["json"]
enable_utc = True
timezone = "UTC"

# A killed worker's or child's rollout goes to another one; the run store counts and limits the attempts.
task_acks_late = True
task_reject_on_worker_lost = True

# A rollout must never wait behind a long one in a busy child while another child is free.
worker_prefetch_multiplier = 1
worker_disable_prefetch = True

broker_transport_options = {
    # Short, because a heartbeat keeps the running message fresh (rollout_tasks/execution/heartbeat.py): after this time
    # a dead machine's work goes to another worker. The shortest value among the apps on one broker wins.
    "visibility_timeout": _settings.visibility_timeout,
    # Look for stale messages at every interval, not at every tenth.
    "unacked_restore_interval": 5,
    "unacked_restore_throttle": 1,
    "socket_keepalive": True,
    "socket_timeout": _silent_seconds,
    "health_check_interval": _silent_seconds,
    "socket_connect_timeout": _connect_seconds,
}
broker_connection_retry_on_startup = True
broker_connection_max_retries = None
broker_pool_limit = 10

# A rollout that ends while Redis is unavailable must not break the chord.
result_backend_always_retry = True
redis_backend_health_check_interval = 30
redis_socket_timeout = _silent_seconds
redis_socket_connect_timeout = _connect_seconds
redis_socket_keepalive = True
redis_retry_on_timeout = True
# As long as a run's keys, counted from the last rollout that ended: the callback of a long run must still run, and the
# keys of a chord that lost a message must expire some day (the reconciler finalises its run).
result_chord_expires = 7 * 86_400

# Both endanger chords when broker and backend are the same Redis.
worker_cancel_long_running_tasks_on_connection_loss = False
worker_deduplicate_successful_tasks = False

# A child that is silent for this long is killed. Celery's own 4 s kill children still starting on a busy machine.
worker_proc_alive_timeout = 60
# With REMAP_SIGTERM=SIGQUIT: give running rollouts this long, then put them back.
worker_soft_shutdown_timeout = 30
worker_hijack_root_logger = True
worker_log_format = "%(asctime)s %(levelname)s %(message)s"
worker_task_log_format = "%(asctime)s %(levelname)s %(task_name)s %(message)s"

# What Flower shows.
task_track_started = True
worker_send_task_events = True
task_send_sent_event = True
# Answers are in the run store and the run's folder; a day is enough for Celery's own bookkeeping.
result_expires = 86_400

task_default_queue = "finalize"
task_create_missing_queues = True
