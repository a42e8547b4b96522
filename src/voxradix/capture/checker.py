"""The check: whether a callable could be captured in a CUDA graph, told on any machine."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor

from voxradix.capture.finding import Finding, Kind, Report, same_spot
from voxradix.capture.hazard import Unplaced
from voxradix.capture.line import Line, defining_line, raising_line
from voxradix.capture.randomness import HostRandom
from voxradix.capture.recorder import Recording, require
from voxradix.capture.storage import Undo, key_of, same_bits, tensors_in
from voxradix.capture.tape import Tape
from voxradix.capture.trace import Ref, differences
from voxradix.capture.variation import laid_out, variations
from voxradix.capture.watch import Listener, Watch
from voxradix.errors import VoxradixError


def check(fn: Callable[..., object], *inputs: Tensor, others: Sequence[Tensor] | None = None) -> Report:
    """Say what would break if ``fn(*inputs)`` were captured in a CUDA graph and replayed on rewritten inputs.

    ``inputs`` are CPU tensors that stand for the graph's static inputs on the device; every call gets copies.
    ``others`` are inputs of the same shapes and dtypes to rewrite them with; without them, others are made from
    the examples, as `variation.variations` says.

    ``fn`` is called five times or so, without gradients; random states and the tensors of its own that it writes
    are put back, its other state is not. The passes, named in `Report.passes`:

    * **cpu**: the CPU stands for the device. The first call may build what is built once, as a warm-up before a
      capture may; it must not leave values of its inputs behind for later calls. The second is judged: operators,
      Python calls on tensors, what outlives it, random states of the host.
    * **repeat**: a third call on equal inputs does the same, operator by operator.
    * **rewritten**: a call on other inputs does the same but for the values, and a recording replayed on those
      inputs gives its bits. Where no others can be made, or the callable raises on them, the report is not ok.
    * **cuda**: tensors made from the inputs say they lie on cuda:0 and what is made without a device lies on the
      host. It judges placement (host reads, shapes, copies, host draws) in the CPU pass's stead if it comes to its
      end; it stops where the callable works on a tensor of its own, as nothing says where that would lie. Without
      it, ``to(torch.device("cpu"))`` and factories without a device count as placed on the device.

    What it cannot see: other threads; memory reached past torch (``data_ptr``, untyped storages, numpy arrays
    that share memory with a tensor of the callable's own); what was cached before the check, unless it has the
    type and shape of an input that is never read; Python values that others change between calls; operators
    that wait for the device inside and are not listed in `hazard`; whether a CUDA kernel computes the same bits;
    branches that these inputs do not take.
    """
    require(inputs)
    if others is not None:
        _require_like(inputs, others)
        candidates = [tuple(map(laid_out, others, inputs))]
        candidates = [others for others in candidates if not all(map(same_bits, inputs, others))]
    else:
        candidates = variations(inputs)
    findings: list[Finding] = []
    passes: list[str] = []
    missing: dict[str, str] = {}
    _run(fn, inputs, candidates, findings, passes, missing)
    return Report(tuple(findings), tuple(passes), missing)


def _run(
    fn: Callable[..., object],
    inputs: Sequence[Tensor],
    candidates: Sequence[Sequence[Tensor]],
    findings: list[Finding],
    passes: list[str],
    missing: dict[str, str],
) -> None:
    """Run the passes, adding what each finds, and why one could not be made."""

    def add(*found: Finding) -> None:
        for finding in found:
            if not any(same_spot(finding, other) for other in findings):
                findings.append(finding)

    first = _call(fn, inputs)
    if first.raised is not None:
        return add(*first.watch.findings, first.raised)
    judged = _call(fn, inputs, notice=defining_line(fn))
    outliving = [] if judged.raised is not None else list(_outliving(judged, fn))
    on_cuda = _call_on_cuda(fn, inputs)
    if on_cuda is None:
        add(*judged.watch.findings)
    elif on_cuda.raised is None:
        passes.append("cuda")
        add(*on_cuda.watch.findings)
    else:
        add(*judged.watch.findings, *on_cuda.watch.findings, on_cuda.raised)
    add(*judged.random)
    if judged.raised is not None:
        return add(judged.raised)
    passes.append("cpu")
    add(*outliving, *_left_by(first, judged), *_unread(judged, inputs))

    tape = Tape()
    again = _call(fn, inputs, listener=tape)
    if again.raised is not None:
        return add(again.raised)
    passes.append("repeat")
    add(*differences(judged.watch.entries, again.watch.entries, "on the same inputs"))

    rewritten = _call_on_others(fn, candidates)
    if isinstance(rewritten, str):
        missing["rewritten"] = rewritten
        return None
    others, fresh = rewritten
    passes.append("rewritten")
    add(*differences(again.watch.entries, fresh.watch.entries, "on rewritten inputs"))
    if not any(finding.kind in (Kind.STALE, Kind.DYNAMIC_SHAPE) for finding in findings):
        add(*_replayed(again, tape, others, fresh))
    return None


@dataclass(slots=True)
class _Seen:
    """A watched call: its result, the random states it used, and what it raised."""

    watch: Watch
    inputs: tuple[Tensor, ...]
    undo: Undo
    result: object
    random: tuple[Finding, ...]
    raised: Finding | None

    def let_go(self) -> None:
        """Hold no tensor of the call any more: neither its inputs nor its result."""
        self.inputs, self.result = (), None
        self.watch.let_go()


def _call(
    fn: Callable[..., object],
    inputs: Sequence[Tensor],
    *,
    cuda: bool = False,
    listener: Listener | None = None,
    notice: Line | None = None,
) -> _Seen:
    """Call on copies of the inputs, and put back what it wrote elsewhere."""
    copies, undo = tuple(tensor.detach().clone() for tensor in inputs), Undo()
    watch = Watch(copies, cuda=cuda, undo=undo, listener=listener)
    result, raised = None, None
    try:
        with HostRandom(notice) as random:
            result = watch.run(fn)
    except Exception as error:
        where = str(raising_line(error.__traceback__))
        detail = f"{error}".partition("\n")[0] + (" (its tensors lie on cuda:0)" if cuda else "")
        raised = Finding(Kind.RAISES, type(error).__name__, where, detail)
    finally:
        undo.put_back()
    return _Seen(watch, copies, undo, result, tuple(random.findings), raised)


def _call_on_cuda(fn: Callable[..., object], inputs: Sequence[Tensor]) -> _Seen | None:
    try:
        return _call(fn, inputs, cuda=True)
    except Unplaced:
        return None


def _call_on_others(
    fn: Callable[..., object], candidates: Sequence[Sequence[Tensor]]
) -> tuple[Sequence[Tensor], _Seen] | str:
    """A call on the first of the other inputs that the callable takes; a text that says why there is none."""
    why = "the inputs could not be given other values; pass some as others"
    for others in candidates:
        seen = _call(fn, others)
        if seen.raised is None:
            return others, seen
        raised = seen.raised
        why = f"on other values it raises {raised.operator}, {raised.detail}, at {raised.where}"
    return why


def _outliving(seen: _Seen, fn: Callable[..., object]) -> Iterator[Finding]:
    """Inputs, and storages made in the call, that something still holds when its result is let go."""
    seen.let_go()

    def kept() -> set[tuple[str, int]]:
        origins = (origin for _, origin in seen.watch.table.alive())
        return {(origin.place, origin.number) for origin in origins if origin.place in ("step", "input")}

    if kept():
        gc.collect()  # what only a cycle holds is not kept
    for place, number in sorted(kept()):
        if place == "input":
            detail = f"input {number} is still held when the call is over, and the next inputs are copied over it"
            yield Finding(Kind.OUTLIVES, "input", str(defining_line(fn)), detail)
        else:
            entry = seen.watch.entries[number]
            detail = "its result is still held when the call is over, and the next replay overwrites it"
            yield Finding(Kind.OUTLIVES, entry.operator, str(entry.line), detail)


def _left_by(first: _Seen, later: _Seen) -> Iterator[Finding]:
    """What the first call took from its inputs and the later one lives on."""
    for finding in first.watch.first_hand:
        if finding not in later.watch.findings:
            detail = "only the first call reads this; later ones live on what it read"
            yield Finding(Kind.STALE, finding.operator, finding.where, detail)
    for entry in later.watch.entries:
        for ref in entry.arguments:
            if isinstance(ref, Ref) and ref.origin.place == "outside" and ref.origin.number in first.watch.derived:
                detail = "it gets a tensor that an earlier call made from its inputs"
                yield Finding(Kind.STALE, entry.operator, str(entry.line), detail)


def _unread(seen: _Seen, inputs: Sequence[Tensor]) -> Iterator[Finding]:
    """Example inputs that come from outside the call, and inputs that no operator gets while their like does."""
    refs = [(entry, ref) for entry in seen.watch.entries for ref in entry.arguments if isinstance(ref, Ref)]
    read = {ref.origin.number for _, ref in refs if ref.origin.place == "input"}
    for number, tensor in enumerate(inputs):
        likeness = (tensor.dtype, tuple(tensor.shape))
        alike = [(e, r) for e, r in refs if r.origin.place == "outside" and r.geometry[:2] == likeness]
        for entry, ref in alike:
            if ref.origin.number == key_of(tensor):
                detail = f"it gets the example of input {number} itself, not the input of the call"
            elif number not in read:
                detail = f"input {number} is never read, and this gets a tensor of its shape from outside the call"
            else:
                continue
            yield Finding(Kind.STALE, entry.operator, str(entry.line), detail)
            break


def _replayed(recorded: _Seen, tape: Tape, others: Sequence[Tensor], fresh: _Seen) -> Iterator[Finding]:
    """Where a replay on the other inputs and the call on them disagree."""
    try:
        with HostRandom():
            Recording(recorded.inputs, recorded.result, tape.steps(recorded.result)).replay(*others)
    except Exception as error:
        where = str(recorded.watch.entries[-1].line)
        yield Finding(Kind.RAISES, type(error).__name__, where, f"in a replay: {error}".partition("\n")[0])
        return
    finally:
        recorded.undo.put_back()
    for ours, eager in zip(tensors_in(recorded.result), tensors_in(fresh.result), strict=True):
        if not same_bits(ours, eager):
            origin = recorded.watch.table.origin(ours)
            entry = recorded.watch.entries[origin.number if origin.place == "step" else -1]
            detail = "replayed on rewritten inputs, it gives other values than the call itself"
            yield Finding(Kind.STALE, entry.operator, str(entry.line), detail)


def _require_like(inputs: Sequence[Tensor], others: Sequence[Tensor]) -> None:
    if len(inputs) != len(others):
        raise VoxradixError(f"{len(others)} other inputs for {len(inputs)} inputs")
    require(others, "other input")
    for number, (tensor, other) in enumerate(zip(inputs, others, strict=True)):
        if (tensor.shape, tensor.dtype) != (other.shape, other.dtype):
            raise VoxradixError(f"other input {number} has not the shape and dtype of input {number}")
