//! What happens to frames of protocols between neighbours on one link. How such frames are told apart is not
//! here.

use serde::Serialize;

use crate::read::Table;

/// What happens to the frames of one protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ControlPolicy {
    /// They stop here.
    Drop,
    /// They pass.
    Transparent,
}

/// A policy for each protocol (AMB-QOS-PFC). Pause and PFC have none: they never pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ControlFrames {
    /// LLDP, with which switches would negotiate PFC across the path (DCBX).
    pub lldp: ControlPolicy,
    /// Spanning tree in all its forms.
    pub stp: ControlPolicy,
    /// Link aggregation: LACP and its marker protocol.
    pub lacp: ControlPolicy,
    /// Port authentication, 802.1X.
    pub dot1x: ControlPolicy,
    /// MACsec: everything on the link is in such frames.
    pub macsec: ControlPolicy,
    /// Precision time over Ethernet.
    pub ptp: ControlPolicy,
    /// Whatever else is sent to the addresses that bridges keep to themselves, 01:80:c2:00:00:00 to 0f.
    pub other: ControlPolicy,
}

impl Default for ControlFrames {
    fn default() -> Self {
        let transparent = ControlPolicy::Transparent;
        Self {
            lldp: ControlPolicy::Drop,
            stp: transparent,
            lacp: transparent,
            dot1x: transparent,
            macsec: transparent,
            ptp: transparent,
            other: transparent,
        }
    }
}

impl ControlFrames {
    pub(crate) fn read(mut t: Table<'_>) -> Option<Self> {
        let default = Self::default();
        let words = [
            ("drop", ControlPolicy::Drop),
            ("transparent", ControlPolicy::Transparent),
        ];
        let mut policy = |key, default| t.or_told(key, default, |n| n.choice(&words));
        let lldp = policy("lldp", default.lldp);
        let stp = policy("stp", default.stp);
        let lacp = policy("lacp", default.lacp);
        let dot1x = policy("dot1x", default.dot1x);
        let macsec = policy("macsec", default.macsec);
        let ptp = policy("ptp", default.ptp);
        let other = policy("other", default.other);
        t.finish();
        Some(Self {
            lldp: lldp?,
            stp: stp?,
            lacp: lacp?,
            dot1x: dot1x?,
            macsec: macsec?,
            ptp: ptp?,
            other: other?,
        })
    }
}
