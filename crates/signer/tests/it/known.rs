//! Known answers: the vectors of BIP-32, BIP-39 and BIP-84, and the addresses that everybody's wallets show for two mnemonics that
//! everybody knows.

use bitcoin::bip32::ChildNumber;
use domain::UserId;
use signer::Addresses;
use signer::keys::{AccountKey, AddressPath, Family, Keyring, Mnemonic, Purpose, extended_keys};
use tx::DerivationError;

use crate::made::{ABANDON, JUNK, hex, id, keyring, secret, unhex};

fn path(text: &str) -> Vec<ChildNumber> {
    text.split('/').skip(1).map(|step| step.parse().expect("a step")).collect()
}

/// <https://github.com/bitcoin/bips/blob/master/bip-0032.mediawiki#test-vectors>
#[test]
fn the_vectors_of_bip_32_come_out() {
    let first = "000102030405060708090a0b0c0d0e0f";
    let second = "fffcf9f6f3f0edeae7e4e1dedbd8d5d2cfccc9c6c3c0bdbab7b4b1aeaba8a5a29f9c999693908d8a8784817e7b7875726f6c696663605d5a5754514e4b484542";
    let third = "4b381541583be4423346c643850da4b320e46a87ae3d2a4e6da11eba819cd4acba45d239319ac14f863b8d5ab5a0d0c64d2e8a1e7d1457df2e5a3c51c73235be";
    let fourth = "3ddd5602285899a946114506157c7997e5444528f3003f6134712147db19b678";
    for (seed, steps, private, public) in [
        (
            first,
            "m",
            "xprv9s21ZrQH143K3QTDL4LXw2F7HEK3wJUD2nW2nRk4stbPy6cq3jPPqjiChkVvvNKmPGJxWUtg6LnF5kejMRNNU3TGtRBeJgk33yuGBxrMPHi",
            "xpub661MyMwAqRbcFtXgS5sYJABqqG9YLmC4Q1Rdap9gSE8NqtwybGhePY2gZ29ESFjqJoCu1Rupje8YtGqsefD265TMg7usUDFdp6W1EGMcet8",
        ),
        (
            first,
            "m/0h",
            "xprv9uHRZZhk6KAJC1avXpDAp4MDc3sQKNxDiPvvkX8Br5ngLNv1TxvUxt4cV1rGL5hj6KCesnDYUhd7oWgT11eZG7XnxHrnYeSvkzY7d2bhkJ7",
            "xpub68Gmy5EdvgibQVfPdqkBBCHxA5htiqg55crXYuXoQRKfDBFA1WEjWgP6LHhwBZeNK1VTsfTFUHCdrfp1bgwQ9xv5ski8PX9rL2dZXvgGDnw",
        ),
        (
            first,
            "m/0h/1/2h/2/1000000000",
            "xprvA41z7zogVVwxVSgdKUHDy1SKmdb533PjDz7J6N6mV6uS3ze1ai8FHa8kmHScGpWmj4WggLyQjgPie1rFSruoUihUZREPSL39UNdE3BBDu76",
            "xpub6H1LXWLaKsWFhvm6RVpEL9P4KfRZSW7abD2ttkWP3SSQvnyA8FSVqNTEcYFgJS2UaFcxupHiYkro49S8yGasTvXEYBVPamhGW6cFJodrTHy",
        ),
        (
            second,
            "m/0/2147483647h/1/2147483646h/2",
            "xprvA2nrNbFZABcdryreWet9Ea4LvTJcGsqrMzxHx98MMrotbir7yrKCEXw7nadnHM8Dq38EGfSh6dqA9QWTyefMLEcBYJUuekgW4BYPJcr9E7j",
            "xpub6FnCn6nSzZAw5Tw7cgR9bi15UV96gLZhjDstkXXxvCLsUXBGXPdSnLFbdpq8p9HmGsApME5hQTZ3emM2rnY5agb9rXpVGyy3bdW6EEgAtqt",
        ),
        // Leading zeros, which a version of bitpay's library left out.
        (
            third,
            "m/0h",
            "xprv9uPDJpEQgRQfDcW7BkF7eTya6RPxXeJCqCJGHuCJ4GiRVLzkTXBAJMu2qaMWPrS7AANYqdq6vcBcBUdJCVVFceUvJFjaPdGZ2y9WACViL4L",
            "xpub68NZiKmJWnxxS6aaHmn81bvJeTESw724CRDs6HbuccFQN9Ku14VQrADWgqbhhTHBaohPX4CjNLf9fq9MYo6oDaPPLPxSb7gwQN3ih19Zm4Y",
        ),
        (
            fourth,
            "m/0h/1h",
            "xprv9xJocDuwtYCMNAo3Zw76WENQeAS6WGXQ55RCy7tDJ8oALr4FWkuVoHJeHVAcAqiZLE7Je3vZJHxspZdFHfnBEjHqU5hG1Jaj32dVoS6XLT1",
            "xpub6BJA1jSqiukeaesWfxe6sNK9CCGaujFFSJLomWHprUL9DePQ4JDkM5d88n49sMGJxrhpjazuXYWdMf17C9T5XnxkopaeS7jGk1GyyVziaMt",
        ),
    ] {
        let made = extended_keys(&unhex(seed), &path(steps)).expect("a key");
        assert_eq!(made, (private.to_owned(), public.to_owned()), "{steps}");
    }
}

/// <https://github.com/trezor/python-mnemonic/blob/master/vectors.json>, those with 12 and 24 words.
#[test]
fn the_vectors_of_bip_39_come_out() {
    for (entropy, words) in [
        ("00000000000000000000000000000000", ABANDON),
        (
            "7f7f7f7f7f7f7f7f7f7f7f7f7f7f7f7f",
            "legal winner thank year wave sausage worth useful legal winner thank yellow",
        ),
        (
            "80808080808080808080808080808080",
            "letter advice cage absurd amount doctor acoustic avoid letter advice cage above",
        ),
        ("ffffffffffffffffffffffffffffffff", "zoo zoo zoo zoo zoo zoo zoo zoo zoo zoo zoo wrong"),
        (
            "0000000000000000000000000000000000000000000000000000000000000000",
            "abandon abandon abandon abandon abandon abandon abandon abandon abandon abandon abandon abandon abandon abandon abandon abandon abandon abandon abandon abandon abandon abandon abandon art",
        ),
        (
            "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
            "zoo zoo zoo zoo zoo zoo zoo zoo zoo zoo zoo zoo zoo zoo zoo zoo zoo zoo zoo zoo zoo zoo zoo vote",
        ),
        (
            "9e885d952ad362caeb4efe34a8e91bd2",
            "ozone drill grab fiber curtain grace pudding thank cruise elder eight picnic",
        ),
        (
            "68a79eaca2324873eacc50cb9c6eca8cc68ea5d936f98787c60c7ebc74e6ce7c",
            "hamster diagram private dutch cause delay private meat slide toddler razor book happy fancy gospel tennis maple dilemma loan word shrug inflict delay length",
        ),
        (
            "c0ba5a8e914111210f2bd131f3d5e08d",
            "scheme spot photo card baby mountain device kick cradle pact join borrow",
        ),
        (
            "f585c11aec520db57dd353c69554b21a89b20fb0650966fa0a9d6f74fd989d8f",
            "void come effort suffer camp survey warrior heavy shoot primary clutch crush open amazing screen patrol group space point ten exist slush involve unfold",
        ),
    ] {
        let made = Mnemonic::from_entropy(&unhex(entropy)).expect("12 or 24 words");
        assert_eq!(made.phrase().as_str(), words);
        let spread = format!("  {}\n", words.to_uppercase().replace(' ', " \t\n"));
        assert_eq!(Mnemonic::parse(&spread).expect("however it is typed").phrase().as_str(), words);
    }
}

#[test]
fn a_mnemonic_that_is_none_is_refused() {
    let fifteen = "abandon abandon abandon abandon abandon abandon abandon abandon abandon abandon abandon abandon abandon abandon address";
    for (text, why) in [
        ("", "neither 12 nor 24"),
        ("abandon", "neither 12 nor 24"),
        (&format!("{ABANDON} about"), "neither 12 nor 24"),
        (fifteen, "neither 12 nor 24"),
        (&ABANDON.replace("about", "abandon"), "checksum"),
        ("about abandon abandon abandon abandon abandon abandon abandon abandon abandon abandon abandon", "checksum"),
        (&ABANDON.replace("about", "aboot"), "not of the English list"),
        (&ABANDON.replace("about", "äbout"), "not of the English list"),
    ] {
        let error = Mnemonic::parse(text).expect_err(text);
        assert_eq!(error.code(), "SIGNER_MNEMONIC_INVALID");
        assert!(error.to_string().contains(why), "{text}: {error}");
        assert!(!error.to_string().contains("aboot"), "what was typed is in no error: {error}");
    }
    for length in [0, 15, 20, 24, 28, 31, 33, 64] {
        assert!(Mnemonic::from_entropy(&vec![7; length]).is_err(), "{length} bytes");
    }
}

/// BIP-84's own vector, Ethereum's development accounts, and what TRON and Ethereum wallets show for the same words.
#[test]
fn addresses_are_those_that_everybody_s_wallets_show() {
    let keyring = keyring(vec![
        secret("bitcoin", Purpose::Deposit, "bitcoin", 0, ABANDON),
        secret("tron", Purpose::Deposit, "tron", 0, ABANDON),
        secret("evm", Purpose::Deposit, "evm", 0, ABANDON),
        secret("dev", Purpose::Hot, "evm", 0, JUNK),
    ]);
    let change = 1 << 31;
    for (group, number, address) in [
        ("bitcoin", 0, "bc1qcr8te4kr609gcawutmrza0j4xv80jy8z306fyu"),
        ("bitcoin", 1, "bc1qnjg0jd8228aq7egyzacy8cys3knf9xvrerkf9g"),
        ("bitcoin", change, "bc1q8c6fshw2dlwun7ekn9qwf37cu2rn755upcp6el"),
        ("tron", 0, "TUEZSdKsoDHQMeZwihtdoBiN46zxhGWYdH"),
        ("evm", 0, "0x9858EfFD232B4033E47d90003D41EC34EcaEda94"),
        ("dev", 0, "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266"),
        ("dev", 9, "0xa0Ee7A142d267C1f36714E4a8F75612F20a79720"),
    ] {
        let path = AddressPath::of_number(number).expect("a small number");
        let made = keyring.address(&id(group), path).expect("an address");
        assert_eq!(made.to_string(), address, "{group}");
        assert_eq!(Addresses::address(&keyring, &id(group), number), Some(made), "as a decision asks for it");
    }
    assert_eq!(Addresses::address(&keyring, &id("nobody"), 0), None);
    assert_eq!(Addresses::address(&keyring, &id("dev"), u64::MAX), None);
    // BIP-84 prints its account as zpub (SLIP-132); these are the same bytes behind the other prefix.
    let key = &keyring.group(&id("bitcoin")).expect("there").key;
    assert_eq!(
        key.to_string(),
        "xpub6CatWdiZiodmUeTDp8LT5or8nmbKNcuyvz7WyksVFkKB4RHwCD3XyuvPEbvqAQY3rAPshWcMLoP2fMFMKHPJ4ZeZXYVUhLv1VMrjPC7PW6V"
    );
    assert_eq!(keyring.group(&id("bitcoin")).expect("there").family().account_path(0), "m/84'/0'/0'");
}

/// CUSTODY §4: `hi = user >> 31`, `lo = user & 0x7fffffff`.
#[test]
fn the_path_of_a_user_follows_from_the_number_alone() {
    let user = |number: i64| UserId::new(number).expect("positive");
    for (number, hi, lo) in [
        (1, 0, 1),
        (7, 0, 7),
        ((1 << 31) - 1, 0, 0x7fff_ffff),
        (1 << 31, 1, 0),
        ((1 << 31) + 5, 1, 5),
        ((1 << 62) - 1, 0x7fff_ffff, 0x7fff_ffff),
    ] {
        let path = AddressPath::of_user(user(number)).expect("a path");
        assert_eq!((path.hi(), path.lo()), (hi, lo), "{number}");
        assert_eq!(path.to_string(), format!("{hi}/{lo}"));
        assert_eq!(path.number(), number.cast_unsigned());
    }
    for number in [1 << 62, i64::MAX] {
        assert!(matches!(AddressPath::of_user(user(number)), Err(DerivationError::NumberTooLarge(_))), "{number}");
    }
    assert!(AddressPath::of_number(u64::MAX).is_err());
}

/// The server has only the extended public key. It must come to the same addresses as the signer.
#[test]
fn an_exported_xpub_gives_the_addresses_that_the_signer_derives() {
    for chain in Family::ALL {
        let keyring = keyring(vec![secret("one", Purpose::Deposit, chain.as_str(), 3, JUNK)]);
        let group = keyring.groups().next().expect("one");
        assert_eq!((group.account(), group.family()), (3, chain));
        let pinned = AccountKey::parse(&group.key.to_string(), chain).expect("an account's key");
        assert_eq!(pinned, group.key);
        for number in [1, 2, (1 << 31) - 1, 1 << 31, (1 << 62) - 1] {
            let path = AddressPath::of_user(UserId::new(number).expect("positive")).expect("a path");
            assert_eq!(pinned.address(path).expect("one"), keyring.address(&group.id, path).expect("one"));
        }
    }
}

#[test]
fn an_xpub_of_another_level_network_or_kind_is_refused() {
    let keyring = keyring(vec![
        secret("main", Purpose::Hot, "bitcoin", 0, JUNK),
        secret("test", Purpose::Hot, "bitcoin-regtest", 0, JUNK),
    ]);
    let text = |name: &str| keyring.group(&id(name)).expect("there").key.to_string();
    let evm = Family::Evm;
    let (master_private, master) = extended_keys(&[7; 32], &[]).expect("a key");
    let (_, address_level) = extended_keys(&[7; 32], &path("m/44h/60h/0h/0/0")).expect("a key");
    let (_, not_hardened) = extended_keys(&[7; 32], &path("m/44h/60h/0")).expect("a key");
    let main = text("main");
    for bad in [
        "",
        "xpub",
        &main[1..],
        &format!("{main} "),
        &master,
        &master_private,
        &address_level,
        &not_hardened,
        &text("test"),
    ] {
        let error = AccountKey::parse(bad, evm).expect_err(bad);
        assert_eq!(error.code(), "SIGNER_XPUB_INVALID");
        assert!(bad.is_empty() || !error.to_string().contains(bad), "it may be a private key");
    }
    assert!(AccountKey::parse(&main, Family::Bitcoin(bitcoin::Network::Regtest)).is_err());
}

/// What a policy forbids one group, another one with the same keys could do.
#[test]
fn two_groups_never_have_the_same_keys() {
    let two = |first: (&str, u32), second: (&str, u32)| {
        Keyring::of(vec![
            secret("one", Purpose::Deposit, first.0, first.1, JUNK),
            secret("two", Purpose::Hot, second.0, second.1, JUNK),
        ])
    };
    for (first, second) in [(("evm", 0), ("evm", 0)), (("bitcoin-testnet", 1), ("bitcoin-regtest", 1))] {
        let error = two(first, second).expect_err("the same keys");
        assert_eq!(error.code(), "SIGNER_SAME_KEYS");
    }
    for (first, second) in
        [(("evm", 0), ("evm", 1)), (("evm", 0), ("tron", 0)), (("bitcoin", 0), ("bitcoin-regtest", 0))]
    {
        assert!(two(first, second).is_ok(), "{first:?} {second:?}");
    }
    let twice =
        Keyring::of(vec![secret("one", Purpose::Hot, "evm", 0, JUNK), secret("one", Purpose::Hot, "evm", 1, JUNK)]);
    assert_eq!(twice.expect_err("one name").code(), "SIGNER_GROUP_EXISTS");
    assert_eq!(hex(&[0, 255]), "00ff");
}
