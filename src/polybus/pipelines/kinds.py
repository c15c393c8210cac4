"""Every kind of pipeline by the word that stands for it in the file."""

from __future__ import annotations

from polybus.pipelines.capture import CaptureKind
from polybus.pipelines.enrich import EnrichKind
from polybus.pipelines.kind import PipelineKind
from polybus.pipelines.python import PythonKind
from polybus.pipelines.redrive import RedriveKind
from polybus.pipelines.replay import ReplayKind
from polybus.pipelines.skew import SkewKind
from polybus.pipelines.sla import SlaKind

KINDS: dict[str, type[PipelineKind]] = {
    CaptureKind.kind: CaptureKind,
    EnrichKind.kind: EnrichKind,
    PythonKind.kind: PythonKind,
    RedriveKind.kind: RedriveKind,
    ReplayKind.kind: ReplayKind,
    SkewKind.kind: SkewKind,
    SlaKind.kind: SlaKind,
}
