//! The memory of modules: SFF-8472 (SFP), SFF-8636 (QSFP) and CMIS (QSFP-DD, OSFP). No socket; whatever stands
//! in the memory is read without harm, and a value that the module does not have is left out.

use crem_api::rest::{Module, ModuleLane};

/// Octets of a half of a page.
const HALF: u8 = 128;
/// I2C addresses of a module's memory, and of the diagnostics of an SFP.
const MEMORY: u8 = 0x50;
const DIAGNOSTICS: u8 = 0x51;
/// Lanes of a CMIS module on its first bank.
const CMIS_LANES: usize = 8;

/// A part of the memory, within one half of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// I2C address.
    pub i2c: u8,
    /// Page; the lower half is the same on each.
    pub page: u8,
    /// First octet: 0 to 127 lower half, 128 to 255 upper half.
    pub offset: u8,
    /// Octets.
    pub length: u8,
}

/// Reads parts of the memory, or says why it cannot.
type Read<'a> = dyn FnMut(Place) -> Result<Vec<u8>, String> + 'a;

/// Half of a page; places count from 0, or from 128 in the upper half as the specifications do.
struct Half {
    octets: Vec<u8>,
    first: usize,
}

impl Half {
    fn read(read: &mut Read<'_>, i2c: u8, page: u8, upper: bool) -> Result<Self, String> {
        let offset = if upper { HALF } else { 0 };
        let octets = read(Place {
            i2c,
            page,
            offset,
            length: HALF,
        })?;
        Ok(Self {
            octets,
            first: offset.into(),
        })
    }

    fn octet(&self, at: usize) -> u8 {
        let at = at.checked_sub(self.first);
        at.and_then(|at| self.octets.get(at)).copied().unwrap_or(0)
    }

    fn word(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.octet(at), self.octet(at + 1)])
    }

    /// A text, without what pads it and without what is not fit to be shown.
    fn text(&self, from: usize, to: usize) -> Option<String> {
        let shown = (from..=to).map(|at| char::from(self.octet(at)));
        let text: String = shown
            .map(|c| if c.is_ascii_graphic() { c } else { ' ' })
            .collect();
        let text = text.trim().to_owned();
        (!text.is_empty()).then_some(text)
    }

    /// Signed 1/256 of a degree.
    fn celsius(&self, at: usize) -> f64 {
        f64::from(self.word(at).cast_signed()) / 256.0
    }

    /// Units of 100 microvolts.
    fn volts(&self, at: usize) -> f64 {
        f64::from(self.word(at)) / 10_000.0
    }

    /// Units of 0.1 microwatts, in dBm; none for no light at all.
    fn dbm(&self, at: usize) -> Option<f64> {
        let milliwatts = f64::from(self.word(at)) / 10_000.0;
        (milliwatts > 0.0).then(|| (milliwatts.log10() * 1000.0).round() / 100.0)
    }

    /// Units of 2 microamperes, times what a module says.
    fn milliamperes(&self, at: usize, times: u16) -> f64 {
        f64::from(self.word(at)) * f64::from(times) * 0.002
    }
}

/// Reads a module.
///
/// # Errors
/// In words: no module, a driver that cannot, or a kind of memory that is not known here.
pub fn read(read: &mut Read<'_>) -> Result<Module, String> {
    let lower = Half::read(read, MEMORY, 0, false)?;
    let kind = lower.octet(0);
    match kind {
        0x03 | 0x0b => sfp(&lower, read),
        0x0c | 0x0d | 0x11 => qsfp(kind, &lower, read),
        0x18 | 0x19 | 0x1b | 0x1e | 0x1f => cmis(kind, &lower, read),
        _ => Err(format!("a kind of memory that is not known, 0x{kind:02x}")),
    }
}

/// SFF-8472.
fn sfp(base: &Half, read: &mut Read<'_>) -> Result<Module, String> {
    let mut module = Module {
        form: "sfp".to_owned(),
        vendor: base.text(20, 35),
        part: base.text(40, 55),
        revision: base.text(56, 59),
        serial: base.text(68, 83),
        date: base.text(84, 91),
        ..Module::default()
    };
    let diagnostics = base.octet(92);
    // Implemented, and calibrated by the module itself: others give numbers that only mean something with
    // coefficients of that module.
    if diagnostics & 0x60 != 0x60 {
        return Ok(module);
    }
    let values = Half::read(read, DIAGNOSTICS, 0, false)?;
    module.temperature_celsius = Some(values.celsius(96));
    module.voltage_volts = Some(values.volts(98));
    module.lanes.push(ModuleLane {
        bias_milliamperes: Some(values.milliamperes(100, 1)),
        transmit_dbm: values.dbm(102),
        receive_dbm: values.dbm(104),
    });
    Ok(module)
}

/// SFF-8636.
fn qsfp(kind: u8, lower: &Half, read: &mut Read<'_>) -> Result<Module, String> {
    let upper = Half::read(read, MEMORY, 0, true)?;
    let lane = |n: usize| ModuleLane {
        receive_dbm: lower.dbm(34 + 2 * n),
        bias_milliamperes: Some(lower.milliamperes(42 + 2 * n, 1)),
        transmit_dbm: lower.dbm(50 + 2 * n),
    };
    Ok(Module {
        form: if kind == 0x11 { "qsfp28" } else { "qsfp+" }.to_owned(),
        vendor: upper.text(148, 163),
        part: upper.text(168, 183),
        revision: upper.text(184, 185),
        serial: upper.text(196, 211),
        date: upper.text(212, 219),
        temperature_celsius: Some(lower.celsius(22)),
        voltage_volts: Some(lower.volts(26)),
        lanes: (0..4).map(lane).collect(),
    })
}

/// CMIS 5.
fn cmis(kind: u8, lower: &Half, read: &mut Read<'_>) -> Result<Module, String> {
    let upper = Half::read(read, MEMORY, 0, true)?;
    let form = match kind {
        0x18 => "qsfp-dd",
        0x19 => "osfp",
        0x1b => "dsfp",
        0x1f => "sfp-dd",
        _ => "qsfp",
    };
    let mut module = Module {
        form: form.to_owned(),
        vendor: upper.text(129, 144),
        part: upper.text(148, 163),
        revision: upper.text(164, 165),
        serial: upper.text(166, 181),
        date: upper.text(182, 189),
        temperature_celsius: Some(lower.celsius(14)),
        voltage_volts: Some(lower.volts(16)),
        lanes: Vec::new(),
    };
    // A flat memory has no other pages: a cable.
    if lower.octet(2) & 0x80 != 0 {
        return Ok(module);
    }
    let abilities = Half::read(read, MEMORY, 1, true)?;
    let monitors = abilities.octet(160);
    let times = 1 << (monitors >> 3 & 3).min(2);
    let values = Half::read(read, MEMORY, 0x11, true)?;
    let lane = |n: usize| ModuleLane {
        bias_milliamperes: (monitors & 1 != 0).then(|| values.milliamperes(170 + 2 * n, times)),
        transmit_dbm: values.dbm(154 + 2 * n).filter(|_| monitors & 2 != 0),
        receive_dbm: values.dbm(186 + 2 * n).filter(|_| monitors & 4 != 0),
    };
    if monitors & 7 != 0 {
        module.lanes = (0..CMIS_LANES).map(lane).collect();
    }
    Ok(module)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// Memory by I2C address and page; the lower half is that of page 0.
    #[derive(Default)]
    struct Memory(BTreeMap<(u8, u8), [u8; 256]>);

    impl Memory {
        fn put(&mut self, i2c: u8, page: u8, at: usize, octets: &[u8]) {
            let memory = self.0.entry((i2c, page)).or_insert([0; 256]);
            memory[at..at + octets.len()].copy_from_slice(octets);
        }

        fn read(&self) -> Result<Module, String> {
            read(&mut |place| {
                assert!(place.offset == 0 || place.offset == HALF);
                let memory = self.0.get(&(place.i2c, place.page)).ok_or("no such page")?;
                let from = usize::from(place.offset);
                Ok(memory[from..from + usize::from(place.length)].to_vec())
            })
        }
    }

    #[test]
    fn an_sfp_tells_what_sff_8472_has() {
        let mut memory = Memory::default();
        memory.put(MEMORY, 0, 0, &[0x03]);
        memory.put(MEMORY, 0, 20, b"ACME OPTICS     ");
        memory.put(MEMORY, 0, 40, b"AO-10G-LR       ");
        memory.put(MEMORY, 0, 68, b"S123\x1b\x00            ");
        memory.put(MEMORY, 0, 92, &[0x68]);
        // 34.5 degrees, 3.3 V, 6 mA, 0.5 mW, 0.4 mW.
        memory.put(DIAGNOSTICS, 0, 96, &[0x22, 0x80]);
        for (at, word) in [(98, 33_000u16), (100, 3_000), (102, 5_000), (104, 4_000)] {
            memory.put(DIAGNOSTICS, 0, at, &word.to_be_bytes());
        }
        let module = memory.read().unwrap();
        assert_eq!(module.form, "sfp");
        assert_eq!(module.vendor.as_deref(), Some("ACME OPTICS"));
        assert_eq!(module.serial.as_deref(), Some("S123"));
        assert_eq!(module.revision, None);
        assert_eq!(module.temperature_celsius, Some(34.5));
        assert_eq!(module.voltage_volts, Some(3.3));
        let lane = &module.lanes[0];
        assert_eq!(lane.bias_milliamperes, Some(6.0));
        assert_eq!(
            (lane.transmit_dbm, lane.receive_dbm),
            (Some(-3.01), Some(-3.98))
        );
        // Calibrated from outside: the numbers mean nothing by themselves.
        memory.put(MEMORY, 0, 92, &[0x50]);
        assert!(memory.read().unwrap().lanes.is_empty());
    }

    #[test]
    fn a_qsfp_has_four_lanes_as_sff_8636_has_them() {
        let mut memory = Memory::default();
        memory.put(MEMORY, 0, 0, &[0x11]);
        memory.put(MEMORY, 0, 22, &(-5i16 * 256).to_be_bytes());
        memory.put(MEMORY, 0, 26, &32_500u16.to_be_bytes());
        memory.put(MEMORY, 0, 36, &10_000u16.to_be_bytes());
        memory.put(MEMORY, 0, 44, &20_000u16.to_be_bytes());
        memory.put(MEMORY, 0, 52, &1_000u16.to_be_bytes());
        memory.put(MEMORY, 0, 148, b"ACME            ");
        memory.put(MEMORY, 0, 168, b"Q28-SR4         ");
        let module = memory.read().unwrap();
        assert_eq!(
            (module.form.as_str(), module.part.as_deref()),
            ("qsfp28", Some("Q28-SR4"))
        );
        assert_eq!(
            (module.temperature_celsius, module.voltage_volts),
            (Some(-5.0), Some(3.25))
        );
        assert_eq!(module.lanes.len(), 4);
        assert_eq!(module.lanes[0].receive_dbm, None, "no light");
        let lane = &module.lanes[1];
        assert_eq!(
            (lane.receive_dbm, lane.transmit_dbm),
            (Some(0.0), Some(-10.0))
        );
        assert_eq!(lane.bias_milliamperes, Some(40.0));
    }

    #[test]
    fn a_cmis_module_has_eight_lanes_and_a_cable_has_none() {
        let mut memory = Memory::default();
        memory.put(MEMORY, 0, 0, &[0x18, 0x50]);
        memory.put(MEMORY, 0, 14, &[0x28, 0]);
        memory.put(MEMORY, 0, 129, b"ACME            ");
        memory.put(MEMORY, 1, 160, &[0x07 | 1 << 3]);
        memory.put(MEMORY, 0x11, 154 + 14, &10_000u16.to_be_bytes());
        memory.put(MEMORY, 0x11, 170 + 14, &10_000u16.to_be_bytes());
        memory.put(MEMORY, 0x11, 186 + 14, &5_000u16.to_be_bytes());
        let module = memory.read().unwrap();
        assert_eq!(
            (module.form.as_str(), module.vendor.as_deref()),
            ("qsfp-dd", Some("ACME"))
        );
        assert_eq!(module.temperature_celsius, Some(40.0));
        let lane = &module.lanes[7];
        assert_eq!(lane.bias_milliamperes, Some(40.0), "twice the unit");
        assert_eq!(
            (lane.transmit_dbm, lane.receive_dbm),
            (Some(0.0), Some(-3.01))
        );
        memory.put(MEMORY, 0, 2, &[0x80]);
        memory.0.remove(&(MEMORY, 1));
        memory.0.remove(&(MEMORY, 0x11));
        assert!(memory.read().unwrap().lanes.is_empty());
        memory.put(MEMORY, 0, 0, &[0x77]);
        assert!(memory.read().unwrap_err().contains("0x77"));
        assert!(Memory::default().read().is_err());
    }

    proptest! {
        #[test]
        fn any_memory_is_read_without_harm(
            kind in prop_oneof![Just(0x03u8), Just(0x0d), Just(0x11), Just(0x18), Just(0x19), any::<u8>()],
            mut octets in proptest::collection::vec(any::<u8>(), 0..256),
        ) {
            if let Some(first) = octets.first_mut() {
                *first = kind;
            }
            let module = read(&mut |_| Ok(octets.clone()));
            if let Ok(module) = module {
                prop_assert!(module.lanes.len() <= CMIS_LANES);
                prop_assert!(serde_json::to_string(&module).is_ok());
            }
        }
    }
}
