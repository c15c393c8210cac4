"""Pipelines on Spark, declared in one YAML file: `polybus pipelines check|run|status|compact`.

`declaration` reads the file, `kinds` knows what a pipeline can be, `runner` keeps all of them going in one session
of Spark. A kind is one module with one class (`kind.Kind`). Everything here is a client of a running bus, through
`polybus.spark`; nothing here is imported by a bus, and Spark itself only when pipelines run.
"""

from __future__ import annotations

from polybus.pipelines.manifests import lake_files

__all__ = ["lake_files"]
