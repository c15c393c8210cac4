"""Runs the pipelines of a file once an hour: each does what there is to do and ends.

Copy it into Airflow's folder of DAGs. Set these where its tasks run: POLYBUS_PIPELINES, the file of pipelines;
POLYBUS_COMMAND, the `polybus` of an environment that has `polybus[pipelines]` (it need not be Airflow's own); and what the
file refers to, such as the variable with the connection string. The command ends with 1 where a pipeline was given up,
which fails the task; a retry goes on from the checkpoints, so nothing is doubled. `max_active_runs=1`, because a
pipeline's folder belongs to one runner at a time.
"""

from __future__ import annotations

import os
from datetime import datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

COMMAND = os.environ.get("POLYBUS_COMMAND", "polybus")

with DAG(
    dag_id="polybus_pipelines",
    schedule=timedelta(hours=1),
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=5)},
) as dag:
    check = BashOperator(task_id="check", bash_command=f'{COMMAND} pipelines check "$POLYBUS_PIPELINES" --connect')
    run = BashOperator(task_id="run", bash_command=f'{COMMAND} pipelines run "$POLYBUS_PIPELINES" --once')
    check >> run
