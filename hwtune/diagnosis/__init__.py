"""The diagnosis table's machinery: rows, verdicts, and the engine that runs them."""

from hwtune.diagnosis.verdict import Evidence, Finding, Verdict, evidence, fact_evidence

__all__ = ["Evidence", "Finding", "Verdict", "evidence", "fact_evidence"]
