"""What a check says: findings, each with its operator and line, and the report that holds them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Kind(StrEnum):
    """What would go wrong in a captured graph."""

    HOST_READ = "host read"
    """The host waits for a value of the device: not allowed during capture, and not repeated by a replay."""
    DYNAMIC_SHAPE = "data-dependent shape"
    """A result's shape depends on values; a graph has one shape, and the host must read it."""
    PAGEABLE_COPY = "pageable copy"
    """A copy from unpinned host memory, or one the host waits for."""
    MISPLACED = "host tensor beside device tensors"
    """An operator gets a tensor that was made on the host together with tensors of the device."""
    OUTLIVES = "allocation outlives the call"
    """A tensor made in the call is kept by something else; the next replay overwrites it under its holder."""
    HOST_RANDOM = "host random state"
    """Random numbers drawn on the host: a replay repeats the ones of the capture."""
    STALE = "stale result"
    """Something of one call is baked in and would be wrong in the next."""
    RAISES = "raises"
    """The callable does not run to its end."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that would break a captured graph.

    Attributes:
        kind: What would go wrong.
        operator: The operator or Python method that does it, such as ``aten.nonzero.default``.
        where: The innermost line outside torch and the standard library, ``file:line: source text``.
        detail: What it does there.
    """

    kind: Kind
    operator: str
    where: str
    detail: str

    def __str__(self) -> str:
        """One line for a terminal."""
        return f"{self.where}\n    {self.kind}, {self.operator}: {self.detail}"


def same_spot(a: Finding, b: Finding) -> bool:
    """Whether two findings are of one kind, operator and line: a loop finds the same thing many times."""
    return (a.kind, a.operator, a.where) == (b.kind, b.operator, b.where)


@dataclass(frozen=True, slots=True)
class Report:
    """What a check found.

    Attributes:
        findings: What would break, in the order of its discovery.
        passes: The passes that ran to their end; see `checker.check`.
        missing: Why a pass could not be made, by its name, where no finding says it. Its kinds of findings may
            be missing too.
    """

    findings: tuple[Finding, ...]
    passes: tuple[str, ...]
    missing: Mapping[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether nothing was found and every kind of finding was looked for.

        A missing cuda pass alone is no hindrance: the cpu pass judges the same kinds then, and only takes it on
        trust that what is made without a device, and the callable's own tensors, lie where they should.
        """
        return not self.findings and self.missing.keys() <= {"cuda"}

    def __str__(self) -> str:
        """The findings, one after the other, under a line that counts them, and the missing passes."""
        passes = f"passes: {', '.join(self.passes) or 'none'}"
        if self.ok:
            head = f"nothing would break capture ({passes})"
        elif self.findings:
            head = f"{len(self.findings)} would break capture ({passes})"
        else:
            head = f"nothing found, but not all was looked for ({passes})"
        absent = [f"no {name} pass: {why}" for name, why in self.missing.items()]
        return "\n".join([head, *map(str, self.findings), *absent])
