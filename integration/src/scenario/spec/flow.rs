//! The hosts, which of them are the ends of a flow, and which way its data goes.

use super::{Flow, Host, Operation};

impl Flow {
    /// Where its other end is.
    pub fn to(&self) -> Host {
        self.responder.unwrap_or(self.requester.other())
    }

    /// Where its data comes from.
    pub fn data_from(&self) -> Host {
        match self.operation {
            Operation::Read => self.to(),
            Operation::Write | Operation::Send => self.requester,
        }
    }

    /// Where its data goes to.
    pub fn data_to(&self) -> Host {
        match self.operation {
            Operation::Read => self.requester,
            Operation::Write | Operation::Send => self.to(),
        }
    }
}

impl Host {
    /// The other one; where there are three, the first one at the other side.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B | Self::C => Self::A,
        }
    }

    /// Its number in addresses, from 1.
    pub fn number(self) -> u8 {
        match self {
            Self::A => 1,
            Self::B => 2,
            Self::C => 3,
        }
    }

    /// Its letter in names.
    pub fn letter(self) -> char {
        match self {
            Self::A => 'a',
            Self::B => 'b',
            Self::C => 'c',
        }
    }
}

impl Operation {
    /// As `rdma-peer` spells it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Send => "send",
            Self::Read => "read",
        }
    }
}
