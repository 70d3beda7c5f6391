//! Why a request for a withdrawal is not taken.

use std::fmt;

macro_rules! refusals {
    ($($Variant:ident = $code:literal, $text:literal;)*) => {
        /// In the order in which the rules are looked at: the first that applies is the answer. Nothing was done, and nothing is held.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum WithdrawalRefusal { $($Variant,)* }

        impl WithdrawalRefusal {
            pub const ALL: &'static [Self] = &[$(Self::$Variant),*];

            /// The name that stands for it in interfaces, and names its page in `docs/errors/`.
            pub const fn code(self) -> &'static str {
                match self { $(Self::$Variant => $code,)* }
            }
        }

        impl fmt::Display for WithdrawalRefusal {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$Variant => $text,)* })
            }
        }
    };
}

refusals! {
    DuplicateRequest = "DUPLICATE_REQUEST", "the client_order_id belongs to a withdrawal with other content";
    NotOffered = "WITHDRAWAL_NOT_OFFERED", "this asset cannot be withdrawn on this chain";
    ChainSuspended = "CHAIN_SUSPENDED", "the chain is suspended";
    AssetSuspended = "ASSET_SUSPENDED", "the asset is suspended";
    SwitchedOff = "WITHDRAWALS_OFF", "withdrawals of this asset on this chain are switched off; try again later";
    InvalidAmount = "INVALID_AMOUNT", "the amount must be greater than zero";
    AmountTooSmall = "AMOUNT_TOO_SMALL", "the amount is below the smallest withdrawal";
    AmountTooLarge = "AMOUNT_TOO_LARGE", "the amount is above the largest withdrawal";
    Overflow = "OVERFLOW", "amount, fee and what was withdrawn before are beyond any balance";
    QuoteExpired = "QUOTE_EXPIRED", "the quoted fee does not hold any more; ask for another quote";
    FeeAboveAmount = "FEE_ABOVE_AMOUNT", "the fee would be more than the amount";
    FeeAboveAgreed = "FEE_ABOVE_AGREED", "the fee is more than the request agrees to";
    DestinationOurs = "DESTINATION_OURS", "the destination is a wallet of the house";
    DestinationOwn = "DESTINATION_OWN", "the destination is the user's own deposit address";
    DestinationUnknown = "DESTINATION_UNKNOWN", "the destination is not in the user's address book";
    DestinationCoolingOff = "DESTINATION_COOLING_OFF", "the destination is too new; it can be used later";
    TooManyWithdrawals = "TOO_MANY_WITHDRAWALS", "too many withdrawals of this user in a short time";
    DailyAmountExceeded = "DAILY_AMOUNT_EXCEEDED", "the user would withdraw more today than is allowed";
    DailyTotalExceeded = "DAILY_TOTAL_EXCEEDED", "all users together would withdraw more today than is allowed";
    AccountNotFound = "ACCOUNT_NOT_FOUND", "the user has no account in this asset";
    AccountFrozen = "ACCOUNT_FROZEN", "the account is frozen";
    AccountDisabled = "ACCOUNT_DISABLED", "the account is disabled";
    InsufficientBalance = "INSUFFICIENT_BALANCE", "the available balance is less than amount and fee";
    DepositNotFinal = "DEPOSIT_NOT_FINAL", "a part of the balance was deposited too recently to be withdrawn";
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_reason_has_a_code_of_its_own() {
        let codes: HashSet<&str> = WithdrawalRefusal::ALL.iter().map(|one| one.code()).collect();
        let words: HashSet<String> = WithdrawalRefusal::ALL.iter().map(ToString::to_string).collect();
        assert_eq!((codes.len(), words.len()), (WithdrawalRefusal::ALL.len(), WithdrawalRefusal::ALL.len()));
    }
}
