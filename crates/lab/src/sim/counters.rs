//! What happened in a run, counted: the struct `Report` of a simulation, written as a list of names.

macro_rules! counters {
    (happened { $($(#[$doc:meta])* $name:ident;)* } faults { $($(#[$fault_doc:meta])* $fault:ident;)* }) => {
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Report {
            $($(#[$doc])* pub $name: u64,)*
            $($(#[$fault_doc])* pub $fault: u64,)*
            /// A number for every decision and every answer of the run, in their order.
            pub hash: u64,
        }

        impl Report {
            /// What came of it.
            pub fn happened(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }

            /// What a run of this length promises, and what did not happen in it.
            pub fn missing(&self) -> Vec<&'static str> {
                let all = [self.happened(), self.faults()].concat();
                all.into_iter().filter(|(_, times)| *times == 0).map(|(name, _)| name).collect()
            }

            /// What went wrong meanwhile.
            pub fn faults(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($fault), self.$fault),)*]
            }
        }
    };
}
