//! Why a message is refused.

/// Why a message is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DecodeError {
    /// Less than a Message Header.
    #[error("short: less than a message header")]
    Short,
    /// Another version.
    #[error("version {0}, expected 10")]
    Version(u16),
    /// The Length is not that of the message.
    #[error("length {0} of a message of {1} octets")]
    Length(u16, usize),
    /// A Set Length below 4, or beyond the message.
    #[error("set {0} of {1} octets does not fit its message")]
    SetLength(u16, u16),
    /// A Set ID that is not used or reserved.
    #[error("set id {0} is not assigned")]
    SetId(u16),
    /// A Set without a record.
    #[error("set {0} without a record")]
    EmptySet(u16),
    /// A template identifier below 256.
    #[error("template id {0}, expected 256 or more")]
    TemplateId(u16),
    /// A Template Record that is cut, or one without fields.
    #[error("template {0} is cut or has no fields")]
    Template(u16),
    /// A field length that the type of the element does not allow.
    #[error("template {0}: field {1}/{2} of {3} octets")]
    FieldLength(u16, u32, u16, u16),
    /// A scope field count of 0, or beyond the fields.
    #[error("options template {0} with {1} scope fields of {2}")]
    Scope(u16, u16, u16),
    /// A template identifier that is in use for something else, on a transport that keeps order.
    #[error("template {0} is defined anew without being withdrawn")]
    Redefined(u16),
    /// Data of a template that is not there, on a transport that keeps order.
    #[error("data of template {0}, which is not defined")]
    NoTemplate(u16),
    /// A record that is cut.
    #[error("record of template {0} is cut")]
    Record(u16),
    /// More templates or fields than the decoder keeps.
    #[error("more templates or fields than are kept")]
    Limit,
}

impl DecodeError {
    /// A short stable name, as counters and test data use it.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Short => "short",
            Self::Version(_) => "version",
            Self::Length(..) => "length",
            Self::SetLength(..) => "set_length",
            Self::SetId(_) => "set_id",
            Self::EmptySet(_) => "empty_set",
            Self::TemplateId(_) => "template_id",
            Self::Template(_) => "template",
            Self::FieldLength(..) => "field_length",
            Self::Scope(..) => "scope",
            Self::Redefined(_) => "redefined",
            Self::NoTemplate(_) => "no_template",
            Self::Record(_) => "record",
            Self::Limit => "limit",
        }
    }
}
