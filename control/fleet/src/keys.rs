//! Names of the keys in etcd. What is stored in them is in [`layers`](crate::layers), [`store`](crate::store) and
//! [`status`](crate::status).

use crate::settings::Identity;

/// The keys of one gateway.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Keys {
    fleet: String,
    site: Option<String>,
    node: String,
    pair: String,
}

impl Keys {
    /// Keys below a prefix such as `/crem/v1`.
    pub fn new(prefix: &str, identity: &Identity) -> Self {
        Self {
            fleet: format!("{prefix}/fleets/{}", identity.fleet),
            site: identity
                .site
                .as_ref()
                .map(|site| format!("{prefix}/sites/{site}/overlay")),
            node: format!("{prefix}/nodes/{}", identity.node),
            pair: identity.pair.clone(),
        }
    }

    /// The document that the whole fleet shares: the first layer.
    pub fn base(&self) -> String {
        format!("{}/base", self.fleet)
    }

    /// The layers, the first one first; each is merged into those before it.
    pub fn layers(&self) -> Vec<String> {
        let site = self.site.clone();
        let own = format!("{}/overlay", self.node);
        [self.base()].into_iter().chain(site).chain([own]).collect()
    }

    /// How rollouts of the fleet go.
    pub fn policy(&self) -> String {
        format!("{}/rollout", self.fleet)
    }

    /// Why nobody begins; absent while all is well.
    pub fn halted(&self) -> String {
        format!("{}/rollout/halted", self.fleet)
    }

    /// Held by the gateway of our pair that is changing.
    pub fn lock(&self) -> String {
        format!("{}/rollout/locks/{}", self.fleet, self.pair)
    }

    /// One of the places for pairs that may change at once, counted from 0.
    pub fn place(&self, number: u32) -> String {
        format!("{}/rollout/places/{number}", self.fleet)
    }

    /// The number of a place.
    pub fn place_number(&self, key: &str) -> Option<u32> {
        let places = format!("{}/rollout/places/", self.fleet);
        key.strip_prefix(&places)?.parse().ok()
    }

    /// How we are; it goes with our lease.
    pub fn status(&self) -> String {
        format!("{}/status", self.node)
    }

    /// What is read and followed: from each first name up to the second one, without it; one key where there is no
    /// second one.
    pub fn ranges(&self) -> Vec<(String, Option<String>)> {
        let fleet = (
            format!("{}/", self.fleet),
            // '0' comes after '/'.
            Some(format!("{}0", self.fleet)),
        );
        let single = self.layers().into_iter().skip(1).map(|key| (key, None));
        [fleet].into_iter().chain(single).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_without_a_site_has_two_layers() {
        let identity = Identity {
            node: "gw-a".to_owned(),
            fleet: "f".to_owned(),
            site: None,
            pair: "p".to_owned(),
        };
        let keys = Keys::new("/crem/v1", &identity);
        let layers = ["/crem/v1/fleets/f/base", "/crem/v1/nodes/gw-a/overlay"];
        assert_eq!(keys.layers(), layers);
        let of_site = Identity {
            site: Some("s".to_owned()),
            ..identity
        };
        let of_site = Keys::new("/crem/v1", &of_site);
        assert_eq!(of_site.layers()[1], "/crem/v1/sites/s/overlay");
        assert_eq!(of_site.ranges().len(), 3);
    }

    #[test]
    fn what_is_followed_holds_every_key_that_is_read() {
        let identity = Identity {
            node: "n".to_owned(),
            fleet: "f".to_owned(),
            site: Some("s".to_owned()),
            pair: "p".to_owned(),
        };
        let keys = Keys::new("/x", &identity);
        let holds = |key: &String| {
            keys.ranges().iter().any(|(from, to)| match to {
                Some(to) => from <= key && key < to,
                None => from == key,
            })
        };
        let read = [keys.policy(), keys.halted(), keys.lock(), keys.place(3)];
        assert!(read.iter().chain(&keys.layers()).all(holds));
        assert!(!holds(&keys.status()), "what we write ourselves is no news");
        assert!(!holds(&"/x/fleets/f1/base".to_owned()));
        assert_eq!(keys.place_number(&keys.place(3)), Some(3));
        assert_eq!(keys.place_number(&keys.lock()), None);
    }
}
