//! REPAIR as a peer may send it to the receiver function: fitting, or with fields of any value.

use crem_wire::crem::RepairHeader;
use crem_wire::{Bitmap, ConfigId, FlowId, Psn, RequestId};

use super::Reader;

/// The symbol length of every configuration.
pub(super) const T: u16 = 1062;

/// REPAIR that fits what is going on: of the last blocks before `next`, under a configuration that may be
/// known, an answer to `session` where there is one.
pub(super) fn likely_repair(
    reader: &mut Reader<'_>,
    flow: FlowId,
    next: u32,
    session: Option<RequestId>,
) -> RepairHeader {
    let back = i32::from(reader.octet() % 6) * 8;
    let start = Psn::new(next).add(-8 - back);
    let kind = reader.octet() % 8;
    let lost: Bitmap = (0..reader.octet() % 4)
        .map(|_| reader.octet() % 8)
        .collect();
    let info = kind == 7;
    let retx = kind >= 4 && !info && session.is_some() && !lost.is_empty();
    let copy = kind == 6 && !retx;
    RepairHeader {
        flow,
        last: reader.once_in(4),
        info,
        config: ConfigId(1 + reader.octet() % 8 / 7),
        scheme: u8::from(!copy),
        k: 8,
        index: reader.octet() % if copy { 8 } else { 20 },
        block_start: Psn::new(start.get() & !7),
        session: session.filter(|_| retx || copy || info),
        symbol_length: if info { 0 } else { T },
        present: Bitmap::first(8),
        lost: retx.then_some(lost),
    }
}

/// REPAIR with fields of any value; its block is mostly near `near`.
pub(super) fn any_repair(reader: &mut Reader<'_>, flow: FlowId, near: u32) -> RepairHeader {
    RepairHeader {
        flow,
        last: reader.once_in(2),
        info: reader.once_in(4),
        config: ConfigId(reader.octet() % 6),
        scheme: reader.octet() % 4,
        k: reader.octet(),
        index: reader.octet(),
        block_start: reader.psn(near),
        session: RequestId::new(reader.word()),
        symbol_length: if reader.once_in(4) { reader.word() } else { T },
        present: reader.bitmap(),
        lost: reader.once_in(2).then(|| reader.bitmap()),
    }
}
