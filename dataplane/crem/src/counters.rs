//! How the protocol functions count: plain structs of `u64`, one documented field per event or drop
//! reason, with names for whoever exports them.

/// Defines a counter struct whose fields can be walked by name.
macro_rules! counters {
    ($(#[$meta:meta])* $name:ident { $($(#[$field_meta:meta])* $field:ident,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct $name {
            $($(#[$field_meta])* pub $field: u64,)*
        }

        impl $name {
            /// Calls `f` with the name and the value of every counter, in declaration order.
            pub fn for_each(&self, mut f: impl FnMut(&'static str, u64)) {
                $(f(stringify!($field), self.$field);)*
            }
        }
    };
}
pub(crate) use counters;
