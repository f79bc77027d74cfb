//! A case: a name that states a guarantee, and what shows that it is kept.

use crate::rig::stage::Stage;

/// One guarantee.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) run: fn(&Stage),
}

/// The cases of a module. A function that is not listed is dead code, and the compiler says so.
macro_rules! cases {
    ($($name:ident),* $(,)?) => {
        &[$($crate::rig::case::Case { name: stringify!($name), run: $name }),*]
    };
}

pub(crate) use cases;
