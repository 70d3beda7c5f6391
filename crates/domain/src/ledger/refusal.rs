//! Why an operation is refused. The numbers are stored in the journal and never change their meaning.

use std::fmt;

macro_rules! coded {
    ($(#[$enum_doc:meta])* $Enum:ident { $($(#[$doc:meta])* $Variant:ident = $number:literal, $code:literal, $text:literal;)* }) => {
        $(#[$enum_doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $Enum { $($(#[$doc])* $Variant,)* }

        impl $Enum {
            pub const ALL: &'static [Self] = &[$(Self::$Variant),*];

            /// The number that stands for it in the database.
            pub const fn number(self) -> i16 {
                match self { $(Self::$Variant => $number,)* }
            }

            /// The name that stands for it in interfaces, and names its page in `docs/errors/`.
            pub const fn code(self) -> &'static str {
                match self { $(Self::$Variant => $code,)* }
            }

            pub fn from_number(number: i16) -> Option<Self> {
                Self::ALL.iter().copied().find(|one| one.number() == number)
            }
        }

        impl fmt::Display for $Enum {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$Variant => $text,)* })
            }
        }
    };
}

coded! {
    /// Reasons in order of precedence, movement by movement: the first that applies is the answer, and is recorded
    /// under the operation's key, so that a replay gets the same one.
    Refusal {
        InvalidAmount = 1, "INVALID_AMOUNT", "an amount must be greater than zero";
        SameAccount = 2, "SAME_ACCOUNT", "a movement needs two different accounts";
        AccountNotFound = 3, "ACCOUNT_NOT_FOUND", "an account of the operation does not exist";
        AssetMismatch = 4, "ASSET_MISMATCH", "a movement's asset is not that of both its accounts";
        AccountFrozen = 5, "ACCOUNT_FROZEN", "the paying account is frozen";
        AccountDisabled = 6, "ACCOUNT_DISABLED", "an account of the operation is disabled";
        SystemAccountHold = 7, "SYSTEM_ACCOUNT_HOLD", "only users' accounts can hold";
        HoldNotFound = 8, "HOLD_NOT_FOUND", "there is no hold with this key";
        HoldAccountMismatch = 9, "HOLD_ACCOUNT_MISMATCH", "the hold is on another account";
        HoldAlreadyEnded = 10, "HOLD_ALREADY_ENDED", "the hold was settled or released before";
        HoldAmountMismatch = 11, "HOLD_AMOUNT_MISMATCH", "a hold ends with exactly the amount it holds";
        InsufficientBalance = 12, "INSUFFICIENT_BALANCE", "the available balance is less than the amount";
        Overflow = 13, "OVERFLOW", "the balance would not fit 64 bits";
        SystemAccountStatus = 14, "SYSTEM_ACCOUNT_STATUS", "a system account is always active";
    }
}

coded! {
    /// In what a replay differs from the operation that its key stands for. Never recorded: the first stands.
    Difference {
        Action = 1, "EXISTS_WITH_DIFFERENT_ACTION", "the key stands for another kind of operation";
        Hold = 2, "EXISTS_WITH_DIFFERENT_HOLD", "the key stands for the end of another hold";
        MovementCount = 3, "EXISTS_WITH_DIFFERENT_MOVEMENT_COUNT", "the key stands for more or fewer movements";
        From = 4, "EXISTS_WITH_DIFFERENT_FROM", "the key stands for another paying account";
        To = 5, "EXISTS_WITH_DIFFERENT_TO", "the key stands for another receiving account";
        Asset = 6, "EXISTS_WITH_DIFFERENT_ASSET", "the key stands for another asset";
        Amount = 7, "EXISTS_WITH_DIFFERENT_AMOUNT", "the key stands for another amount";
        Reference = 8, "EXISTS_WITH_DIFFERENT_REFERENCE", "the key stands for another reference";
        Account = 9, "EXISTS_WITH_DIFFERENT_ACCOUNT", "the key stands for a change of another account";
        Status = 10, "EXISTS_WITH_DIFFERENT_STATUS", "the key stands for a change to another status";
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn numbers_and_codes_are_unique_and_read_back() {
        let numbers: HashSet<i16> = Refusal::ALL.iter().map(|refusal| refusal.number()).collect();
        let codes: HashSet<&str> = Refusal::ALL.iter().map(|refusal| refusal.code()).collect();
        assert_eq!((numbers.len(), codes.len()), (Refusal::ALL.len(), Refusal::ALL.len()));
        assert!(!numbers.contains(&0), "0 in the journal means applied");
        for refusal in Refusal::ALL {
            assert_eq!(Refusal::from_number(refusal.number()), Some(*refusal));
        }
    }
}
