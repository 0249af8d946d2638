//! Extension headers that we read or that test endpoints write: RETH, AETH, ImmDt. Where they stand is
//! in [`Ext`](super::Ext).

/// RDMA Extended Transport Header: the target of a WRITE, the source of a READ.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Reth {
    /// Virtual address.
    pub virtual_address: u64,
    /// Remote key.
    pub rkey: u32,
    /// DMA Length in octets.
    pub dma_length: u32,
}

impl Reth {
    /// Octets of the header.
    pub const LEN: usize = 16;

    /// The header at the front of `octets`; `None` if it is not complete.
    pub fn parse(octets: &[u8]) -> Option<Self> {
        let (address, rest) = octets.split_first_chunk::<8>()?;
        let (rkey, rest) = rest.split_first_chunk::<4>()?;
        let length = rest.first_chunk::<4>()?;
        Some(Self {
            virtual_address: u64::from_be_bytes(*address),
            rkey: u32::from_be_bytes(*rkey),
            dma_length: u32::from_be_bytes(*length),
        })
    }

    /// Writes the header to the front of `out` and returns its octets; 0 if `out` is too short.
    pub fn write(&self, out: &mut [u8]) -> usize {
        let Some(head) = out.first_chunk_mut::<{ Self::LEN }>() else {
            return 0;
        };
        head[..8].copy_from_slice(&self.virtual_address.to_be_bytes());
        head[8..12].copy_from_slice(&self.rkey.to_be_bytes());
        head[12..].copy_from_slice(&self.dma_length.to_be_bytes());
        Self::LEN
    }

    /// Number of response packets, and so of PSNs, of a READ of this length (AMB-READ0). An
    /// `rdma_mtu` of 0 counts as 1.
    pub fn read_span(&self, rdma_mtu: u16) -> u32 {
        self.dma_length.div_ceil(u32::from(rdma_mtu).max(1)).max(1)
    }
}

/// ACK Extended Transport Header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Aeth {
    /// Syndrome octet, see [`Aeth::kind`].
    pub syndrome: u8,
    /// Message sequence number, 24 bits.
    pub msn: u32,
}

/// What an AETH syndrome says.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Syndrome {
    /// Acknowledgment with a credit count, 31 for "not used".
    Ack(u8),
    /// Receiver not ready, with the timer code.
    RnrNak(u8),
    /// Negative acknowledgment.
    Nak(NakCode),
    /// Reserved.
    Reserved,
}

/// NAK codes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NakCode {
    /// A PSN is missing; the BTH names the expected one.
    PsnSequence,
    /// Invalid request.
    InvalidRequest,
    /// Remote access error.
    RemoteAccess,
    /// Remote operational error.
    RemoteOperational,
    /// Invalid RD request.
    InvalidRd,
    /// Reserved code.
    Reserved(u8),
}

impl NakCode {
    /// The five-bit code.
    pub const fn code(self) -> u8 {
        match self {
            Self::PsnSequence => 0,
            Self::InvalidRequest => 1,
            Self::RemoteAccess => 2,
            Self::RemoteOperational => 3,
            Self::InvalidRd => 4,
            Self::Reserved(code) => code & 0x1f,
        }
    }

    const fn from_code(code: u8) -> Self {
        match code {
            0 => Self::PsnSequence,
            1 => Self::InvalidRequest,
            2 => Self::RemoteAccess,
            3 => Self::RemoteOperational,
            4 => Self::InvalidRd,
            other => Self::Reserved(other),
        }
    }
}

impl Aeth {
    /// Octets of the header.
    pub const LEN: usize = 4;

    /// A header with this syndrome; `msn` is taken modulo 2^24.
    pub const fn new(kind: Syndrome, msn: u32) -> Self {
        let syndrome = match kind {
            Syndrome::Ack(credits) => credits & 0x1f,
            Syndrome::RnrNak(timer) => 0x20 | (timer & 0x1f),
            Syndrome::Nak(code) => 0x60 | code.code(),
            Syndrome::Reserved => 0x40,
        };
        Self {
            syndrome,
            msn: msn & 0x00ff_ffff,
        }
    }

    /// The header at the front of `octets`; `None` if it is not complete.
    pub fn parse(octets: &[u8]) -> Option<Self> {
        let [syndrome, a, b, c] = *octets.first_chunk::<{ Self::LEN }>()?;
        Some(Self {
            syndrome,
            msn: u32::from_be_bytes([0, a, b, c]),
        })
    }

    /// Writes the header to the front of `out` and returns its octets; 0 if `out` is too short.
    pub fn write(&self, out: &mut [u8]) -> usize {
        let Some(head) = out.first_chunk_mut::<{ Self::LEN }>() else {
            return 0;
        };
        *head = (u32::from(self.syndrome) << 24 | self.msn & 0x00ff_ffff).to_be_bytes();
        Self::LEN
    }

    /// What the syndrome says.
    pub const fn kind(&self) -> Syndrome {
        let low = self.syndrome & 0x1f;
        match self.syndrome >> 5 & 3 {
            0 => Syndrome::Ack(low),
            1 => Syndrome::RnrNak(low),
            3 => Syndrome::Nak(NakCode::from_code(low)),
            _ => Syndrome::Reserved,
        }
    }
}

/// Immediate data.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ImmDt(pub u32);

impl ImmDt {
    /// Octets of the header.
    pub const LEN: usize = 4;

    /// The header at the front of `octets`; `None` if it is not complete.
    pub fn parse(octets: &[u8]) -> Option<Self> {
        octets
            .first_chunk::<{ Self::LEN }>()
            .map(|word| Self(u32::from_be_bytes(*word)))
    }

    /// Writes the header to the front of `out` and returns its octets; 0 if `out` is too short.
    pub fn write(&self, out: &mut [u8]) -> usize {
        let Some(head) = out.first_chunk_mut::<{ Self::LEN }>() else {
            return 0;
        };
        *head = self.0.to_be_bytes();
        Self::LEN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_round_trip() {
        let mut octets = [0; 16];
        let reth = Reth {
            virtual_address: 0x0102_0304_0506_0708,
            rkey: 0xa1b2_c3d4,
            dma_length: 4097,
        };
        assert_eq!(reth.write(&mut octets), 16);
        assert_eq!(
            octets,
            [
                1, 2, 3, 4, 5, 6, 7, 8, 0xa1, 0xb2, 0xc3, 0xd4, 0, 0, 0x10, 1
            ]
        );
        assert_eq!(Reth::parse(&octets), Some(reth));
        assert_eq!(Reth::parse(&octets[..15]), None);
        assert_eq!(reth.write(&mut octets[..15]), 0);
        let immediate = ImmDt(0xdead_beef);
        assert_eq!(immediate.write(&mut octets), 4);
        assert_eq!(ImmDt::parse(&octets), Some(immediate));
    }

    // shows: CREM-BLOCK-05, AMB-READ0
    #[test]
    fn read_span_counts_response_packets() {
        let reth = |dma_length| Reth {
            virtual_address: 0,
            rkey: 0,
            dma_length,
        };
        assert_eq!(reth(0).read_span(1024), 1);
        assert_eq!(reth(1024).read_span(1024), 1);
        assert_eq!(reth(1025).read_span(1024), 2);
        assert_eq!(reth(1 << 31).read_span(256), 1 << 23);
    }

    #[test]
    fn syndromes_round_trip() {
        for octet in 0..=255u8 {
            let aeth = Aeth {
                syndrome: octet,
                msn: 0x12_3456,
            };
            let mut word = [0; 4];
            assert_eq!(aeth.write(&mut word), 4);
            assert_eq!(Aeth::parse(&word), Some(aeth));
            if aeth.kind() != Syndrome::Reserved {
                assert_eq!(Aeth::new(aeth.kind(), aeth.msn).syndrome, octet & 0x7f);
            }
        }
        assert_eq!(
            Aeth {
                syndrome: 0x60,
                msn: 0
            }
            .kind(),
            Syndrome::Nak(NakCode::PsnSequence)
        );
        assert_eq!(
            Aeth {
                syndrome: 0x1f,
                msn: 0
            }
            .kind(),
            Syndrome::Ack(31)
        );
    }
}
